"""What Spark has planned for a batch: read from a directory, and put into one.

An entry of the offset log, and what the sources' own logs say about the same batch. Spark names the
folders below ``sources/`` by number or by name, and the offset log has a line for each leaf of the
plan. Which line belongs to which folder is known to a pipeline (:func:`read_by_lines`) and has to
be derived for any other query (:func:`read_up_to`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

from seamark.capture.declared_inputs import Inputs, require_declared
from seamark.capture.planned_compactions import is_compaction, planned_logs
from seamark.capture.planned_files import IF_IT_CANNOT_BE, Modified, modified_by, planned_files
from seamark.checkpoint_dir.file_logs.source_log import is_file_log
from seamark.checkpoint_dir.files import CheckpointFiles, newest_source_entry
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError, SeamarkError
from seamark.spark.batch_log import (
    NO_OFFSET,
    OffsetLogEntry,
    Plan,
    log_lines,
    log_offset,
    parse_offsets,
)
from seamark.spark.session import IGNORE_MISSING_FILES
from seamark.store.index_parts import check_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLANNED: Final = re.compile(r"sources/[^/]+/(?:0|[1-9][0-9]{0,17})(?:\.compact)?")

_Positions = Callable[[OffsetLogEntry], Mapping[str, int | None]]
"""Folder below ``sources/`` → how far its log is read; None for a source without such a log."""
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
MOST_LINES: Final = 12
"""With more leaves than this, lines are not assigned to sources, and whole logs are taken."""
Newest = Mapping[str, int | None]
"""Folder below ``sources/`` → the last entry of a file source's log; None for another kind."""


def read_plan(files: CheckpointFiles, batch: int, first_lines: Sequence[int]) -> Plan | None:
    """What Spark has planned for a batch of a pipeline; None when its entry is torn or missing.

    ``first_lines`` says which line of the offset log each folder below ``sources/`` belongs to.
    """
    folders = sorted(files.names("sources"))
    return _read(
        files,
        batch,
        lambda entry: read_by_lines(folders, entry.lines, first_lines),
        lambda before: _not_begun(folders, before.lines, first_lines),
    )


def planned_after(files: CheckpointFiles, batch: int, newest: Newest) -> Plan | None:
    """What the batch after this one was planned to read; None unless every part of it is known."""
    plan = _read(files, batch + 1, lambda entry: read_up_to(newest, entry), require_all=True)
    if plan is not None and entry_beyond(newest, parse_offsets(plan.offsets)) is not None:
        return None
    return plan


def _read(
    files: CheckpointFiles,
    batch: int,
    positions: _Positions,
    not_begun: Callable[[OffsetLogEntry], Collection[str]] = lambda _: (),
    *,
    require_all: bool = False,
) -> Plan | None:
    text = files.read_text(f"offsets/{batch}")
    previous = files.read_text(f"offsets/{batch - 1}") if batch > 0 else None
    try:
        entry = parse_offsets(text or "")
        before = parse_offsets(previous) if previous is not None else None
    except DamageError:
        return None
    if before is not None and before.names != entry.names:
        return None
    first_read = positions(before) if before is not None else {}
    begin_here = not_begun(before) if before is not None else ()
    sources: dict[str, str] = {}
    for folder, last in positions(entry).items():
        first = first_read.get(folder)
        first = -1 if first is None else first
        numbers: set[int] = set()
        for number, path in _numbered(files, folder):
            # a source without a log of its own notes once where it began
            begins = batch == 0 or folder in begin_here
            is_new = begins if last is None else first < number <= last
            if is_new and (noted := files.read_text(path)) is not None:
                sources[path] = own_lines(path, noted)
                numbers.add(number)
        if require_all and last is not None and len(numbers) < last - first:
            return None
    return Plan(text or "", sources)


def _numbered(files: CheckpointFiles, folder: str) -> list[tuple[int, str]]:
    """The entries of one source's log: their numbers and paths, ascending."""
    return sorted(
        (int(name.partition(".")[0]), f"sources/{folder}/{name}")
        for name in files.source_entry_names(folder)
    )


