"""``python -m seamark`` is the same as ``seamark``."""

import sys

from seamark.cli import main

sys.exit(main())
