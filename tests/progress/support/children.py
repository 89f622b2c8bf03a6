"""Processes that use a progress store, to be killed, paused and asked.

They are forked from a small server that has imported what they need, so that one starts in a few
milliseconds instead of half a second.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, Final

from seamark.progress import SourceCheckpoint, SourceCheckpointStore, open_progress

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["seamark.progress.rocksdb.ledger", "rocksdict", "redis", __name__])

PATIENCE: Final = 280.0
SPACES: Final = ("totals", "names", "{odd}: \n")
KEYS: Final = [b"key %d" % number for number in range(20)]


class Child:
    """A process that runs ``work(reports, *arguments)``."""

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        self.reports, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=work, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def hear(self) -> Any:
        """The next report; :class:`EOFError` when it has died."""
        assert self.reports.poll(PATIENCE), "the child says nothing"
        try:
            return self.reports.recv()
        except ConnectionResetError:
            raise EOFError from None

    def hear_all(self) -> list[Any]:
        """Everything that it still says until it ends."""
        heard = []
        while True:
            try:
                heard.append(self.hear())
            except EOFError:
                return heard

    def tell(self, word: object) -> None:
        """Send it a word. One that has ended does not get it; what it said can still be heard."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.reports.send(word)

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Kill it, if it is still there, and forget it."""
        self.kill()
        self._process.join(PATIENCE)
        self._process.close()
        self.reports.close()


@contextmanager
def running(work: Callable[..., None], *arguments: Any) -> Iterator[Child]:
    child = Child(work, *arguments)
    try:
        yield child
    finally:
        child.end()


# what they do


def write_number(store: SourceCheckpointStore, number: int) -> None:
    """A session whose every key and checkpoint carries its number."""
    with store.session() as s:
        for key in KEYS[:10]:
            s.put(SPACES[0], key, b"%d" % number)
        s.put_many(SPACES[0], [(key, b"%d" % number) for key in KEYS[10:]])
        if number % 2:
            s.clear(SPACES[1])
        s.put_many(SPACES[1], [(key, b"%d" % number) for key in KEYS])
        s.delete(SPACES[2], b"%d" % (number - 1))
        s.put(SPACES[2], b"%d" % number, b"%d" % number)
        s.stage_checkpoint("source", number, b"%d" % number)
        s.write_result_sequence("query", number)


def whole_number(store: SourceCheckpointStore) -> int:
    """The number that everything carries; :class:`AssertionError` when it is not one."""
    found = store.read_all_checkpoints()
    assert [*found] in ([], ["source"])
    if not found:
        assert [[*store.items(space)] for space in SPACES] == [[], [], []]
        assert store.read_result_sequence("query") is None
        return 0
    number = found["source"].sequence
    text = b"%d" % number
    assert found["source"] == SourceCheckpoint(number, text)
    assert dict(store.items(SPACES[0])) == dict.fromkeys(KEYS, text)
    assert dict(store.items(SPACES[1])) == dict.fromkeys(KEYS, text)
    assert [*store.items(SPACES[2])] == [(text, text)]
    assert store.read_result_sequence("query") == number
    return number


def run_large_sessions(reports: Connection, url: str, die_at: int = 0) -> None:
    """As ``run_sessions``, but RocksDB takes most sessions over as files."""
    from seamark.progress.rocksdb import ledger as rocksdb

    rocksdb._LARGE = 0  # type: ignore[misc]
    run_sessions(reports, url, die_at)


def run_sessions(reports: Connection, url: str, die_at: int = 0) -> None:
    """Look at what is there, then commit sessions until somebody kills this process.

    With ``die_at`` it kills itself before that line, counted over all lines of ``seamark.progress``
    that it runs.
    """
    if die_at:
        die_before_line(die_at)
    with open_progress(url) as store:
        try:
            number = whole_number(store)
        except AssertionError as error:
            reports.send(f"half a session: {error}")
            return
        reports.send(number)
        while True:
            number += 1
            write_number(store, number)
            reports.send(number)


def die_before_line(number: int) -> None:
    """Kill the own process before the n-th line that it runs in ``seamark.progress``."""
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if "/seamark/progress/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def hold(reports: Connection, url: str, namespace: str | None = None) -> None:
    """Open a store to write, and do one thing after the other as told, until told to stop."""
    store = open_progress(url, namespace=namespace)
    reports.send("open")
    for word in iter(reports.recv, None):
        try:
            match word:
                case ("write", number):
                    write_number(store, number)
                case "stage":
                    store.begin().put("data", b"staged", b"by the child")
                case "commit":
                    store.commit()
                case "read":
                    reports.send(whole_number(store))
                    continue
            reports.send("done")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            reports.send(error)
    store.close()
    reports.send("closed")
