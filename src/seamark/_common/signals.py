"""Ending in peace on the first signal, and at once on the second."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def first_signal(told: Callable[[signal.Signals], None] | None = None) -> Iterator[list[int]]:
    """Collect the first SIGINT or SIGTERM; let the second do what it does by default.

    ``told`` hears of the first. Only the main thread gets signals; elsewhere nothing is collected.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before: dict[int, Any] = {}

    def note(number: int, _: FrameType | None) -> None:
        received.append(number)
        if told is not None:
            told(signal.Signals(number))
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)

    for each in _SIGNALS:
        before[each] = signal.signal(each, note)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