def install_plan(copy: WorkingCopy, batch: int, plan: Plan, inputs: Inputs = ()) -> None:
    """Make Spark run a batch on exactly the rows that it was planned for before.

    :class:`DamageError`, and nothing is written, when the plan holds anything but entries of logs,
    or not all that the batch reads; :class:`RefusedError` when it reads what is in none of the
    ``inputs``, or when its compactions would repeat far more than it holds.
    """
    for path in plan.sources:
        if not _PLANNED.fullmatch(check_path(path)):
            raise DamageError(f"a plan holds {path!r}, which is no entry of a source's log")
    require_declared(plan, inputs, copy.read_text(f"offsets/{batch - 1}"))
    logs = planned_logs(copy, plan.sources)
    for path, entry in plan.sources.items():
        if not is_compaction(path):
            copy.write(path, entry.encode())
    for log in logs:
        for path, whole in log.texts():
            copy.write(path, whole.encode())
    copy.write(f"offsets/{batch}", plan.offsets.encode())


def own_lines(path: str, entry: str) -> str:
    """Of a source's log entry only what its own batch added: a compaction repeats all others."""
    if not is_compaction(path):
        return entry
    number = path.rsplit("/", 1)[1].removesuffix(".compact")
    head, *lines = log_lines(entry) or [""]
    return "\n".join([head, *(line for line in lines if f'"batchId":{number}}}' in line)])


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
    positions_by_folder: dict[str, int | None] = {}
    by_number = _by_number(logs)
    possible = possible_lines(entry.lines, {n: logs[folder] for n, folder in by_number.items()})
    for number, folder in by_number.items():
        if logs[folder] is None:
            positions_by_folder[folder] = None
            continue
        positions = [
            at for line in possible.get(number, ()) if (at := position_in(line)) is not None
        ]
        # what is too much is read again with the next batch, what is too little is lost
        positions_by_folder[folder] = max(positions, default=logs[folder])
    return positions_by_folder


def _by_number(logs: Newest) -> dict[int, str]:
    return {int(folder): folder for folder in logs if _NUMBER.fullmatch(folder)}


def entry_beyond(logs: Newest, entry: OffsetLogEntry) -> int | None:
    """An entry of a source's log that a batch has read and none of the ``logs`` has, if any.

    Spark writes an entry before the offsets that name it. So these were written after the logs had
    been listed.
    """
    if entry.names:
        return _entry_beyond_named(logs, entry)
    needed = sorted({at for line in entry.lines if (at := log_offset(line)) is not None})[::-1]
    reached = sorted((at for at in logs.values() if at is not None), reverse=True)
    for at, newest in zip_longest(needed, reached, fillvalue=-1):
        if at > newest:
            return at
    by_number = {number: logs[folder] for number, folder in _by_number(logs).items()}
    if not needed or possible_lines(entry.lines, by_number):
        return None
    longer = {n: None if at is None else max(at, needed[0]) for n, at in by_number.items()}
    return needed[0] if possible_lines(entry.lines, longer) else None


def _entry_beyond_named(logs: Newest, entry: OffsetLogEntry) -> int | None:
    """The same where each line says whose it is. A source without rows so far has no log yet."""
    for name, line in zip(entry.names, entry.lines, strict=True):
        at, newest = log_offset(line), logs.get(name)
        if at is not None and at > (-1 if newest is None else newest):
            return at
    return None


def position_in(line: str) -> int | None:
    """How far a file source's log is read by a line of the offset log; None for no such line."""
    return -1 if line == NO_OFFSET else log_offset(line)


def newest_entries(files: CheckpointFiles) -> Newest:
    """The last entry of every source's log."""
    return {folder: _newest_entry(files, folder) for folder in sorted(files.names("sources"))}


def _newest_entry(files: CheckpointFiles, folder: str) -> int | None:
    """The last entry of a file source's log; None for what another kind of source keeps."""
    newest = newest_source_entry(files.names(f"sources/{folder}"))
    if newest is None:
        return None
    text = files.read_text(f"sources/{folder}/{newest}")
    return int(newest.partition(".")[0]) if text is not None and is_file_log(text) else None


def possible_lines(lines: Sequence[str], newest: Mapping[int, int | None]) -> dict[int, set[str]]:
    """Number of a source → the lines that can be its own.

    Sources are numbered by their first line, lines of one source are equal, and a line of a file
    source names an entry that its log has. ``newest`` is the last entry of each log that is there.
    """
    if len(lines) > MOST_LINES:
        return {}
    sources = max(newest, default=-1) + 1
    offsets = {line: (log_offset(line), position_in(line)) for line in {*lines}}
    # the first of several equal lines is that of a new source: only the others may be of an old one
    is_repeated = [line in lines[:place] for place, line in enumerate(lines)]

    def fits(number: int, line: str) -> bool:
        offset, at = offsets[line]
        if number not in newest:
            return offset is None
        last = newest[number]
        return at is None or line == NO_OFFSET if last is None else at is not None and at <= last

    @cache
    def ends_well(place: int, sources_before: int) -> bool:
        if place == len(lines):
            return sources_before >= sources
        return (is_repeated[place] and ends_well(place + 1, sources_before)) or (
            fits(sources_before, lines[place]) and ends_well(place + 1, sources_before + 1)
        )

    possible: dict[int, set[str]] = {}
    reached = {0} if ends_well(0, 0) else set()
    for place, line in enumerate(lines):
        following: set[int] = set()
        for number in reached:
            if is_repeated[place] and ends_well(place + 1, number):
                following.add(number)
            if fits(number, line) and ends_well(place + 1, number + 1):
                possible.setdefault(number, set()).add(line)
                following.add(number + 1)
        reached = following
    return possible


