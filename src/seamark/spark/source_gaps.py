"""Rows that a source leaves out for good: planned by a start, recorded in manifests, told in words.

Which rows were left out is written into every later checkpoint of the history.

Tests: ``tests/spark/kafka/test_gaps.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from seamark._common.text import grouped, shortened, time_text
from seamark.limits import LONGEST_PREFIX

TableAnchor = Literal["earliest", "latest"] | int
"""Where a table goes on: at an end of what is left, or with a version or snapshot."""
Anchor = TableAnchor | Mapping[str, Mapping[Any, int]]
"""Where a source goes on: as a table does, or at topic → partition → offset."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """One position that was lost, and where reading goes on instead."""

    topic: str | None = None
    """None for a table, which has one position."""
    partition: int | None = None
    wanted: int | str
    goes_on: int | str | None
    """None when the partition is not there any more."""
    rows: int | None
    """Rows that are never read; None when nobody can know."""
    loss: str

    def document(self) -> dict[str, Any]:
        """What the manifest says about it."""
        topic = {} if self.topic is None else {"topic": self.topic, "partition": self.partition}
        moved = {"from": self.wanted, "to": self.goes_on, "rows": self.rows, "why": self.loss}
        return topic | moved


@dataclass(frozen=True, kw_only=True)
class Gap:
    """The positions of a source that are moved, and the lines of the offset log that do it."""

    source: str
    lines: Mapping[str, str]
    """By each line that the source had: the one that takes its place. Several for several leaves
    of the plan that have come to different places."""
    moves: tuple[Move, ...]

    @property
    def new_lines(self) -> list[str]:
        """The lines that the source goes on from, without repetition."""
        return list(dict.fromkeys(self.lines.values()))

    def document(self, epoch: int, now_ms: int) -> dict[str, Any]:
        """What the manifest says about it: the source went on like this after that epoch."""
        return {
            "source": self.source,
            "epoch": epoch,
            "timestamp_ms": now_ms,
            "line": self.new_lines[0],
            **({"lines": dict(self.lines)} if len(self.lines) > 1 else {}),
            "moves": [move.document() for move in self.moves],
        }


def planned_texts(gaps: Iterable[Gap]) -> list[str]:
    """What a start is about to leave out, in words."""
    return [
        f"source {gap.source!r} goes on elsewhere: {_place(move.document())} "
        + (
            f"was at {move.wanted} and is not there any more"
            if move.goes_on is None
            else f"at {move.goes_on} instead of {move.wanted}, {_rows_text(move.rows)} are never "
            "read"
        )
        for gap in gaps
        for move in gap.moves
    ]


def gap_texts(gaps: Iterable[Mapping[str, Any]]) -> list[str]:
    """The gaps of a manifest in words; what cannot be read is told as it is."""
    return [text for gap in gaps for text in _texts(gap)]


def _texts(gap: Mapping[str, Any]) -> list[str]:
    try:
        # these are told with each of its moves
        source, epoch, when = (
            shortened(text, LONGEST_PREFIX)
            for text in (repr(gap["source"]), str(gap["epoch"]), time_text(gap["timestamp_ms"]))
        )
        return [
            f"source {source} has a gap after epoch {epoch}: "
            f"{_place(move)} {_move_text(move)} ({move['why']}, {when})"
            for move in gap["moves"]
        ]
    except (KeyError, TypeError, ValueError, OverflowError):
        return [f"a gap that cannot be read: {str(gap)[:200]}"]


def _place(move: Mapping[str, Any]) -> str:
    return f"{move['topic']}-{move['partition']}" if "topic" in move else "the table"


def _move_text(move: Mapping[str, Any]) -> str:
    if move["to"] is None:
        return f"was at {move['from']} and is not there any more"
    rows = _rows_text(move["rows"])
    return f"went on at {move['to']} instead of {move['from']}, {rows} were never read"


def _rows_text(rows: int | None) -> str:
    if rows is None:
        return "an unknown number of rows"
    return f"{grouped(int(rows))} row{'' if rows == 1 else 's'}"
