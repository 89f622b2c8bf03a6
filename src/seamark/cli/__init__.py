"""The ``seamark`` command. The module of a command is loaded when it is called."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import Final

_INTERRUPTED: Final = 130


def main() -> int:
    """Run the command line of this process and return its exit code.

    Works without the ``cli`` extra in so far as it says how to get it.
    """
    if find_spec("click") is None or find_spec("rich") is None:
        _say("error: the command line needs an extra: pip install 'seamark[cli]'")
        return 1
    try:
        from seamark.cli.app import run

        return run()
    except KeyboardInterrupt:  # while it was being loaded
        _say("Interrupted.")
        return _INTERRUPTED


def _say(line: str) -> None:
    with suppress(OSError):
        if sys.stderr is not None:
            sys.stderr.write(f"{line}\n")
