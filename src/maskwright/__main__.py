"""`python -m maskwright`: the command, where its script is not on the path."""

import sys

from maskwright.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
