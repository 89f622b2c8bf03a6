"""What it costs to import Seamark and to ask the command line for help.

Ratios to a Python that does nothing, so that they mean the same on any machine.
"""

from __future__ import annotations

import subprocess
import sys
import time

ROUNDS = 15


def best_seconds(*arguments: str) -> float:
    """Return the shortest run of several: the one that was disturbed least."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - started)
    return best


def main() -> None:
    """Print one line per case."""
    nothing = best_seconds("-c", "pass")
    print(f"start-up, as a ratio to a bare Python ({1000 * nothing:.0f} ms here)")
    for name, arguments in {
        "import seamark": ("-c", "import seamark"),
        "seamark --help": ("-m", "seamark", "--help"),
    }.items():
        print(f"  {name:<16} {best_seconds(*arguments) / nothing:5.2f} ×")


if __name__ == "__main__":
    main()
