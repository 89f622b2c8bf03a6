"""The file sink's ``_spark_metadata``: which files of its folder belong to the output.

Entry k lists what batch k of the query has added; the sink drops every batch that its log already
has. So a query that is to run batches again needs the log without them. Lines do not say which
batch they are of: what a compaction has replaced cannot be separated again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from seamark._common.json_documents import UNREADABLE
from seamark._common.text import ranges_text
from seamark.checkpoint_dir.file_logs.compactions import (
    DEFAULT_INTERVAL,
    LogNames,
    entry_name,
    entry_number,
    first_missing,
    is_accepted,
    known_interval,
    laid_out,
    lines_of,
    parse_names,
    pinned_interval,
    text_of,
)
from seamark.errors import DamageError, RefusedError

_NEW_FOLDER: Final = (
    "let the query write to a new folder, which you give with --new-file-sink OUT instead"
)


@dataclass(frozen=True)
class SinkRewind:
    """What makes a sink's log end at a batch. Write first, then remove in the order given."""

    to_batch: int
    keep: tuple[str, ...]
    """Entries that stay as they are."""
    remove: tuple[str, ...]
    """Entries to take away, newest first."""
    write: Mapping[str, str]
    """Compactions that a restart will ask for, made again from the entries: name → text."""
    unlisted: tuple[str, ...]
    """Paths of data files that the log no longer names afterwards; they stay where they are."""


class _SinkLine(msgspec.Struct):
    path: str
    size: int
    action: str


def rewound(names: Collection[str], read: Callable[[str], str], to_batch: int) -> SinkRewind:
    """How to make the log of a file sink end at ``to_batch``; -1 for an empty one.

    :class:`RefusedError` when the entries up to it are gone, or the log does not reach it;
    :class:`DamageError` when one cannot be read. What ``read`` raises passes through.
    """
    log = parse_names(names)
    if log.newest < to_batch:
        raise RefusedError(
            f"the sink's log ends at batch {log.newest}, before batch {to_batch}",
            hint="Is this the folder that the query writes to?",
        )
    kept = LogNames(
        tuple(at for at in log.plain if at <= to_batch),
        tuple(at for at in log.compacted if at <= to_batch),
    )
    base = kept.compacted[-1] if kept.compacted else -1
    missing = first_missing(kept.plain, base + 1, to_batch)
    if missing is not None:
        raise RefusedError(
            f"the sink's log cannot go back to batch {to_batch}: entry {missing} is gone, and"
            " the compaction that replaced it does not say which files are of which batch",
            hint=_possible(log),
        )
    listed = _lines_at(log, read, log.newest)
    lines = _lines_at(kept, read, to_batch)
    remaining = {_path(line) for line in lines}
    unlisted = dict.fromkeys(path for line in listed if (path := _path(line)) not in remaining)
    write = _asked_for(kept, read, to_batch, known_interval(log.compacted))
    replaced = {name.removesuffix(".compact") for name in write}
    numbers = {name: at for name in names if (at := entry_number(name)) is not None}
    ours = sorted(numbers, key=numbers.__getitem__, reverse=True)
    stays = {name for name in ours if numbers[name] <= to_batch} - replaced
    return SinkRewind(
        to_batch,
        tuple(name for name in reversed(ours) if name in stays),
        tuple(name for name in ours if name not in stays),
        write,
        tuple(unlisted),
    )


def with_empty_batch(
    names: Collection[str], read: Callable[[str], str], batch: int, setting: int | None = None
) -> SinkRewind:
    """How to make a log that ends before ``batch`` end with it, as if it had added no file.

    ``setting`` is the interval that the query's session asks for, which counts for as long as the
    log does not tell one. Nothing is left to write when the entry is there.
    :class:`RefusedError` when the log does not end there, or Spark could not read it;
    :class:`DamageError` when an entry cannot be read. What ``read`` raises passes through.
    """
    log = parse_names(names)
    before = LogNames(
        tuple(at for at in log.plain if at < batch), tuple(at for at in log.compacted if at < batch)
    )
    if log.newest > batch or before.newest != batch - 1:
        raise RefusedError(
            f"the sink's log ends at batch {log.newest}, and batch {batch} is the new one",
            hint="Is this the folder that the query writes to? Its log has to end with the batch "
            "before the new one.",
        )
    base = before.compacted[-1] if before.compacted else -1
    missing = first_missing(before.plain, base + 1, batch - 1)
    if missing is not None:
        raise RefusedError(
            f"entry {missing} of the sink's log is gone",
            hint="Spark wants it when it compacts the log, and ends the query "
            "(BATCH_METADATA_NOT_FOUND). Let the query go on in a new folder first: seamark spark "
            f"rollback PATH --to-batch {batch - 1} --new-file-sink OUT --yes",
        )
    is_compacted = _is_compaction(before.compacted, batch, setting)
    lines = _lines_at(before, read, batch - 1) if is_compacted else []
    for line in lines:
        _path(line)
    entry = {entry_name(batch, is_compacted): text_of(lines)}
    there = {name: read(name) for name in names if entry_number(name) == batch}
    if there and there != entry:
        raise RefusedError(
            f"the sink's log has another entry of batch {batch} already: {min(there)}",
            hint="Is this the folder that the query writes to? If a command was interrupted that "
            "had another --compact-interval, repeat it with that one.",
        )
    keep = tuple(name for name in names if entry_number(name) is not None)
    return SinkRewind(batch, keep, (), {} if there else entry, ())


