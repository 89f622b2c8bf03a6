"""One committed batch of a checkpoint directory, and all that a restart after it needs.

Tests: ``tests/native/test_snapshot.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from seamark._common.json_documents import decode_foreign
from seamark.capture.movers import Contents
from seamark.capture.plans import entry_beyond, newest_entries, planned_after, read_up_to
from seamark.checkpoint_dir.closures import StoreClosure, needs_of
from seamark.checkpoint_dir.file_logs.source_log import entries_up_to
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.checkpoint_dir.schema_paths import ROOT_MARK, with_root
from seamark.checkpoint_dir.state_files import MissingVersion
from seamark.errors import CheckpointNotFoundError, DamageError, RefusedError
from seamark.spark.batch_log import OffsetLogEntry, Plan, parse_commit, parse_offsets

_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_UUID: Final = re.compile(r"(?=.{9,36}\Z)[0-9a-fA-F]+(-[0-9a-fA-F]+){4}")
"""What Java takes for one: each part may be shorter than it should be."""
SWITCH_OFF: Final = (
    "To have all batches in the logs, run the query with asyncProgressTrackingCheckpointIntervalMs "
    "set to 0 for at least two batches."
)


class SkippedBatch(MissingVersion):
    """The batch before is in no log: left out by asynchronous progress tracking, or removed."""


@dataclass(frozen=True, kw_only=True)
class BatchAt:
    """What a directory holds of one batch."""

    batch: int
    query_id: str
    entry: OffsetLogEntry
    next_watermark: int
    logs: Contents
    """Small files, with the directory's own URI replaced by a mark."""
    needs: tuple[StoreClosure, ...]
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
    def state_paths(self) -> list[str]:
        """Every state file that a restart after the batch needs."""
        return [path for need in self.needs for path in need.paths]

    @property
    def paths(self) -> list[str]:
        """Every file that a restart after the batch needs."""
        return [*self.logs, *self.state_paths]

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

    Then a batch is known to be done when the next one was planned. Spark does the same.
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
    newest = newest_entries(files)
    if (beyond := entry_beyond(newest, entry)) is not None:
        raise MissingVersion(
            f"batch {batch} stands at entry {beyond} of a source's log, which is not there or "
            "is not one that Spark writes",
            where=f"{files.uri}/sources",
        )
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
    plan = planned_after(files, batch, newest)
    if plan is None and not is_committed:
        raise MissingVersion(
            f"batch {batch} counts as done because {batch + 1} was planned, and what that was to "
            "read is not known as a whole",
            where=files.uri,
        )
    return BatchAt(
        batch=batch,
        query_id=query_id,
        entry=entry,
        next_watermark=watermark,
        logs=logs,
        needs=needs,
        plan=plan,
        files=files,
    )


def read_query_id(files: CheckpointFiles) -> str:
    """The id that Spark has given the query."""
    text = files.read_text("metadata")
    if text is None and not any(files.has_folder(log) for log in ("offsets", "commits", "state")):
        raise CheckpointNotFoundError("not a checkpoint directory of Spark", where=files.uri)
    if text is None:
        raise DamageError("the directory has no metadata file", where=files.uri)
    try:
        return query_id_in(text)
    except DamageError as error:
        raise DamageError(error.what, where=files.uri) from None


def query_id_in(text: str) -> str:
    """The id in the metadata file; :class:`DamageError` for one that Spark does not start with."""
    try:
        query_id = decode_foreign(text)["id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DamageError("the file with the query's id cannot be read") from None
    if not (isinstance(query_id, str) and _UUID.fullmatch(query_id)):
        raise DamageError("the query's id in the metadata file is no UUID")
    return query_id


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
        is_running = batch + 1 not in files.batches("commits")
        if is_running and files.batches("offsets") == [batch, batch + 1]:
            raise SkippedBatch(
                f"offsets/{batch - 1} was removed when batch {batch + 1} was planned",
                where=files.uri,
                hint="A query that keeps the logs of one batch has two of them only between "
                "batches: try again, or set spark.sql.streaming.minBatchesToRetain to 2 or more.",
            ) from None
        stateful = bool(files.operator_numbers())
        if not is_skipped(batch - 1, files.batches("commits"), stateful=stateful):
            raise
    raise SkippedBatch(
        f"batch {batch - 1} is in neither log, as asynchronous progress tracking leaves out "
        "batches, and a restored query would not start without it",
        where=files.uri,
        hint=SWITCH_OFF,
    )


def _required(files: CheckpointFiles, path: str) -> str:
    text = files.read_text(path)
    if text is None:
        raise MissingVersion(f"{path} is not there", where=files.uri)
    return text


def _descriptions(files: CheckpointFiles, batch: int) -> Contents:
    """What describes the operators, up to this batch: a later start may have changed it."""
    descriptions: Contents = {}
    for path in files.descriptions():
        name = path.rsplit("/", 1)[1]
        since = name.partition("_")[0]
        versioned = "/_metadata/v2/" in path or "/_stateSchema/" in path
        if versioned and _NUMBER.fullmatch(since) and int(since) > batch:
            continue
        descriptions[path] = with_root(path, files.read(path), ROOT_MARK)
    return descriptions


# what the sources note for themselves


def source_entries(files: CheckpointFiles, positions: Mapping[str, int | None]) -> Contents:
    """What the sources' own logs must hold for a restart after a batch that read them so far."""
    entries: Contents = {}
    for folder in files.names("sources"):
        at = positions.get(folder)
        here = f"sources/{folder}"
        names = files.source_entry_names(folder)
        # sources other than Spark's own may keep anything there
        others = set(files.files_below(here)).difference(f"{here}/{name}" for name in names)
        if at is None:
            others.update(f"{here}/{name}" for name in names)
        entries |= {path: files.read(path) for path in sorted(others)}
        if at is None:
            continue

        def read(name: str, here: str = here) -> str:
            return _required(files, f"{here}/{name}")

        entries |= {
            f"{here}/{name}": text.encode() for name, text in entries_up_to(names, at, read).items()
        }
    return entries
