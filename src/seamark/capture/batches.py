"""One committed batch of a checkpoint directory, and all that a restart after it needs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from seamark.capture.readers import Contents
from seamark.capture.restore import own_lines
from seamark.checkpoint_dir.closures import Need, needs_of
from seamark.checkpoint_dir.file_logs.source_log import entries_up_to, is_file_log
from seamark.checkpoint_dir.files import ROOT_MARK, CheckpointFiles, rooted_at
from seamark.checkpoint_dir.state_files import MissingVersion
from seamark.errors import CheckpointNotFoundError, DamageError, RefusedError
from seamark.spark.batch_log import (
    NO_OFFSET,
    OffsetLogEntry,
    Plan,
    log_offset,
    parse_commit,
    parse_offsets,
)

_NUMBER: Final = re.compile(r"[0-9]{1,9}")
SWITCH_OFF: Final = (
    "To have all batches in the logs, run the query with asyncProgressTrackingCheckpointIntervalMs "
    "set to 0 for at least two batches."
)
_MOST_LINES: Final = 12
"""More leaves than this are not told apart; whole logs are taken then."""


class SkippedBatch(MissingVersion):
    """A batch was left out of the logs, as asynchronous progress tracking does."""


@dataclass(frozen=True)
class BatchAt:
    """What a directory holds of one batch."""

    batch: int
    query_id: str
    entry: OffsetLogEntry
    next_watermark: int
    logs: Contents
    """Small files, with the directory's own URI replaced by a mark."""
    needs: tuple[Need, ...]
    """What each state store takes."""
    plan: Plan | None
    """What the batch after it was planned to read, when the directory tells."""
    files: CheckpointFiles

    def read_log(self, path: str) -> bytes | None:
        """A log entry of this or an earlier batch, when it is still there."""
        own = self.logs.get(path)
        if own is not None:
            return own
        text = self.files.read_text(path)
        return None if text is None else text.encode()

    @property
    def paths(self) -> list[str]:
        """Every file that a restart after the batch needs."""
        return [*self.logs, *(path for need in self.needs for path in need.paths)]

    @property
    def source_names(self) -> list[str]:
        """A name for each line of the offset log: its own, or its number."""
        return list(self.entry.names) or [f"source-{n}" for n in range(len(self.entry.lines))]


def newest_committed(files: CheckpointFiles) -> int:
    """The last batch that was finished; :class:`RefusedError` when there is none."""
    commits = files.batches("commits")
    if not commits:
        raise RefusedError(
            "no batch has been committed here yet",
            where=files.uri,
            hint="Wait until the query has finished its first batch."
            if files.batches("offsets")
            else "Is this the checkpointLocation of a streaming query?",
        )
    return commits[-1]


def newest_done(files: CheckpointFiles) -> int:
    """The same where there may be no commit log at all, as up to Spark 2.1.

    Then a batch is known to be done when the next one was planned: Spark, too, takes it so.
    """
    planned = files.batches("offsets")
    if len(planned) > 1 and not files.batches("commits"):
        return planned[-2]
    return newest_committed(files)


def is_skipped(batch: int, commits: Sequence[int], *, stateful: bool) -> bool:
    """Whether a batch that the offset log lacks may have been left out on purpose.

    Asynchronous progress tracking writes both logs for some batches only, and keeps no state.
    """
    return not stateful and batch not in commits


