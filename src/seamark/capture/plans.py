"""What Spark has planned for a batch: read from a directory, and put into one.

An entry of the offset log, and what the sources' own logs say about the same batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from seamark._common.checks import unsafe_path
from seamark.capture.source_positions import Newest, read_by_lines, read_up_to
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError
from seamark.spark.batch_log import OffsetLogEntry, Plan, log_lines, parse_offsets

_TOP: Final = frozenset({"metadata", "offsets", "commits", "sources", "state"})

_Positions = Callable[[OffsetLogEntry], Mapping[str, int | None]]
"""Folder below ``sources/`` → how far its log is read; None for a source without such a log."""


def read_plan(files: CheckpointFiles, batch: int, first_lines: Sequence[int]) -> Plan | None:
    """What Spark has planned for a batch of a pipeline; None when its entry is torn or missing.

    ``first_lines`` says which line of the offset log each folder below ``sources/`` belongs to.
    """
    folders = sorted(files.names("sources"))
    return _read(files, batch, lambda entry: read_by_lines(folders, entry.lines, first_lines))


def planned_after(files: CheckpointFiles, batch: int, newest: Newest) -> Plan | None:
    """What the batch after this one was planned to read; None unless every part of it is known."""
    return _read(files, batch + 1, lambda entry: read_up_to(newest, entry), require_all=True)


def _read(
    files: CheckpointFiles, batch: int, positions: _Positions, *, require_all: bool = False
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
    sources: dict[str, str] = {}
    for folder, last in positions(entry).items():
        first = first_read.get(folder)
        first = -1 if first is None else first
        numbers: set[int] = set()
        for number, path in _numbered(files, folder):
            # a source without a log of its own notes once where it began
            is_new = batch == 0 if last is None else first < number <= last
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


def check_path(path: str) -> str:
    """``path`` if it can be a file of a working copy; :class:`DamageError` otherwise."""
    if unsafe_path(path) or path.split("/", 1)[0] not in _TOP:
        raise DamageError(f"a checkpoint holds a file {path!r} that belongs to no working copy")
    return path


def install_plan(copy: WorkingCopy, batch: int, plan: Plan) -> None:
    """Make Spark run a batch on exactly the rows that it was planned for before."""
    for path, entry in plan.sources.items():
        whole = _compacted(copy, path, entry) if path.endswith(".compact") else entry
        copy.write(check_path(path), whole.encode())
    copy.write(f"offsets/{batch}", plan.offsets.encode())


def own_lines(path: str, entry: str) -> str:
    """Of a source's log entry only what its own batch added: a compaction repeats all others."""
    if not path.endswith(".compact"):
        return entry
    number = path.rsplit("/", 1)[1].removesuffix(".compact")
    head, *lines = log_lines(entry)
    return "\n".join([head, *(line for line in lines if f'"batchId":{number}}}' in line)])


def _compacted(copy: WorkingCopy, path: str, entry: str) -> str:
    """A compaction made again: all earlier entries of the log, then its own lines."""
    folder, name = path.rsplit("/", 1)
    number = int(name.removesuffix(".compact"))
    head, *own = log_lines(entry)
    lines: dict[str, None] = {}
    for earlier, other in _numbered(copy, folder.removeprefix("sources/")):
        if earlier < number:
            lines |= dict.fromkeys(log_lines(copy.read_text(other) or "")[1:])
    return "\n".join([head, *lines, *own])
