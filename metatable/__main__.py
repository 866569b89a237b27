"""`python -m metatable`: the command line."""

import sys

from metatable.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