def read_by_lines(
    folders: Iterable[str], lines: Sequence[str], first_lines: Sequence[int]
) -> dict[str, int | None]:
    """The same where ``first_lines`` says which line belongs to each folder."""
    # a source that is joined with itself has a folder that no name leads to
    highest = max((at for line in lines if (at := log_offset(line)) is not None), default=None)

    def position(folder: str) -> int | None:
        line = _line_of(folder, lines, first_lines)
        return highest if line is None else log_offset(line)

    return {folder: position(folder) for folder in folders}


def _not_begun(
    folders: Iterable[str], lines: Sequence[str], first_lines: Sequence[int]
) -> list[str]:
    """Folders of sources that were added after a batch, by the lines of that batch."""
    return [folder for folder in folders if _line_of(folder, lines, first_lines) == NO_OFFSET]


def _line_of(folder: str, lines: Sequence[str], first_lines: Sequence[int]) -> str | None:
    """The line that belongs to a folder; None when that is not known."""
    is_known = _NUMBER.fullmatch(folder) and int(folder) < len(first_lines)
    return lines[first_lines[int(folder)]] if is_known and len(lines) > max(first_lines) else None


# files that a batch was planned to read


PUT_BACK: Final = (
    "Put it back, with the time that it had: the epoch runs again on exactly the rows that it was "
    f"planned for. Spark itself would take it for a file without rows. {IF_IT_CANNOT_BE}"
)


def require_planned_files(
    spark: SparkSession,
    plan: Plan,
    epoch: int,
    listed: Callable[[], int | None],
    hint: str = PUT_BACK,
    may_be_gone: Collection[str] = (),
) -> None:
    """:class:`SeamarkError` when a file of the plan is gone, unless Spark is to ignore that.

    Spark lists the files of a planned batch again and treats a missing one as empty: the epoch
    would be decided, and its rows lost, without an error (seen on 4.3). ``listed`` tells how many
    it has found. Files that only the logs in the folders ``may_be_gone`` name are not looked for.
    """
    if spark.conf.get(IGNORE_MISSING_FILES, None) == "true":
        return
    needed = _without(plan, may_be_gone)
    gone = missing_files(needed) or missing_elsewhere(plan, needed, listed, modified_by(spark))
    if gone:
        raise SeamarkError(
            f"a file that epoch {epoch} was planned to read is gone",
            where=", ".join(gone[:3]) + (f" and {len(gone) - 3} more" if gone[3:] else ""),
            hint=hint,
        )


def missing_files(plan: Plan) -> list[str]:
    """Local files of the plan that do not exist."""
    return [path for path in local_files(plan) if not os.path.exists(path)]


def _without(plan: Plan, folders: Collection[str]) -> Plan:
    """The plan without the logs in some folders below ``sources``."""
    left_out = tuple(f"sources/{folder}/" for folder in folders)
    kept = {path: text for path, text in plan.sources.items() if not path.startswith(left_out)}
    return msgspec.structs.replace(plan, sources=kept)


def missing_elsewhere(
    plan: Plan, needed: Plan, listed: Callable[[], int | None], modified: Modified
) -> list[str]:
    """Needed files of the plan that do not exist, on other file systems than this machine's.

    Each costs a request, so they are looked for only when Spark has not found as many as there are.
    """
    uris = [file.uri for file in planned_files(needed)]
    elsewhere = [uri for uri in uris if urlsplit(uri).scheme not in ("", "file")]
    if not elsewhere or (listed() or 0) >= sum(1 for _ in planned_files(plan)):
        return []
    return [uri for uri in elsewhere if modified(uri) is None]


def local_files(plan: Plan) -> Iterator[str]:
    """The local files that the entries of file sources name."""
    for file in planned_files(plan):
        uri = urlsplit(file.uri)
        if uri.scheme == "file":
            yield unquote(uri.path)
