"""`python -m ketal` is `ketal`."""

import sys

from ketal.cli import main

sys.exit(main())
