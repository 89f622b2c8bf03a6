"""Looking into a checkpoint directory: what it holds, what is wrong, what a restart would do.

Nothing is written. One listing, then bounded reads, a few at a time. The query may be running: what
looks like damage has to look so in a second listing too. The codes of what is found are in
:mod:`~seamark.native.inspect.findings`.
"""

from __future__ import annotations

import shlex
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from seamark.checkpoint_dir.file_logs.compactions import LogNames, parse_names
from seamark.checkpoint_dir.places.directory import Directory
from seamark.errors import CheckpointNotFoundError
from seamark.native.inspect.cached_listing import CachedListing
from seamark.native.inspect.contents import Advance, ReadState, hadoop_findings, read_state
from seamark.native.inspect.findings import Code, Finding, Severity, cleaned, damage, shown
from seamark.native.inspect.logs import Logs, read_logs
from seamark.native.inspect.operators import (
    OperatorSummary,
    operator_findings,
    operators_of,
    repartition_findings,
    spark_version,
    temporary_findings,
)
from seamark.native.inspect.replaced_files import copy_findings, order_findings, strange_times
from seamark.native.inspect.snapshots import snapshot_findings
from seamark.native.inspect.sources import (
    SourceSummary,
    file_logs,
    newest_entries,
    positions,
    source_findings,
    sources_of,
)
from seamark.native.inspect.state import State, state_of
from seamark.native.rewind.barrier import found_barrier

_PAUSE: Final = 0.25
_ORDER: Final = list(Severity)
_OURS: Final = ("owner.json", "checkpoints", "manifests")
_MOST_BATCHES: Final = 1000
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


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """A checkpoint directory at one moment."""

    url: str
    query_id: str | None
    spark: str | None
    """Which Spark wrote the newest offsets, as far as that is known."""
    offset_log: str | None
    """``v1`` or ``v2``."""
    checkpoint_format: int
    """2 when state files carry unique ids."""
    offsets: list[int]
    """Batches in the offset log, ascending."""
    commits: list[int]
    watermark_ms: int
    """The watermark of the newest planned batch; 0 when there is none."""
    sources: list[SourceSummary]
    operators: list[OperatorSummary]
    settings: dict[str, str]
    """What Spark pins for the life of the checkpoint."""
    files: int
    size: int
    """Bytes of all files."""
    restorable: list[int]
    """Committed batches that one could roll back to."""
    would_do: Outlook
    findings: list[Finding]
    """Damage first."""
    unread: int
    """State files that were not read, because they are too large or too many."""

    @property
    def planned(self) -> int | None:
        """The batch that was planned and not finished."""
        newest = self.offsets[-1] if self.offsets else None
        return newest if newest is not None and newest != self.committed else None

    @property
    def committed(self) -> int | None:
        """The newest batch that was finished."""
        return self.commits[-1] if self.commits else None

    @property
    def is_damaged(self) -> bool:
        """Whether anything is proven wrong or lost."""
        return any(finding.severity == Severity.DAMAGE for finding in self.findings)


def inspect(
    directory: Directory,
    *,
    read_data: bool = False,
    advance: Advance | None = None,
    pause: float = _PAUSE,
) -> Inspection:
    """What a directory holds. ``read_data`` reads all state files and not only small ones.

    What seems wrong is looked at again after ``pause`` seconds, by a new listing.
    :class:`CheckpointNotFoundError` when there is no checkpoint of Spark at all.
    """
    inspection = _looked_at(CachedListing.of(directory), read_data, advance)
    if not any(finding.severity != Severity.INFO for finding in inspection.findings):
        return inspection
    time.sleep(pause)
    again = _looked_at(CachedListing.of(directory), read_data, None)
    before = {(finding.code, finding.path) for finding in inspection.findings}
    stays = [f for f in again.findings if (f.code, f.path) in before]
    if len(stays) == len(again.findings):
        return again
    # the rest came and went with the files of a running query
    return _with_outlook(_still_known(again, stays), stays)


def _still_known(inspection: Inspection, stays: list[Finding]) -> Inspection:
    """The same without a word on state that only findings which have gone called incomplete."""
    proven = {_operator_in(f.path) for f in stays if f.severity == Severity.DAMAGE}
    found = {_operator_in(f.path) for f in inspection.findings if f.severity == Severity.DAMAGE}
    gone = found - proven
    operators = [
        replace(each, is_complete=None) if not each.is_complete and each.number in gone else each
        for each in inspection.operators
    ]
    return replace(inspection, operators=operators)


def _operator_in(path: str) -> int | None:
    """The operator that a file or folder of state belongs to."""
    top, _, rest = path.partition("/")
    number = rest.partition("/")[0]
    return int(number) if top == "state" and number.isascii() and number.isdigit() else None