def _is_compaction(compacted: tuple[int, ...], batch: int, setting: int | None) -> bool:
    """Whether a restart asks for a compaction at the batch that comes next in a log."""
    settings = [setting or DEFAULT_INTERVAL]
    if setting is None and len(compacted) == 1:
        settings.append(compacted[0] + 1)  # what the log was begun with
    for needed in (settings, settings[-1:]):
        for more in ((), (batch,)):
            if all(is_accepted((*compacted, *more), batch, each) for each in needed):
                return bool(more)
    raise RefusedError(
        f"Spark would not find every entry of the sink's log with an interval of {settings[-1]}",
        hint="Give the query's spark.sql.streaming.fileSink.log.compactInterval with "
        "--compact-interval.",
    )


def begun_after(names: Collection[str], read: Callable[[str], str], batch: int) -> SinkRewind:
    """The log of a new folder that a query continues in after ``batch``: empty entries up to it.

    Without them Spark ends the query at the next compaction, or cannot read the folder.
    ``names`` are what is there; :class:`RefusedError` when it is the log of something else.
    """
    layout = laid_out(batch, pinned_interval(batch))
    entries = {
        **{entry_name(at, True): text_of([]) for at in layout.compacted},
        **{entry_name(at, False): text_of([]) for at in layout.plain},
    }
    ours = {name for name in names if entry_number(name) is not None}
    other = [name for name in ours if name not in entries or read(name) != entries[name]]
    if other:
        raise RefusedError(
            f"the folder is not new: it has the log of a file sink, with entry {min(other)}",
            hint="Give another folder, or --file-sink for the one that the query writes to.",
        )
    write = {name: text for name, text in entries.items() if name not in ours}
    return SinkRewind(batch, tuple(ours), (), write, ())


def _asked_for(
    kept: LogNames, read: Callable[[str], str], last: int, interval: int | None
) -> dict[str, str]:
    """The compactions that a restart would miss in what is kept."""
    settings = (DEFAULT_INTERVAL, interval or DEFAULT_INTERVAL)
    if last < 0 or all(is_accepted(kept.compacted, last, setting) for setting in settings):
        return {}
    base = kept.compacted[-1] if kept.compacted else -1
    # two compactions tell the interval; the wider it is, the less work later
    for step in range(DEFAULT_INTERVAL, 0, -1):
        newest = (last + 1) // step * step - 1
        if newest - step >= max(base, 0):
            pair = {newest - step, newest}.difference(kept.compacted)
            return {entry_name(at, True): text_of(_lines_at(kept, read, at)) for at in sorted(pair)}
    return {entry_name(last, True): text_of(_lines_at(kept, read, last))}


def _lines_at(log: LogNames, read: Callable[[str], str], last: int) -> list[str]:
    """All lines of the log as it was at a batch."""
    base = max((at for at in log.compacted if at <= last), default=-1)
    entries = [(base, True)] if base >= 0 else []
    entries += [(at, False) for at in log.plain if base < at <= last]
    lines: list[str] = []
    for at, compacted in entries:
        name = entry_name(at, compacted)
        lines += lines_of(name, read(name))
    return lines


def _path(line: str) -> str:
    try:
        return msgspec.json.decode(line, type=_SinkLine).path
    except UNREADABLE as error:
        raise DamageError(f"a line of the sink's log cannot be read: {error}") from None


def _possible(log: LogNames) -> str:
    """The batches that the log can still go back to, in words."""
    compacted = set(log.compacted)
    ends: list[int] = []
    reached = -1  # the empty log
    for at in sorted({*log.plain, *log.compacted}):
        if at in compacted or reached == at - 1:
            reached = at
            ends.append(at)
    if not ends:
        return f"It cannot go back at all: {_NEW_FOLDER}."
    return f"It can still go back to batch {ranges_text(ends)}; or {_NEW_FOLDER}."
