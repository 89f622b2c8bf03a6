"""The positions after recorded gaps, put into Spark's offset log.

What a store holds of that log stays as Spark wrote it, and batch N+1 begins where ``offsets/N``
ends. So the line of a source that went on elsewhere is replaced in every directory that is made of
a checkpoint.

Tests: ``tests/capture/test_gap_lines.py``, ``tests/pipeline/test_reanchor.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError
from seamark.spark.batch_log import parse_offsets

_Moved = tuple[str, Mapping[str, str] | str]
"""A source, and the lines after a gap of it."""
_Places = dict[str, list[int]]
"""Of one source: by each line of an entry, which of the entry's lines are so."""


def apply_gaps(
    copy: WorkingCopy, gaps: Iterable[Mapping[str, Any]], leaves: Sequence[str], batch: int
) -> bool:
    """Put the positions after each gap into Spark's log; whether one is at this batch.

    Each entry of the log is read and written once, however many gaps there are after it.
    """
    is_here = False
    by_batch: dict[int, list[_Moved]] = {}
    for gap in gaps:
        epoch, source, line = gap.get("epoch"), gap.get("source"), gap.get("line")
        if not isinstance(epoch, int) or not isinstance(line, str) or epoch - 1 > batch:
            continue  # no gap is recorded before its epoch, and a plan stays as it was checked
        lines = gap.get("lines")
        moved = lines if isinstance(lines, Mapping) else line
        by_batch.setdefault(epoch - 1, []).append((str(source), moved))
        is_here = is_here or epoch - 1 == batch
    for number, all_moved in by_batch.items():
        path = f"offsets/{number}"
        if (text := copy.read_text(path)) is not None:
            copy.write(path, with_lines(text, leaves, all_moved).encode())
    return is_here


def with_lines(text: str, leaves: Sequence[str], all_moved: Iterable[_Moved]) -> str:
    """An entry of the offset log in which sources end elsewhere, one move after the other.

    A move is one line for all leaves of a source, or by each line that there was: the one in its
    place.

    >>> with_lines("v1\\n{}\\n1\\n2\\n1", ["a", "b", "a"], [("a", "9")])
    'v1\\n{}\\n9\\n2\\n9'
    >>> with_lines("v1\\n{}\\n1\\n2\\n3", ["a", "b", "a"], [("a", {"1": "3", "3": "1"})])
    'v1\\n{}\\n3\\n2\\n1'
    """
    entry = parse_offsets(text)
    if len(entry.lines) != len(leaves):
        raise DamageError(
            f"the offset log has {len(entry.lines)} lines, and the checkpoint names {len(leaves)}"
        )
    places: dict[str, _Places] = {}
    for place, (name, line) in enumerate(zip(leaves, entry.lines, strict=True)):
        places.setdefault(name, {}).setdefault(line, []).append(place)
    for source, moved in all_moved:
        _move(places.get(source, {}), moved)
    lines = list(entry.lines)
    for of_source in places.values():
        for line, numbers in of_source.items():
            for place in numbers:
                lines[place] = line
    return "\n".join([*text.split("\n")[:2], *lines])


def _move(places: _Places, moved: Mapping[str, str] | str) -> None:
    """Go on to the next position. This costs as much as the move says, not as much as is there."""
    if isinstance(moved, str):
        goals = dict.fromkeys(places, moved)
    else:
        goals = {old: new for old, new in moved.items() if old in places}
        if not all(isinstance(new, str) for new in goals.values()):
            raise DamageError("the checkpoint names a gap without a line of the offset log")
    left = {old: places.pop(old) for old in goals}
    for old, numbers in left.items():
        there = places.get(goals[old], [])
        few, many = sorted((there, numbers), key=len)
        many += few
        places[goals[old]] = many
