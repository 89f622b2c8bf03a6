"""The ``seamark`` command: one module per command, loaded when it is asked for."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> int:
    """Run the command line of this process and return its exit code.

    Works without the ``cli`` extra in so far as it says how to get it.
    """
    if find_spec("click") is None or find_spec("rich") is None:
        sys.stderr.write("error: the command line needs an extra: pip install 'seamark[cli]'\n")
        return 1
    from seamark.cli.app import run

    return run()
