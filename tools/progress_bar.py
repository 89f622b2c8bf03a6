"""A progress bar on a terminal, a few plain lines anywhere else."""

from __future__ import annotations

import shutil
import time
from typing import Self, TextIO

BAR_WIDTH = 24
PLAIN_EVERY_SECONDS = 20.0


class ProgressBar:
    """One line that is drawn again on a terminal; off a terminal a line now and then."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._last_plain = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def show(self, fraction: float, words: str) -> None:
        """Show how far it is (0 to 1) and what is going on."""
        percent = f"{100 * fraction:3.0f} %"
        if self._terminal:
            full = round(BAR_WIDTH * fraction)
            line = f"  {'█' * full}{'░' * (BAR_WIDTH - full)} {percent}  {words}"
            room = shutil.get_terminal_size().columns - 1
            self._out.write(f"\r{line[:room]}\x1b[K")
        elif time.monotonic() - self._last_plain >= PLAIN_EVERY_SECONDS:
            self._last_plain = time.monotonic()
            self._out.write(f"  {percent}  {words}\n")
        self._out.flush()
