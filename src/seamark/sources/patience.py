"""Asking again, for a limited time, a source that gives no answer.

Tests: ``tests/sources/test_patience.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from seamark._common.logs import logger_named
from seamark.errors import SourceSilentError

log = logger_named("seamark.sources")

T = TypeVar("T")
Stopping = Callable[[], bool]
"""Whether whoever waits has to stop."""

_PAUSE: Final = 0.5
"""Seconds between two questions."""


def never() -> bool:
    """For those that are not stopped."""
    return False


def asked_again(patience: float, ask: Callable[[], T], is_stopping: Stopping = never) -> T:
    """The answer to a question that is asked again while it raises :class:`SourceSilentError`.

    Raises whatever else the question raises, and that error too once the time is over.
    """
    deadline = time.monotonic() + patience
    said = False
    while True:
        try:
            return ask()
        except SourceSilentError as error:
            if is_stopping() or time.monotonic() + _PAUSE >= deadline:
                raise
            if not said:
                log.warning("%s: it is asked again for %.0f s", error, patience)
                said = True
            time.sleep(_PAUSE)


def answered_within(
    patience: float, ask: Callable[[], T], who: str, is_stopping: Stopping = never
) -> T:
    """The same, for questions that may take longer than that.

    Such a question is left alone: its thread ends whenever it does.
    """
    deadline = time.monotonic() + patience

    def limited() -> T:
        asked = _Question(ask)
        asked.wait(deadline, is_stopping)
        if not asked.is_answered:
            raise SourceSilentError(
                f"{who} gave no answer within {patience:g} s",
                hint="Check its address and that it can be reached, and start again. "
                "Pipeline(…, source_timeout=…) waits longer.",
            )
        return asked.answer()

    return asked_again(patience, limited, is_stopping)


class _Question(Generic[T]):
    """One call in a thread that nothing waits for at the end of the process."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._done = threading.Event()
        self._answers: list[T] = []
        self._errors: list[BaseException] = []
        threading.Thread(target=self._run, name="seamark-look", daemon=True).start()

    def _run(self) -> None:
        try:
            self._answers.append(self._ask())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever has asked
            self._errors.append(error)
        self._done.set()

    def wait(self, deadline: float, is_stopping: Stopping) -> None:
        """Wait for the answer, until a time or until whoever waits has to stop."""
        while not self._done.is_set() and not is_stopping():
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._done.wait(min(left, _PAUSE))

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer, or an error."""
        return self._done.is_set()

    def answer(self) -> T:
        """The answer; raises what the question has raised."""
        if self._errors:
            raise self._errors[0]
        return self._answers[0]
