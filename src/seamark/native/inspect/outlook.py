"""What a restart of the query would do, and how far back one could still roll.

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from seamark.checkpoint_dir.file_logs.compactions import LogNames, parse_names
from seamark.native.inspect.cached_listing import CachedListing
from seamark.native.inspect.findings import Code, Finding, Severity
from seamark.native.inspect.logs import Logs
from seamark.native.inspect.sources import file_logs, positions
from seamark.native.inspect.state import State

_MOST: Final = 1000
_WRONG_RESULTS: Final = frozenset(
    {
        Code.COMMIT_WITHOUT_OFFSETS,
        Code.STATE_DUPLICATED,
        Code.KEY_IN_TWO_PARTITIONS,
        Code.STATE_NEWER_THAN_LOG,
        Code.SNAPSHOT_DISAGREES,
    }
)
"""What a restart does not notice, and goes wrong by."""


class SparkAction(StrEnum):
    """What a restart does."""

    START = "start"
    """Begin at batch 0, as if nothing had been."""
    NEXT = "next"
    """Plan and run the batch after the committed one."""
    REPLAY = "replay"
    """Run a planned batch again, from the same offsets."""
    FAIL = "fail"


@dataclass(frozen=True)
class Outlook:
    """A restart, in words."""

    action: SparkAction
    batch: int
    """The batch that it runs, or fails at."""
    text: str


def outlook(logs: Logs, findings: Sequence[Finding]) -> Outlook:
    """What would happen if the query were started now."""
    batch = logs.restart
    stopping = next((finding for finding in findings if finding.stops is not None), None)
    if stopping is not None:
        prediction = f"a restart fails at batch {batch} with {stopping.stops} ({stopping.path})"
        return Outlook(SparkAction.FAIL, batch, prediction)
    if logs.planned is None:
        although = "" if logs.committed is None else ", although batches were committed here before"
        return Outlook(SparkAction.START, 0, f"a restart starts from scratch, at batch 0{although}")
    silently = any(f.code in _WRONG_RESULTS for f in findings if f.severity == Severity.DAMAGE)
    after = "; what it computes may be wrong, see the findings" if silently else ""
    if batch == logs.planned:
        prediction = f"a restart runs batch {batch} again from the same offsets{after}"
        return Outlook(SparkAction.REPLAY, batch, prediction)
    return Outlook(SparkAction.NEXT, batch, f"a restart plans batch {batch} and runs it{after}")


def restorable(listing: CachedListing, logs: Logs, state: State) -> list[int]:
    """Committed batches that one could roll back to, as far as names and the logs tell."""
    if not state.is_understood:
        return []
    loadable = [store.loadable() for store in state.stores]
    complete = len(state.needed) == len(state.stores)
    sources = {
        name: parse_names(n for n in listing.names(f"sources/{name}") if len(n) < 30)
        for name in file_logs(listing)
    }
    known = {finding.path for finding in logs.findings}
    batches = []
    for batch in logs.commits[-_MOST:]:
        entry = logs.entries.get(batch)
        if entry is None or (batch > 0 and batch - 1 not in logs.entries):
            continue
        if f"commits/{batch}" in known or (batch + 1 == logs.restart and not complete):
            continue
        if not all(batch + 1 in versions for versions in loadable):
            continue
        read = positions(listing, entry, list(sources)) if sources else {}
        if all(_has_entries(log, read.get(name)) for name, log in sources.items()):
            batches.append(batch)
    return batches


def _has_entries(log: LogNames, last: int | None) -> bool:
    """Whether a source's log can be made to end at an entry."""
    if last is None or last < 0 or any(at >= last for at in log.compacted):
        return True
    base = max((at for at in log.compacted if at <= last), default=-1)
    plain = [at for at in log.plain if base < at <= last]
    return len(plain) == last - base
