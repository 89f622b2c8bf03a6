"""The positions after recorded gaps, put into Spark's offset log.

What a store holds of that log stays as Spark wrote it, and batch N+1 begins where ``offsets/N``
ends. So the line of a source that went on elsewhere is replaced in every directory that is made of
a checkpoint.

Tests: ``tests/pipeline/test_reanchor.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError
from seamark.spark.batch_log import parse_offsets


def apply_gaps(
    copy: WorkingCopy, gaps: Iterable[Mapping[str, Any]], leaves: Sequence[str], batch: int
) -> bool:
    """Put the positions after each gap into Spark's log; whether one is at this batch."""
    is_here = False
    for gap in gaps:
        epoch, source, line = gap.get("epoch"), gap.get("source"), gap.get("line")
        if not isinstance(epoch, int) or not isinstance(line, str) or epoch - 1 > batch:
            continue  # no gap is recorded before its epoch, and a plan stays as it was checked
        path = f"offsets/{epoch - 1}"
        if (text := copy.read_text(path)) is not None:
            lines = gap.get("lines")
            moved = lines if isinstance(lines, Mapping) else line
            copy.write(path, with_lines(text, leaves, str(source), moved).encode())
        is_here = is_here or epoch - 1 == batch
    return is_here


def with_lines(
    text: str, leaves: Sequence[str], source: str, moved: Mapping[str, str] | str
) -> str:
    """An entry of the offset log in which a source ends elsewhere.

    That is one line for all its leaves, or by each line that there was: the one in its place.

    >>> with_lines("v1\\n{}\\n1\\n2\\n1", ["a", "b", "a"], "a", "9")
    'v1\\n{}\\n9\\n2\\n9'
    >>> with_lines("v1\\n{}\\n1\\n2\\n3", ["a", "b", "a"], "a", {"1": "9", "3": "3"})
    'v1\\n{}\\n9\\n2\\n3'
    """
    entry = parse_offsets(text)
    if len(entry.lines) != len(leaves):
        raise DamageError(
            f"the offset log has {len(entry.lines)} lines, and the checkpoint names {len(leaves)}"
        )
    head = text.split("\n")[:2]
    lines = [
        old if name != source else moved if isinstance(moved, str) else moved.get(old, old)
        for name, old in zip(leaves, entry.lines, strict=True)
    ]
    return "\n".join([*head, *lines])
