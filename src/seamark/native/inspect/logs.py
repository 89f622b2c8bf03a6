"""The offset log and the commit log: what they say, where they break off, what contradicts.

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from seamark._common.json_documents import decode_foreign
from seamark.capture.batches import SWITCH_OFF, is_skipped, query_id_in
from seamark.errors import DamageError
from seamark.native.inspect.cached_listing import TROUBLE, CachedListing
from seamark.native.inspect.findings import Code, Finding, damage, info, numbers_text, warning
from seamark.spark.batch_log import (
    CommitIds,
    OffsetLogEntry,
    log_offset,
    parse_commit,
    parse_offsets,
)
from seamark.spark.pinned_settings import foreign_setting

_MOST_READ: Final = 250
"""Newest entries of each log that are read; Spark keeps 100 unless configured otherwise."""


@dataclass(frozen=True, kw_only=True)
class Logs:
    """What the two logs hold."""

    offsets: list[int]
    commits: list[int]
    query_id: str | None = None
    entries: dict[int, OffsetLogEntry] = field(default_factory=dict)
    """The newest ones, as far as they can be read."""
    ids: dict[int, CommitIds] = field(default_factory=dict)
    """State version → ids of its files, in checkpoint format 2."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def planned(self) -> int | None:
        """The newest batch that was planned."""
        return self.offsets[-1] if self.offsets else None

    @property
    def committed(self) -> int | None:
        """The newest batch that was finished."""
        return self.commits[-1] if self.commits else None

    @property
    def restart(self) -> int:
        """The batch that a restart runs first."""
        if self.planned is None:
            return 0
        return self.planned + 1 if self.planned == self.committed else self.planned

    @property
    def newest(self) -> OffsetLogEntry | None:
        """The newest entry of the offset log that can be read."""
        return self.entries[max(self.entries)] if self.entries else None

    @property
    def checkpoint_format(self) -> int:
        """2 when state files carry ids, 1 otherwise."""
        return 2 if any(self.ids.values()) else 1


def read_logs(listing: CachedListing) -> Logs:
    """Both logs, the query's id, and what is wrong with them."""
    offsets, commits = listing.batches("offsets"), listing.batches("commits")
    paths = [f"offsets/{n}" for n in offsets[-_MOST_READ:]]
    paths += [f"commits/{n}" for n in commits[-_MOST_READ:]]
    listing.fetch(["metadata", *paths])
    findings: list[Finding] = []
    query_id = _query_id(listing, findings)
    logs = Logs(offsets=offsets, commits=commits, query_id=query_id, findings=findings)
    for number in offsets[-_MOST_READ:]:
        try:
            logs.entries[number] = parsed_offsets(_text(listing, f"offsets/{number}"))
        except DamageError as error:
            needed = number >= offsets[-1] - 1
            findings.append(_unreadable(Code.OFFSETS_UNREADABLE, number, error.what, needed))
    for number in commits[-_MOST_READ:]:
        try:
            commit_ids = parsed_commit(_text(listing, f"commits/{number}"))
        except DamageError as error:
            needed = number == commits[-1]
            findings.append(_unreadable(Code.COMMIT_UNREADABLE, number, error.what, needed))
            continue
        if commit_ids is not None:
            logs.ids[number + 1] = commit_ids
    stateful = bool(listing.operator_numbers())
    findings += _offset_gaps(logs, stateful)
    findings += _commit_gaps(logs)
    findings += _backwards(logs.entries)
    findings += _foreign_settings(logs.entries)
    return logs


def _query_id(listing: CachedListing, findings: list[Finding]) -> str | None:
    advice = (
        "Put the file back, or write one with a new id: it has the one line "
        '{"id":"<any UUID>"}. Sinks that go by the query\'s id take it for another query then.'
    )
    if "metadata" not in listing.entries:
        error = "STREAMING_CHECKPOINT_MISSING_METADATA_FILE (Spark 4.2 or newer)"
        what = "the file with the query's id is not there"
        findings.append(damage(Code.METADATA_MISSING, "metadata", what, advice, error))
        return None
    try:
        return query_id_in(_text(listing, "metadata"))
    except DamageError as damaged:
        what = damaged.what
    if not listing.is_there("metadata"):
        what = "the file with the query's id is empty"
    error = "an error about the metadata file"
    findings.append(damage(Code.METADATA_UNREADABLE, "metadata", what, advice, error))
    return None


