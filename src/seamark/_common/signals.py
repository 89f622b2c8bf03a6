"""Ending in an orderly way on the first signal, and at once on the second."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def first_signal(notify: Callable[[signal.Signals], None] | None = None) -> Iterator[list[int]]:
    """Collect the first SIGINT or SIGTERM; let the second do what it does by default.

    ``notify`` is called with the first one. Only the main thread gets signals; in any other thread
    nothing is collected.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before: dict[int, Any] = {}

    def note(number: int, _: FrameType | None) -> None:
        received.append(number)
        if notify is not None:
            notify(signal.Signals(number))
        for handled in _SIGNALS:
            signal.signal(handled, signal.SIG_DFL)

    for number in _SIGNALS:
        before[number] = signal.signal(number, note)
    try:
        yield received
    finally:
        for restored, handler in before.items():
            signal.signal(restored, handler)
