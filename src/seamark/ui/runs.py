"""Work that only reads and takes a while: started by a viewer, in a thread, and seen by all.

The same work runs once at a time, however many ask for it. Tests: ``tests/ui/test_checks.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from seamark._common.logs import logger_named
from seamark._common.progress_bars import Advance, Bar
from seamark._common.text import plural
from seamark.errors import RefusedError, SeamarkError
from seamark.reports.document import Document
from seamark.ui.threads import DaemonThreads

log = logger_named(__name__)

Work = Callable[[Bar], Document]


class Stopped(Exception):
    """Somebody has had enough of it."""


@dataclass
class Run:
    """One run of some work, and how far it is."""

    kind: str
    started: float
    finished: float | None = None
    step: str | None = None
    done: float = 0.0
    total: float | None = None
    of_bytes: bool = False
    document: Document | None = None
    error: SeamarkError | None = None
    is_stopped: bool = False

    @property
    def state(self) -> str:
        """One of running, stopped, failed, done."""
        if self.finished is None:
            return "running"
        if self.is_stopped and self.document is None:
            return "stopped"
        return "failed" if self.error is not None else "done"

    @contextmanager
    def bar(self, what: str, total: float | None, *, of_bytes: bool = False) -> Iterator[Advance]:
        """Where the work tells how far it is; it ends there when somebody wants it to."""
        self.step, self.done, self.total, self.of_bytes = what, 0.0, total, of_bytes

        def advance(by: float = 1, *, total: float | None = None) -> None:
            if self.is_stopped:
                raise Stopped
            self.done += by
            self.total = total if total is not None else self.total

        yield advance

    def status(self) -> Document:
        """What a viewer sees of it, the document aside."""
        end = time.time() if self.finished is None else self.finished
        return {
            "check": self.kind,
            "state": self.state,
            "started_ms": int(self.started * 1000),
            "seconds": round(max(0.0, end - self.started), 2),
            "step": self.step,
            "done": self.done,
            "total": self.total,
            "of_bytes": self.of_bytes,
        }

    def work(self, work: Work) -> None:
        """Do it, and note how it ended."""
        try:
            self.document = work(self.bar)
        except Stopped:
            pass
        except SeamarkError as error:
            self.error = error
        except Exception as error:
            log.exception("%s failed", self.kind)
            self.error = SeamarkError(f"this should not have happened: {type(error).__name__}")
        finally:
            self.finished = time.time()


class Runs:
    """The last run of each work. At most ``most`` run at a time, and ``kept`` are remembered."""

    def __init__(self, name: str, noun: str, *, most: int, kept: int) -> None:
        self._noun, self._most, self._kept = noun, most, kept
        self._threads = DaemonThreads(most, name)
        self._last: dict[Hashable, Run] = {}

    def last(self, key: Hashable) -> Run | None:
        """The one that runs or ran last."""
        return self._last.get(key)

    def start(self, key: Hashable, kind: str, work: Work) -> Run:
        """Start one, or find the one that runs; :class:`RefusedError` when too many do."""
        running = self._last.get(key)
        if running is not None and running.finished is None:
            return running
        if sum(run.finished is None for run in self._last.values()) >= self._most:
            are = "is" if self._most == 1 else "are"
            raise RefusedError(
                f"{plural(self._most, self._noun)} {are} running, and no more run at a time",
                hint="Try again when one of them is done.",
            )
        self._last.pop(key, None)  # the newest stands last
        run = self._last[key] = Run(kind, time.time())
        over = [k for k, each in self._last.items() if each.finished is not None]
        for old in over[: max(0, len(self._last) - self._kept)]:
            del self._last[old]
        self._threads.submit(run.work, work)
        return run

    def stop(self, key: Hashable) -> None:
        """Have one end at its next step."""
        if (run := self._last.get(key)) is not None:
            run.is_stopped = True

    def close(self) -> None:
        """Have all of them end."""
        for run in list(self._last.values()):
            run.is_stopped = True
        self._threads.shutdown()
