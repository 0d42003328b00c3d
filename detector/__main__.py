"""`python -m detector` is the command `gpuwarden`."""

import sys

from detector.cli import main

sys.exit(main())