def _looked_at(listing: CachedListing, read_data: bool, advance: Advance | None) -> Inspection:
    _require_checkpoint(listing)
    logs = read_logs(listing)
    entry = logs.newest
    conf = {str(k): str(v) for k, v in entry.conf.items()} if entry is not None else {}
    state = state_of(listing, logs)
    learned = read_state(listing, state, conf, read_data=read_data, advance=advance)
    # half-way through a rollback, all else that looks wrong is what it has not come to yet
    findings = list(_rollback_findings(listing)) or [
        *logs.findings,
        *_findings(listing, logs, state, learned, conf, read_data),
    ]
    inspection = Inspection(
        url=shown(listing.directory.url),
        query_id=None if logs.query_id is None else shown(logs.query_id),
        spark=spark_version(listing, conf),
        offset_log=entry.version if entry is not None else None,
        checkpoint_format=logs.checkpoint_format,
        offsets=logs.offsets,
        commits=logs.commits,
        watermark_ms=entry.watermark_ms if entry is not None else 0,
        sources=sources_of(listing, logs),
        operators=operators_of(listing, state, logs.restart, conf),
        settings={shown(name): shown(value) for name, value in conf.items()},
        files=len(listing.entries),
        size=sum(each.size for each in listing.entries.values()),
        restorable=restorable(listing, logs, state),
        would_do=outlook(logs, findings),
        findings=[],
        unread=learned.unread,
    )
    return _with_outlook(inspection, findings)


def _findings(
    listing: CachedListing,
    logs: Logs,
    state: State,
    learned: ReadState,
    conf: Mapping[str, str],
    read_data: bool,
) -> Iterator[Finding]:
    yield from source_findings(listing, logs)
    yield from operator_findings(listing, logs)
    yield from state.findings
    yield from learned.findings
    strange = strange_times(listing, state.stores)
    copies = list(copy_findings(listing, state, learned, strange))
    yield from copies
    yield from order_findings(state.stores, strange, (copy.path for copy in copies))
    yield from snapshot_findings(listing, state, learned, conf, read_data=read_data)
    yield from repartition_findings(listing, logs)
    yield from _log_checksums(listing, logs)
    yield from temporary_findings(listing)


def _rollback_findings(listing: CachedListing) -> Iterator[Finding]:
    """A rollback of ours that was interrupted keeps Spark out until it is repeated."""
    barrier = found_barrier(listing)
    if barrier is not None:
        yield damage(
            Code.ROLLBACK_UNFINISHED,
            barrier.path,
            f"a rollback to batch {barrier.to_batch} was started and not finished",
            f"Finish it: seamark spark rollback PATH --to-batch {barrier.to_batch}",
            stops="an entry of the offset log that it cannot read",
        )


def _log_checksums(listing: CachedListing, logs: Logs) -> Iterator[Finding]:
    paths = ["metadata", *(f"offsets/{n}" for n in logs.entries)]
    paths += [f"commits/{n}" for n in logs.commits[-len(logs.entries) :]]
    for path in paths:
        if listing.is_there(path) and (data := listing.data(path)) is not None:
            yield from hadoop_findings(listing, path, data)


def _require_checkpoint(listing: CachedListing) -> None:
    url = listing.directory.url
    if listing.batches("offsets") or listing.batches("commits"):
        return
    if any(name in listing.names("") for name in _OURS):
        raise CheckpointNotFoundError(
            f"{url} is not a checkpoint directory of Spark: it is a store of Seamark",
            hint=f"See what is in it: seamark list {shlex.quote(url)}",
        )
    is_query = "metadata" in listing.entries and '"id"' in (listing.read_text("metadata") or "")
    if not is_query:
        what = "it is empty" if not listing.entries else "it has no metadata, offsets or commits"
        raise CheckpointNotFoundError(
            f"this is not a checkpoint directory of Spark: {what}",
            where=url,
            hint="Give the checkpointLocation of a streaming query.",
        )


def _with_outlook(inspection: Inspection, findings: list[Finding]) -> Inspection:
    """The inspection with its findings in order, each with what to do, and what follows."""
    url = shlex.quote(inspection.url)
    by_place: dict[tuple[Code, str], Finding] = {}
    for finding in findings:
        advice = finding.advice or (_way_back(inspection) if finding.stops else "")
        known = replace(finding, advice=advice.replace(" PATH ", f" {url} "))
        by_place.setdefault((finding.code, shown(finding.path)), cleaned(known))
    ordered = sorted(by_place.values(), key=lambda finding: _ORDER.index(finding.severity))
    logs = Logs(offsets=inspection.offsets, commits=inspection.commits)
    return replace(inspection, findings=ordered, would_do=outlook(logs, ordered))


def _way_back(inspection: Inspection) -> str:
    """How to get out of lost state."""
    earlier = [batch for batch in inspection.restorable if batch != inspection.committed]
    if earlier:
        return f"Roll back: seamark spark rollback PATH --to-batch {earlier[-1]}"
    return (
        "Nothing in this directory can be rolled back to. Restore a snapshot of it, or start the "
        "query with a new checkpointLocation."
    )


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
    newest = newest_entries(listing, list(sources))
    known = {finding.path for finding in logs.findings}
    batches = []
    for batch in logs.commits[-_MOST_BATCHES:]:
        entry = logs.entries.get(batch)
        if entry is None or (batch > 0 and batch - 1 not in logs.entries):
            continue
        if f"commits/{batch}" in known or (batch + 1 == logs.restart and not complete):
            continue
        if not all(batch + 1 in versions for versions in loadable):
            continue
        read = positions(entry, newest) if sources else {}
        if all(_has_entries(log, read.get(name)) for name, log in sources.items()):
            batches.append(batch)
    return batches


def _has_entries(log: LogNames, last: int | None) -> bool:
    """Whether a source's log can be made to end at an entry."""
    if last is None or last < 0 or log.compacted[-1:] >= (last,):
        return True
    base = log.compacted[-1] if log.compacted else -1
    # they are ascending, and every batch asks
    plain = bisect_right(log.plain, last) - bisect_right(log.plain, base)
    return plain == last - base
