"""`python -m eigencal.cli` is the command `eigencal`, where its folder is not on the path."""

import sys

from eigencal.cli import main

sys.exit(main())
