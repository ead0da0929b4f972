"""`python -m watersmeet.cli`."""

import sys

from watersmeet.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
