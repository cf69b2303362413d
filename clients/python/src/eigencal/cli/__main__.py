"""`python -m eigencal.cli` is the command `eigencal`, where its folder is not on the path."""

from eigencal.cli import main

main()