def batch_at(files: CheckpointFiles, batch: int) -> BatchAt:
    """Everything about one batch that was committed.

    :class:`MissingVersion` when state or a log entry that it needs is not there (any more),
    :class:`DamageError` when something cannot be read.
    """
    query_id = read_query_id(files)
    entry = _offsets(files, batch)
    logs: Contents = {"metadata": files.read("metadata")}
    logs[f"offsets/{batch}"] = entry.text.encode()
    is_committed = bool(files.batches("commits"))
    if is_committed:
        commit = _required(files, f"commits/{batch}")
        watermark, _ = parse_commit(commit)
        logs[f"commits/{batch}"] = commit.encode()
    else:
        watermark = _offsets(files, batch + 1).watermark_ms
    if batch > 0:
        logs[f"offsets/{batch - 1}"] = _previous_offsets(files, batch).text.encode()
        if (before := files.read_text(f"commits/{batch - 1}")) is not None:
            logs[f"commits/{batch - 1}"] = before.encode()
    newest = _newest_entries(files)
    logs |= source_entries(files, read_up_to(newest, entry))
    logs |= _descriptions(files, batch)
    needs = tuple(needs_of(files, batch))
    for need in needs:
        if need.problem is not None:
            raise MissingVersion(
                f"state of operator {need.folder.operator}, partition {need.folder.partition}"
                f" ({need.folder.store}) for batch {batch}: {need.problem}",
                where=f"{files.uri}/{need.folder.path}",
            )
    plan = planned_after(files, batch, entry, newest)
    if plan is None and not is_committed:
        raise MissingVersion(
            f"batch {batch} counts as done because {batch + 1} was planned, and what that was to "
            "read is not known as a whole",
            where=files.uri,
        )
    return BatchAt(batch, query_id, entry, watermark, logs, needs, plan, files)


def read_query_id(files: CheckpointFiles) -> str:
    """The id that Spark has given the query."""
    text = files.read_text("metadata")
    if text is None and not any(files.has_folder(log) for log in ("offsets", "commits", "state")):
        raise CheckpointNotFoundError("this is no checkpoint directory of Spark", where=files.uri)
    if text is None:
        raise DamageError("the directory has no metadata file", where=files.uri)
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DamageError("the metadata file cannot be read", where=files.uri) from None


def _offsets(files: CheckpointFiles, batch: int) -> OffsetLogEntry:
    text = _required(files, f"offsets/{batch}")
    try:
        return parse_offsets(text)
    except DamageError as error:
        raise DamageError(f"offsets/{batch}: {error.what}", where=files.uri) from None


def _previous_offsets(files: CheckpointFiles, batch: int) -> OffsetLogEntry:
    """What the batch before was to read: Spark does not start without it."""
    try:
        return _offsets(files, batch - 1)
    except MissingVersion:
        stateful = bool(files.operator_numbers())
        if not is_skipped(batch - 1, files.batches("commits"), stateful=stateful):
            raise
    raise SkippedBatch(
        f"batch {batch - 1} is in neither log, as asynchronous progress tracking leaves out "
        "batches, and a restored query would not start without it",
        where=files.uri,
    )


def _required(files: CheckpointFiles, path: str) -> str:
    text = files.read_text(path)
    if text is None:
        raise MissingVersion(f"{path} is not there", where=files.uri)
    return text


def _descriptions(files: CheckpointFiles, batch: int) -> Contents:
    """What describes the operators, up to this batch: a later start may have changed it."""
    found: Contents = {}
    for path in files.descriptions():
        name = path.rsplit("/", 1)[1]
        since = name.partition("_")[0]
        versioned = "/_metadata/v2/" in path or "/_stateSchema/" in path
        if versioned and _NUMBER.fullmatch(since) and int(since) > batch:
            continue
        data = files.read(path)
        if "/_metadata/v2/" in path:
            data = rooted_at(data.decode(errors="replace"), ROOT_MARK).encode()
        found[path] = data
    return found


# what the sources note for themselves


Newest = Mapping[str, int | None]
"""Folder below ``sources/`` → the last entry of a file source's log; None for another kind."""


def read_up_to(logs: Newest, entry: OffsetLogEntry) -> dict[str, int | None]:
    """Folder below ``sources/`` → how far its log is read at a batch; None for another kind.

    Lines go by the leaves of the plan and folders by distinct sources, so a source that feeds
    several branches has several lines and one folder.
    """
    if entry.names:
        lines = dict(zip(entry.names, entry.lines, strict=True))
        return {
            folder: None if newest is None else position_in(lines.get(folder, NO_OFFSET))
            for folder, newest in logs.items()
        }
    found: dict[str, int | None] = {}
    by_number = {int(folder): folder for folder in logs if _NUMBER.fullmatch(folder)}
    newest_by_number = {number: logs[folder] for number, folder in by_number.items()}
    possible = possible_lines(entry.lines, newest_by_number)
    for number, folder in by_number.items():
        if logs[folder] is None:
            found[folder] = None
            continue
        positions = [
            at for line in possible.get(number, ()) if (at := position_in(line)) is not None
        ]
        # what is too much is read again with the next batch, what is too little is lost
        found[folder] = max(positions, default=logs[folder])
    return found


