"""The process in which Spark reads rows of state for the page: one question a line, as JSON.

It ends when its standard input does, or when nobody has asked for a while. The page starts it:
:mod:`seamark.ui.row_process`.

Tests: ``tests/ui/test_state_rows.py``.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TextIO

import msgspec

from seamark._common.error_parts import parts_of
from seamark._common.progress_bars import Advance
from seamark.checkpoint_dir.places.directory import open_directory
from seamark.errors import SeamarkError
from seamark.reports.document import Document
from seamark.spark.own_session import a_session
from seamark.store import open_store
from seamark.ui.bounds import LARGEST_ROWS, ROWS_IDLE
from seamark.ui.row_source import RowsAsked, RowSource

_TELL_EVERY = 0.2
Tell = Callable[[Document], None]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of which place. Storage options come this way, never on a command line."""

    url: str
    storage_options: dict[str, str]
    is_directory: bool
    asked: RowsAsked


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an answer: how far it is, the rows, or why there are none."""

    step: str | None = None
    done: float = 0.0
    total: float | None = None
    of_bytes: bool = False
    document: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


def main() -> None:
    """Answer questions until nobody has any."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed must not look like an answer
    questions: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    source: list[tuple[object, RowSource]] = []

    def listen() -> None:
        for line in sys.stdin.buffer:
            questions.put(line)
        for _, each in source:  # the page is gone: nobody waits for what is being read
            each.close()
        os._exit(0)

    threading.Thread(target=listen, name="seamark-questions", daemon=True).start()
    while True:
        try:
            line = questions.get(timeout=ROWS_IDLE)
        except queue.Empty:
            break
        _answer(msgspec.json.decode(line, type=Question), source, answers)
    for _, each in source:
        each.close()
    os._exit(0)  # the JVM ends with its standard input


def _answer(asked: Question, source: list[tuple[object, RowSource]], answers: TextIO) -> None:
    told = Told()
    try:
        document = _source_for(asked, source).read(asked.asked, partial(_bar, answers))
        told = Told(document=document)
        if len(msgspec.json.encode(told)) > LARGEST_ROWS:
            raise SeamarkError(
                "these rows are too large for a page",
                hint="'seamark spark state' prints rows of any size.",
            )
    except SeamarkError as error:
        told = Told(error=parts_of(error))
    except Exception as error:  # noqa: BLE001 - told to whoever asked
        first_line = str(error).partition("\n")[0][:500]
        failed = SeamarkError(f"reading rows failed: {type(error).__name__}", where=first_line)
        told = Told(error=parts_of(failed))
    _tell(answers, told)


def _source_for(asked: Question, source: list[tuple[object, RowSource]]) -> RowSource:
    """The place that was asked about last, or another one in its stead."""
    key = (asked.url, asked.is_directory)
    if not source or source[0][0] != key:
        for _, old in source:
            old.close()
        options = asked.storage_options or None
        if asked.is_directory:
            made = RowSource(a_session, directory=partial(open_directory, asked.url, options))
        else:
            made = RowSource(
                a_session, store=partial(open_store, asked.url, storage_options=options)
            )
        source[:] = [(key, made)]
    return source[0][1]


@contextmanager
def _bar(
    answers: TextIO, what: str, total: float | None, *, of_bytes: bool = False
) -> Iterator[Advance]:
    done, told_at, most = 0.0, time.monotonic(), total
    _tell(answers, Told(step=what, total=total, of_bytes=of_bytes))

    def advance(by: float = 1, *, total: float | None = None) -> None:
        nonlocal done, told_at, most
        done, most = done + by, total if total is not None else most
        if time.monotonic() - told_at >= _TELL_EVERY:
            told_at = time.monotonic()
            _tell(answers, Told(step=what, done=done, total=most, of_bytes=of_bytes))

    yield advance


def _tell(answers: TextIO, told: Told) -> None:
    answers.write(msgspec.json.encode(told).decode() + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
