"""``python -m seamark`` is the same as ``seamark``.

Tests: ``tests/cli/test_app.py``.
"""

import sys

from seamark.cli import main

sys.exit(main())
