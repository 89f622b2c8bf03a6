"""Checks that only read and take a while: what a restart would do, whether all bytes are right.

Each runs once at a time for a place, in a thread, and all viewers see how far it is. Tests:
``tests/ui/test_checks.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from seamark._common.logs import logger_named
from seamark._common.progress_bars import Advance, Bar
from seamark.errors import RefusedError, SeamarkError
from seamark.reports.document import Document
from seamark.reports.recovery_walk import explain_walk
from seamark.reports.store_health import check_store, health_document
from seamark.reports.verification import check_named, verification_document
from seamark.store import CheckpointStore
from seamark.store.consistent_read import until_settled
from seamark.ui.bounds import MOST_CHECKS
from seamark.ui.threads import DaemonThreads

log = logger_named(__name__)

Work = Callable[[CheckpointStore, Bar], Document]


def _explain(store: CheckpointStore, bar: Bar) -> Document:
    del bar  # the search is over when it is over
    return explain_walk(store)


def _verify(store: CheckpointStore, bar: Bar, *, share: float) -> Document:
    look = partial(check_named, store, None, share, 0, bar)
    return verification_document(store.url, until_settled(look, store.url), share) | {"seed": None}


def _doctor(store: CheckpointStore, bar: Bar) -> Document:
    del bar
    document = health_document(store.url, check_store(store, write=False))
    return document | {"read_only": True}


KINDS: Final[Mapping[str, Work]] = {
    "recover": _explain,
    "verify": partial(_verify, share=0.0),
    "verify-data": partial(_verify, share=1.0),
    "doctor": _doctor,
}
"""By the name in the address; the document is what the command of that name prints as JSON."""


class _Stopped(Exception):
    """Somebody has had enough of it."""


@dataclass
class Check:
    """One run of a check, and how far it is."""

    kind: str
    started: float
    finished: float | None = None
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
        del what
        self.done, self.total, self.of_bytes = 0.0, total, of_bytes

        def advance(by: float = 1, *, total: float | None = None) -> None:
            if self.is_stopped:
                raise _Stopped
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
            "done": self.done,
            "total": self.total,
            "of_bytes": self.of_bytes,
        }


class Checks:
    """The checks of all places: the last one of each kind, and a bound on those that run."""

    def __init__(self) -> None:
        self._threads = DaemonThreads(MOST_CHECKS, "seamark-ui-check")
        self._last: dict[tuple[str, str], Check] = {}

    def last(self, place: str, kind: str) -> Check | None:
        """The one that runs or ran last."""
        return self._last.get((place, kind))

    def start(self, place: str, kind: str, open_it: Callable[[], CheckpointStore]) -> Check:
        """Start one, or find the one that runs; :class:`RefusedError` when too many do."""
        running = self._last.get((place, kind))
        if running is not None and running.finished is None:
            return running
        if sum(check.finished is None for check in self._last.values()) >= MOST_CHECKS:
            raise RefusedError(
                f"{MOST_CHECKS} checks are running, and no more do at a time",
                hint="Try again when one of them is done.",
            )
        check = self._last[place, kind] = Check(kind, time.time())
        self._threads.submit(_run, check, open_it)
        return check

    def stop(self, place: str, kind: str) -> None:
        """Have one end at its next step."""
        if (check := self._last.get((place, kind))) is not None:
            check.is_stopped = True

    def close(self) -> None:
        """Have all of them end."""
        for check in self._last.values():
            check.is_stopped = True
        self._threads.shutdown()


def _run(check: Check, open_it: Callable[[], CheckpointStore]) -> None:
    try:
        check.document = KINDS[check.kind](open_it(), check.bar)
    except _Stopped:
        pass
    except SeamarkError as error:
        check.error = error
    except Exception as error:
        log.exception("the check %s failed", check.kind)
        check.error = SeamarkError(f"this should not have happened: {type(error).__name__}")
    finally:
        check.finished = time.time()
