"""One committed batch of a checkpoint directory, and all that a restart after it needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from seamark.errors import CheckpointNotFoundError, DamageError, RefusedError
from seamark.sinks.contract import Plan
from seamark.spark.checkpoint_files import ROOT_MARK, CheckpointFiles, rooted_at
from seamark.spark.closures import Need, needs_of
from seamark.spark.logs import NO_OFFSET, OffsetLogEntry, log_offset, parse_commit, parse_offsets
from seamark.spark.native.logs.source_log import entries_up_to
from seamark.spark.readers import Contents
from seamark.spark.restore import own_lines
from seamark.spark.state_files import MissingVersion


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

    def earlier_offsets(self, batch: int) -> str | None:
        """The entry of an earlier batch in the same directory, when it is still there."""
        own = self.logs.get(f"offsets/{batch}")
        return own.decode() if own is not None else self.files.read_text(f"offsets/{batch}")

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


def batch_at(files: CheckpointFiles, batch: int) -> BatchAt:
    """Everything about one batch that was committed.

    :class:`MissingVersion` when state or a log entry that it needs is not there (any more),
    :class:`DamageError` when something cannot be read.
    """
    query_id = read_query_id(files)
    entry = _offsets(files, batch)
    commit = _required(files, f"commits/{batch}")
    watermark, _ = parse_commit(commit)
    logs: Contents = {"metadata": files.read("metadata")}
    logs[f"offsets/{batch}"] = entry.text.encode()
    logs[f"commits/{batch}"] = commit.encode()
    if batch > 0:
        logs[f"offsets/{batch - 1}"] = _offsets(files, batch - 1).text.encode()
        if (before := files.read_text(f"commits/{batch - 1}")) is not None:
            logs[f"commits/{batch - 1}"] = before.encode()
    logs |= source_entries(files, entry)
    logs |= _descriptions(files, batch)
    needs = tuple(needs_of(files, batch))
    for need in needs:
        if need.problem is not None:
            raise MissingVersion(
                f"state of operator {need.folder.operator}, partition {need.folder.partition}"
                f" ({need.folder.store}) for batch {batch}: {need.problem}",
                where=f"{files.uri}/{need.folder.path}",
            )
    plan = planned_after(files, batch, entry)
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
    except (ValueError, KeyError, TypeError):
        raise DamageError("the metadata file cannot be read", where=files.uri) from None


def _offsets(files: CheckpointFiles, batch: int) -> OffsetLogEntry:
    text = _required(files, f"offsets/{batch}")
    try:
        return parse_offsets(text)
    except DamageError as error:
        raise DamageError(f"offsets/{batch}: {error.what}", where=files.uri) from None


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
        if versioned and since.isdigit() and int(since) > batch:
            continue
        data = files.read(path)
        if "/_metadata/v2/" in path:
            data = rooted_at(data.decode(errors="replace"), ROOT_MARK).encode()
        found[path] = data
    return found


# what the sources note for themselves


def read_up_to(files: CheckpointFiles, entry: OffsetLogEntry) -> dict[str, int | None]:
    """Folder below ``sources/`` → how far its log is read at a batch; None for another kind."""
    folders = sorted(files.names("sources"))
    by_line = [log_offset(line) for line in entry.lines]
    if entry.names:
        named = dict(zip(entry.names, zip(by_line, entry.lines, strict=True), strict=True))
        return {folder: _position(*named.get(folder, (None, ""))) for folder in folders}
    logs = [at for at in by_line if at is not None]
    counted = [folder for folder in folders if folder.isdigit() and int(folder) < len(by_line)]
    if len(logs) > sum(by_line[int(folder)] is not None for folder in counted):
        # one source that feeds several branches has several lines and one folder
        furthest = max(logs)
        return {folder: furthest if _is_file_log(files, folder) else None for folder in folders}
    return {folder: _position(by_line[int(folder)], entry.lines[int(folder)]) for folder in counted}


def _position(offset: int | None, line: str) -> int | None:
    return -1 if offset is None and line == NO_OFFSET else offset


def _is_file_log(files: CheckpointFiles, folder: str) -> bool:
    for name in files.names(f"sources/{folder}"):
        if name[0] != ".":
            return '"batchId":' in (files.read_text(f"sources/{folder}/{name}") or "")
    return False


def source_entries(files: CheckpointFiles, entry: OffsetLogEntry) -> Contents:
    """What the sources' own logs must hold for a restart after a batch."""
    found: Contents = {}
    positions = read_up_to(files, entry)
    for folder in files.names("sources"):
        at = positions.get(folder)
        here = f"sources/{folder}"
        names = [path.rsplit("/", 1)[1] for path in _entries_in(files, here)]
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


def _entries_in(files: CheckpointFiles, folder: str) -> list[str]:
    return [path for path in files.source_entries() if path.startswith(f"{folder}/")]


def planned_after(files: CheckpointFiles, batch: int, entry: OffsetLogEntry) -> Plan | None:
    """What the next batch was planned to read; None when that is not known as a whole."""
    text = files.read_text(f"offsets/{batch + 1}")
    try:
        following = parse_offsets(text) if text is not None else None
    except DamageError:
        return None
    if text is None or following is None or following.names != entry.names:
        return None
    before, after = read_up_to(files, entry), read_up_to(files, following)
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
