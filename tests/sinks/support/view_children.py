"""Processes that write a live view, or read it meanwhile, to be killed at any moment."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from seamark.errors import SeamarkError
from seamark.progress import SourceCheckpointStore, open_progress
from seamark.progress.rocksdb import ledger as rocksdb_ledger
from seamark.sinks import Committable
from seamark.testing.conformance.sink_examples import OLD
from tests.sinks.support.views import World, lines, rows_of, told

KEYS = 40


def write_epochs(
    reports: Connection, url: str, staging: str | None, large: int = 0, die_at: int = 0
) -> None:
    """Finish what the process before has decided, then show one epoch after another.

    It is told the committable of the newest decided epoch, or None, and a token for its attempts;
    each committable that it sends is decided. With ``large`` a commit of
    so many bytes is handed to RocksDB as a file. With ``die_at`` the process kills itself before
    that line, counted over all lines that it runs in the view's and the store's modules.
    """
    if large:
        vars(rocksdb_ledger)["_LARGE"] = large
    world = World(url, Path(staging) if staging else None)
    committable, token = reports.recv()
    if die_at:
        die_before_line(die_at)
    try:
        _write_on(reports, world, committable, token)
    except (AssertionError, SeamarkError) as error:
        reports.send(f"wrong: {error}")


def _write_on(
    reports: Connection, world: World, committable: Committable | None, token: str
) -> None:
    sink = world.handle()
    if committable is not None:
        sink.commit(committable)
    for attempt in sink.leftovers():
        sink.abort(attempt)
    newest = sink.newest()
    number = newest.epoch if newest is not None else 0
    want = committable["epoch"] if committable is not None else 0
    assert number == want, f"the view shows epoch {number}, and {want} is decided"
    assert sink.committed(OLD, number + 1) is None
    while True:
        number += 1
        sink.stage(lines(*rows_of(number, KEYS)), told(number), f"{token}-{number}")
        committable = sink.prepare()
        reports.send(committable)  # the decision
        sink.commit(committable)


def read_epochs(reports: Connection, url: str) -> None:
    """Look at the view again and again, until told to stop; what was seen, or what was wrong."""
    looks, seen = 0, [0]
    with open_progress(url, read_only=True) as store:
        reports.send("ready")
        while not reports.poll():
            try:
                seen.append(look(store, seen[-1]))
            except (AssertionError, SeamarkError) as error:
                reports.send(f"after {looks} looks: {type(error).__name__}: {error}")
                return
            looks += 1
    reports.send((looks, len(set(seen)) - 1))


def look(store: SourceCheckpointStore, before: int) -> int:
    """The number that all rows carry; every way of reading has to agree on how far it has come."""
    rows = dict(store.items("view"))
    found = {value.rpartition(b" ")[2] for value in rows.values()}
    assert len(found) <= 1, f"two epochs at once: {found}"
    assert len(rows) in (0, KEYS), f"{len(rows)} rows"
    number = int(found.pop()[:-1]) if found else 0
    assert number >= before, f"epoch {number} after {before}"
    source = store.read_checkpoint("orders")
    after = source.sequence if source else 0
    assert after >= number, f"epoch {number} is shown, and the source is said to be at {after}"
    one = store.get("view", b"%d" % (number % KEYS))
    single = int(one.rpartition(b" ")[2][:-1]) if one else 0
    assert single >= after, f"a single key is of epoch {single}, and {after} was shown before"
    return single


def die_before_line(number: int) -> None:
    """Kill the own process before the n-th line that it runs in these modules."""
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        name = frame.f_code.co_filename
        if "/seamark/sinks/" not in name and "/seamark/progress/" not in name:
            return None
        if event == "line":
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