def position_in(line: str) -> int | None:
    """How far a file source's log is read by a line of the offset log; None for no such line."""
    return -1 if line == NO_OFFSET else log_offset(line)


def _newest_entries(files: CheckpointFiles) -> Newest:
    return {folder: _newest_entry(files, folder) for folder in sorted(files.names("sources"))}


def _newest_entry(files: CheckpointFiles, folder: str) -> int | None:
    """The last entry of a file source's log; None for what another kind of source keeps."""
    entries = files.source_entry_names(folder)
    if not entries:
        return None
    newest = max(entries, key=lambda name: int(name.partition(".")[0]))
    text = files.read_text(f"sources/{folder}/{newest}")
    return int(newest.partition(".")[0]) if text is not None and is_file_log(text) else None


def possible_lines(lines: Sequence[str], newest: Mapping[int, int | None]) -> dict[int, set[str]]:
    """Number of a source → the lines that can be its own.

    Sources are numbered by their first line, lines of one source are equal, and a line of a file
    source names an entry that its log has. ``newest`` is the last entry of each log that is there.
    """
    sources = max(newest, default=-1) + 1
    found: dict[int, set[str]] = {}

    def fits(number: int, line: str) -> bool:
        if number not in newest:
            return log_offset(line) is None
        last, at = newest[number], position_in(line)
        return at is None or line == NO_OFFSET if last is None else at is not None and at <= last

    def assign(rest: int, chosen: tuple[str, ...]) -> bool:
        if rest == len(lines):
            if len(chosen) < sources:
                return False
            for number, line in enumerate(chosen):
                found.setdefault(number, set()).add(line)
            return True
        line = lines[rest]
        again = line in chosen and assign(rest + 1, chosen)
        fresh = fits(len(chosen), line) and assign(rest + 1, (*chosen, line))
        return again or fresh

    if len(lines) <= _MOST_LINES:
        assign(0, ())
    return found


def source_entries(files: CheckpointFiles, positions: Mapping[str, int | None]) -> Contents:
    """What the sources' own logs must hold for a restart after a batch that read them so far."""
    found: Contents = {}
    for folder in files.names("sources"):
        at = positions.get(folder)
        here = f"sources/{folder}"
        names = files.source_entry_names(folder)
        # sources other than Spark's own may keep anything there
        others = set(files.files_below(here)).difference(f"{here}/{name}" for name in names)
        if at is None:
            others.update(f"{here}/{name}" for name in names)
        found |= {path: files.read(path) for path in sorted(others)}
        if at is None:
            continue

        def read(name: str, here: str = here) -> str:
            return _required(files, f"{here}/{name}")

        found |= {
            f"{here}/{name}": text.encode() for name, text in entries_up_to(names, at, read).items()
        }
    return found


def planned_after(
    files: CheckpointFiles, batch: int, entry: OffsetLogEntry, newest: Newest
) -> Plan | None:
    """What the next batch was planned to read; None when that is not known as a whole."""
    text = files.read_text(f"offsets/{batch + 1}")
    try:
        following = parse_offsets(text) if text is not None else None
    except DamageError:
        return None
    if text is None or following is None or following.names != entry.names:
        return None
    before, after = read_up_to(newest, entry), read_up_to(newest, following)
    sources: dict[str, str] = {}
    for folder, last in after.items():
        first = before.get(folder)
        if last is None:
            continue
        for number in range((-1 if first is None else first) + 1, last + 1):
            found = _own_entry(files, f"sources/{folder}/{number}")
            if found is None:
                return None
            sources |= found
    return Plan(text, sources)


def _own_entry(files: CheckpointFiles, path: str) -> Mapping[str, str] | None:
    for name in (path, f"{path}.compact"):
        if (text := files.read_text(name)) is not None:
            return {name: own_lines(name, text)}
    return None
