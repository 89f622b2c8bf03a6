"""How much work something is: the lines of Python that it runs, the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(work: Callable[[], object]) -> int:
    """Do something, and count the lines of the package that this thread has run for it."""
    lines = 0

    def inside(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return inside

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_globals.get("__name__", "")
        return inside if name == "seamark" or name.startswith("seamark.") else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines
