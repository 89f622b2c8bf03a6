"""Rows of state, read by a Spark in a process of its own: it may fail or hang, the page does not.

Tests: ``tests/ui/test_state_rows.py``.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import IO, Final

import msgspec

from seamark._common.error_parts import error_of
from seamark._common.limited_process import python_command
from seamark._common.progress_bars import Bar
from seamark.errors import InvalidInputError, SeamarkError
from seamark.reports.document import Document
from seamark.ui.bounds import LARGEST_ROWS, ROWS_PATIENCE
from seamark.ui.row_child import Question, Told
from seamark.ui.row_source import RowsAsked

_LOOK_EVERY: Final = 0.3
_ELSEWHERE: Final = ("MASTER", "SPARK_REMOTE")
"""A Spark on other machines could not read what is restored on this one."""


class SparkProcess:
    """At most one process, started when it is needed. Only one thread may ask at a time."""

    def __init__(self, command: Sequence[str] = ()) -> None:
        self._command = command or python_command("seamark.ui.row_child")
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def ask(self, question: Question, bar: Bar) -> Document:
        """The answer to a question; :class:`SeamarkError` also when the process dies."""
        try:
            for _ in range(2):  # one that was idle may end in the moment it is asked
                self._send(question)
                if (document := self._answer(bar)) is not None:
                    return document
        except BaseException as error:
            if not isinstance(error, SeamarkError):
                self.end()  # nobody waits for its answer any more
            raise
        raise SeamarkError(
            "the process in which Spark reads the rows has ended without an answer",
            hint="It may have run out of memory. 'seamark spark state' says more.",
        )

    def _send(self, question: Question) -> None:
        data = msgspec.json.encode(question) + b"\n"
        if self._process is not None and self._process.poll() is None:
            with suppress(BrokenPipeError):
                _write(self._process, data)
                return
        self.end()
        environment = {k: v for k, v in os.environ.items() if k not in _ELSEWHERE}
        process = self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        assert process.stdout is not None
        self._lines = queue.SimpleQueue()
        threading.Thread(
            target=_pass_on, args=(process.stdout, self._lines), name="seamark-rows", daemon=True
        ).start()
        with suppress(BrokenPipeError):
            _write(process, data)

    def _answer(self, bar: Bar) -> Document | None:
        """The document; None when the process has ended before it said anything."""
        end = time.monotonic() + ROWS_PATIENCE
        is_silent = True
        step, done = "starting a process", 0.0
        with bar(step, None) as advance:
            waiting = advance
        while True:
            if time.monotonic() > end:
                self.end()
                raise SeamarkError(f"no rows in {ROWS_PATIENCE:.0f} s")
            waiting(0)
            try:
                line = self._lines.get(timeout=_LOOK_EVERY)
            except queue.Empty:
                continue
            if not line:
                self._ended(is_silent=is_silent)
                return None
            is_silent = False
            told = msgspec.json.decode(line, type=Told)
            if told.document is not None:
                return told.document
            if told.error is not None:
                raise error_of(told.error)
            if told.step != step or told.done < done:
                step, done = told.step or "", 0.0
                with bar(step, told.total, of_bytes=told.of_bytes) as advance:
                    waiting = advance
            waiting(told.done - done, total=told.total)
            done = told.done

    def _ended(self, *, is_silent: bool) -> None:
        """Clean up after a process that is gone; one that has begun to answer is not replaced."""
        self.end()
        if not is_silent:
            raise SeamarkError(
                "the process in which Spark reads the rows has died",
                hint="It may have run out of memory. 'seamark spark state' says more.",
            )

    def end(self) -> None:
        """End the process and what it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)  # it removes what it has written
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _write(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def _pass_on(stdout: IO[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    """Lines as they come, and an empty one at the end."""
    with stdout, suppress(OSError):
        while line := stdout.readline(2 * LARGEST_ROWS):
            lines.put(line)
    lines.put(b"")


class ProcessReader:
    """The rows of one place, read by a process that all places share."""

    def __init__(
        self, process: SparkProcess, url: str, options: Mapping[str, str], *, is_directory: bool
    ) -> None:
        self._process, self._url, self._options = process, url, dict(options)
        self._is_directory = is_directory

    def read(self, asked: RowsAsked, bar: Bar) -> Document:
        """See :class:`~seamark.ui.row_source.RowReader`."""
        require_spark()
        question = Question(
            url=self._url,
            storage_options=self._options,
            is_directory=self._is_directory,
            asked=asked,
        )
        return self._process.ask(question, bar)

    def close(self) -> None:
        """End the process."""
        self._process.end()


def require_spark() -> None:
    """:class:`InvalidInputError` where no Spark is installed."""
    if find_spec("pyspark") is None:
        raise InvalidInputError(
            "rows of state are read by Spark, and none is installed here",
            hint="pip install 'seamark[spark,java]' brings Spark and a Java for it.",
        )
