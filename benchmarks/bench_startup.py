"""What it costs to import Seamark and to ask the command line for help.

Ratios to a Python that does nothing, so that they mean the same on any machine.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from harness import Row, in_milliseconds, interleaved, options, ratio, show


def python(*arguments: str) -> Callable[[], None]:
    """A run of this interpreter, to its end."""

    def run() -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    return run


def main() -> None:
    """Print the table."""
    given = options(__doc__)
    rounds = 5 if given.quick else 15
    cases = {
        "a bare Python": python("-c", "pass"),
        "import seamark": python("-c", "import seamark"),
        "seamark --help": python("-m", "seamark", "--help"),
    }
    times = interleaved(cases, rounds)
    bare = times.pop("a bare Python")
    said = f"a bare Python ({in_milliseconds(bare)})"
    show("start-up", [Row(name, said, ratio(taken, bare)) for name, taken in times.items()])


if __name__ == "__main__":
    main()