def _text(listing: CachedListing, path: str) -> str:
    data = listing.data(path)
    if data is None:
        raise DamageError("it vanished while it was read")
    if not data:
        raise DamageError("it is empty")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DamageError("it is not text") from None


def parsed_offsets(text: str) -> OffsetLogEntry:
    """An entry of the offset log; :class:`DamageError` for anything else."""
    try:
        entry = parse_offsets(text)
        # checked here, so that nothing fails on them later
        _ = entry.watermark_ms, entry.state_partitions
    except TROUBLE as error:
        raise DamageError(f"its metadata cannot be read: {error}") from None
    if not all(_is_whole(line) for line in entry.lines):
        raise DamageError("an offset in it is torn")
    if not any(entry.lines):
        raise DamageError("it has no offset of any source")
    return entry


def _is_whole(line: str) -> bool:
    """A line that begins like JSON has to be JSON; what a source writes is its own affair."""
    if line[:1] not in ("{", "["):
        return True
    try:
        decode_foreign(line)
    except (ValueError, RecursionError, DamageError):
        return False
    return True


def parsed_commit(text: str) -> CommitIds | None:
    """The ids of the state files that a commit names; :class:`DamageError` for anything else."""
    try:
        return parse_commit(text)[1]
    except TROUBLE as error:
        raise DamageError(f"it cannot be read: {error}") from None


def _unreadable(code: Code, number: int, why: str, needed: bool) -> Finding:
    log = "offsets" if code == Code.OFFSETS_UNREADABLE else "commits"
    stops = f"an error about the log entry {log}/{number}" if needed else None
    advice = (
        f"Roll back to a batch before {number}: seamark spark rollback PATH --to-batch "
        f"{max(number - 1, 0)}"
        if needed
        else "A restart does not read it; rolling back to that batch is not possible."
    )
    return damage(code, f"{log}/{number}", f"batch {number}: {why}", advice, stops)


