"""`python -m nnflat` is the command `nnflat`."""

import sys

from nnflat.cli import main

if __name__ == "__main__":
    sys.exit(main())
