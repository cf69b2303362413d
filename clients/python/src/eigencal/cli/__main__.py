"""`python -m eigencal.cli` runs the command `eigencal`, even if it is not on the path."""

from eigencal.cli import main

main()
