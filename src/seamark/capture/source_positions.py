"""How far each source's own log is read at a batch, by the lines of the offset log.

Spark names the folders below ``sources/`` by number or by name, and the offset log has a line for
each leaf of the plan. Which line belongs to which folder is known to a pipeline
(:func:`read_by_lines`) and has to be derived for any other query (:func:`read_up_to`).

Tests: ``tests/native/test_snapshot.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from seamark.checkpoint_dir.file_logs.source_log import is_file_log
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.spark.batch_log import NO_OFFSET, OffsetLogEntry, log_offset

_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_MOST_LINES: Final = 12
"""With more leaves than this, lines are not assigned to sources, and whole logs are taken."""

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
    positions_by_folder: dict[str, int | None] = {}
    by_number = {int(folder): folder for folder in logs if _NUMBER.fullmatch(folder)}
    newest_by_number = {number: logs[folder] for number, folder in by_number.items()}
    possible = possible_lines(entry.lines, newest_by_number)
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


def position_in(line: str) -> int | None:
    """How far a file source's log is read by a line of the offset log; None for no such line."""
    return -1 if line == NO_OFFSET else log_offset(line)


def newest_entries(files: CheckpointFiles) -> Newest:
    """The last entry of every source's log."""
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
    possible: dict[int, set[str]] = {}

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
                possible.setdefault(number, set()).add(line)
            return True
        line = lines[rest]
        again = line in chosen and assign(rest + 1, chosen)
        fresh = fits(len(chosen), line) and assign(rest + 1, (*chosen, line))
        return again or fresh

    if len(lines) <= _MOST_LINES:
        assign(0, ())
    return possible


def read_by_lines(
    folders: Iterable[str], lines: Sequence[str], first_lines: Sequence[int]
) -> dict[str, int | None]:
    """The same where ``first_lines`` says which line belongs to each folder."""
    # a source that is joined with itself has a folder that no name leads to
    highest = max((at for line in lines if (at := log_offset(line)) is not None), default=None)

    def position(folder: str) -> int | None:
        is_known = _NUMBER.fullmatch(folder) and int(folder) < len(first_lines)
        if is_known and len(lines) > max(first_lines):
            return log_offset(lines[first_lines[int(folder)]])
        return highest

    return {folder: position(folder) for folder in folders}
