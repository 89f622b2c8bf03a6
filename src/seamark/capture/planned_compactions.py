"""Compactions of a source's log in a plan, made again from what came before them.

A plan has only the lines that an entry itself has added. Spark repeats all earlier lines in every
tenth entry or so, and so does a compaction here. A batch that is planned after several starts that
failed has several entries of a source, so more than one of them may be a compaction.

Tests: ``tests/capture/test_planned_compactions.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, islice

from seamark import limits
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.errors import RefusedError
from seamark.spark.batch_log import log_lines

_SUFFIX = ".compact"


def is_compaction(path: str) -> bool:
    """Whether an entry of a source's log repeats all earlier ones."""
    return path.endswith(_SUFFIX)


def number_of(name: str) -> int:
    """The number of an entry of a source's log, by its name or path."""
    return int(name.rpartition("/")[2].removesuffix(_SUFFIX))


@dataclass(frozen=True)
class _Compaction:
    path: str
    head: str
    before: int
    """How many lines of the log come before its own ones."""
    own: list[str]


@dataclass
class PlannedLog:
    """The compactions that a plan has of one source's log."""

    lines: dict[str, None] = field(default_factory=dict)
    compactions: list[_Compaction] = field(default_factory=list)
    size: int = 0
    """Characters of all lines."""
    repeated: int = 0
    """Characters that the compactions repeat, all of them together."""

    def texts(self) -> Iterator[tuple[str, str]]:
        """Path and whole text of each compaction, one at a time."""
        for each in self.compactions:
            yield each.path, "\n".join([each.head, *islice(self.lines, each.before), *each.own])

    def add(self, lines: list[str]) -> None:
        """Note lines of an entry; those that are known already stay where they are."""
        for line in lines:
            if line not in self.lines:
                self.lines[line] = None
                self.size += len(line) + 1


def planned_logs(files: CheckpointFiles, sources: Mapping[str, str]) -> list[PlannedLog]:
    """The logs of which a plan has compactions, each entry read once; nothing is written.

    :class:`RefusedError` when what they repeat is out of all proportion.
    """
    folders: dict[str, dict[str, str]] = {}
    for path, entry in sources.items():
        folders.setdefault(path.rsplit("/", 1)[0], {})[path] = entry
    logs = [
        _log(files, folder, entries)
        for folder, entries in folders.items()
        if any(is_compaction(path) for path in entries)
    ]
    most = max(limits.REPEATED_FLOOR, limits.REPEATED_RATIO * sum(log.size for log in logs))
    repeated = sum(log.repeated for log in logs)
    if repeated > most:
        count = sum(len(log.compactions) for log in logs)
        raise RefusedError(
            f"a plan holds {count} compactions of sources' logs, which would repeat {repeated} "
            f"characters; {most} at most are written",
            where=next(log.compactions[0].path for log in logs if log.compactions),
            hint="A log of Spark has one in ten entries, and a batch is planned with few of them. "
            "`seamark spark restore --without-plan` has Spark plan the batch again; a pipeline "
            "plans it again after a rollback to its newest checkpoint.",
        )
    return logs


def _log(files: CheckpointFiles, folder: str, planned: Mapping[str, str]) -> PlannedLog:
    """One source's log: entries that are there and those of the plan, by their numbers."""
    last = max(number_of(path) for path in planned if is_compaction(path))
    there = (f"{folder}/{n}" for n in files.source_entry_names(folder.removeprefix("sources/")))
    log = PlannedLog()
    paths = sorted({*there, *planned}, key=lambda path: (number_of(path), path))
    for number, same in groupby(paths, key=number_of):
        if number > last:
            break
        added: list[list[str]] = []
        for path in same:
            text = planned[path] if path in planned else files.read_text(path) or ""
            head, *own = log_lines(text) or [""]
            added.append(own)
            if path in planned and is_compaction(path):
                log.compactions.append(_Compaction(path, head, len(log.lines), own))
                log.repeated += log.size
        for own in added:
            log.add(own)
    return log