def _missing_between(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last number of each hole."""
    for before, after in pairwise(numbers):
        if after != before + 1:
            yield before + 1, after - 1


def _span(first: int, last: int) -> str:
    return f"batch {first}" if first == last else f"batches {first} to {last}"


def _offset_gaps(logs: Logs, stateful: bool) -> Iterator[Finding]:
    newest = logs.planned
    if newest is None:
        return
    committed = set(logs.commits)
    for first, last in _missing_between(logs.offsets):
        path = f"offsets/{first}"
        where = f"{_span(first, last)} of the offset log: not there, though later ones are"
        if last == newest - 1:
            yield _previous_missing(logs, stateful, max(first - 1, 0))
        elif stateful or first in committed or last in committed:
            advice = "A restart works; rolling back to those batches is not possible."
            yield damage(Code.OFFSETS_GAP, path, where, advice)
        else:
            # asynchronous progress tracking writes some batches only
            yield info(Code.OFFSETS_GAP, path, f"{where} (asynchronous progress tracking?)")
    if len(logs.offsets) == 1 and newest > 0:
        yield _previous_missing(logs, stateful, None)


def _previous_missing(logs: Logs, stateful: bool, earlier: int | None) -> Finding:
    """The entry before the newest one is not there; ``earlier`` is the last one before it."""
    newest = logs.offsets[-1]
    lost = newest - 1
    error = f'"batch {lost} doesn\'t exist"'
    if logs.commits and logs.commits[-1] < newest:
        error = f'"Previous batch {lost} not found in offset log" (before Spark 4.2: {error})'
    path = f"offsets/{lost}"
    if is_skipped(lost, logs.commits, stateful=stateful):
        return warning(
            Code.OFFSETS_PREVIOUS_MISSING,
            path,
            f"batch {lost} is in neither log, as asynchronous progress tracking leaves out "
            f"batches: without that option a restart fails with {error}",
            SWITCH_OFF,
        )
    advice = "Restore the file from a copy of the directory."
    if earlier is not None:
        advice = f"Restore the file, or roll back: seamark spark rollback PATH --to-batch {earlier}"
    what = f"batch {lost} is not in the offset log: a restart needs it to run {newest}"
    return damage(Code.OFFSETS_PREVIOUS_MISSING, path, what, advice, error)


def _commit_gaps(logs: Logs) -> Iterator[Finding]:
    known = set(logs.offsets)
    oldest = logs.offsets[0] if logs.offsets else 0
    # a purge that was cut short leaves commits of older batches behind, which does no harm
    orphans = [n for n in logs.commits if n not in known and n >= oldest]
    newer = [n for n in orphans if logs.planned is None or n > logs.planned]
    if newer:
        again = "start over at batch 0" if logs.planned is None else f"run {logs.planned} again"
        yield damage(
            Code.COMMIT_WITHOUT_OFFSETS,
            f"commits/{newer[0]}",
            f"batch {numbers_text(newer)} was committed, and the offset log does not have it: a "
            f"restart would {again}",
            "Do not start the query. Restore the missing offsets, or the whole directory.",
        )
    advice = "A restart does not read it; rolling back to those batches is not possible."
    for first, last in _missing_between(logs.commits):
        if first in known:  # asynchronous progress tracking writes some batches only
            what = f"{_span(first, last)} of the commit log: not there, though later ones are"
            yield warning(Code.COMMITS_GAP, f"commits/{first}", what, advice)
    after = logs.commits[-1] + 1 if logs.commits else 0
    if logs.planned is not None and logs.planned > after and after in known:
        yield warning(
            Code.COMMITS_GAP,
            f"commits/{after}",
            f"{_span(after, logs.planned - 1)}: planned and never committed, though "
            f"{logs.planned} was planned after",
            f"A restart runs batch {logs.planned} and takes those before it for done.",
        )


def _foreign_settings(entries: dict[int, OffsetLogEntry]) -> Iterator[Finding]:
    """The newest entry for each setting that Spark's own classes do not explain."""
    told: set[str] = set()
    for number in sorted(entries, reverse=True):
        why = foreign_setting(entries[number].text)
        if why is not None and why not in told:
            told.add(why)
            yield warning(
                Code.SETTINGS_FOREIGN,
                f"offsets/{number}",
                f"a setting is not one that Spark writes there: {why}",
                "Start the query on it only if the class is yours: Spark makes an object of it.",
            )


def _backwards(entries: dict[int, OffsetLogEntry]) -> Iterator[Finding]:
    for before, after in pairwise(sorted(entries)):
        old, new = entries[before], entries[after]
        if old.names != new.names or len(old.lines) != len(new.lines):
            continue
        for number, (a, b) in enumerate(zip(old.lines, new.lines, strict=True)):
            was, now = _positions(a), _positions(b)
            lower = [name for name, at in now.items() if at < was.get(name, at)]
            if lower:
                name = old.names[number] if old.names else str(number)
                part = f" ({lower[0]})" if lower[0] else ""
                yield warning(
                    Code.OFFSETS_BACKWARDS,
                    f"offsets/{after}",
                    f"source {name}{part} goes back from {was[lower[0]]} in batch {before} to "
                    f"{now[lower[0]]} in batch {after}: rows are read again",
                    "Was a topic created again, or an offset file changed by hand?",
                )


def _positions(line: str) -> dict[str, int]:
    """Positions of the kinds of sources that are known to go forward only."""
    if (at := log_offset(line)) is not None:
        return {"": at}
    try:
        value = decode_foreign(line)
    except (ValueError, RecursionError, DamageError):
        return {}
    if isinstance(value, int):
        return {"": value}
    if not isinstance(value, dict) or not value:
        return {}
    positions: dict[str, int] = {}
    for topic, parts in value.items():  # as Kafka's source writes them
        if not isinstance(parts, dict):
            return {}
        for part, at in parts.items():
            if not part.isdigit() or not isinstance(at, int):
                return {}
            positions[f"{topic}-{part}"] = at
    return positions
