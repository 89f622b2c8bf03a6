"""Trying again while a store does not answer, and giving up in time.

Loops that wait for something else stay where they are: a listing that settles, a process that ends,
and a write whose outcome is unknown, which is read back before it is tried again.

Tests: ``tests/pipeline/test_save_with_retry.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from seamark._common.logs import logger_named
from seamark._redaction import redacted
from seamark.errors import OutcomeUnknownError, StoreUnavailableError

log = logger_named("seamark.pipeline")

T = TypeVar("T")

TRIES: Final = 10
"""How often a reader that was overtaken by a prune reads again."""
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0


class Backoff:
    """Grows the pause between tries until a deadline is reached."""

    def __init__(self, patience: float) -> None:
        self._deadline = time.monotonic() + patience
        self._pause = _FIRST_PAUSE

    def wait(self, error: Exception, what: str) -> None:
        """Sleep before the next try, or raise ``error`` when the time is up."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise error
        reason = redacted(str(error))
        log.warning("%s failed, next try in %.2f s: %s", what, min(self._pause, left), reason)
        time.sleep(min(self._pause, left))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


def retry_unavailable(action: Callable[[], T], patience: float, what: str) -> T:
    """Repeat an action while the store does not answer. The action must be safe to repeat.

    An unknown outcome is raised at once."""
    backoff = Backoff(patience)
    while True:
        try:
            return action()
        except OutcomeUnknownError:
            raise
        except StoreUnavailableError as error:
            backoff.wait(error, what)


def pruned_too_fast(where: str) -> StoreUnavailableError:
    """The error of a reader that was overtaken every time."""
    return StoreUnavailableError(
        f"checkpoints were pruned while they were being read, {TRIES} times in a row",
        where=where,
        hint="That says nothing about what the store holds. Try again, keep more checkpoints, or "
        "pin the one that you want to read.",
    )
