"""A process that misbehaves in the way that its standard input names."""

from __future__ import annotations

import sys
import time

from seamark._common.limited_process import limit_this_process


def main() -> None:
    asked = sys.stdin.read()
    limit_this_process(memory=256 << 20, seconds=1)
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    if asked == "spin":
        while True:
            pass
    if asked == "grow":
        held = bytearray()
        while True:
            held += bytes(16 << 20)
    if asked == "sleep":
        time.sleep(600)
    if asked == "fail":
        raise ValueError("x" * 1000)
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
