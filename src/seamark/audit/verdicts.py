"""What a difference between rows and their digest means. Pure.

Tests: ``tests/audit/test_verdicts.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from seamark._common.text import grouped
from seamark.audit.expectations import SinkHistory
from seamark.spark.row_digests import RowDigest


class Result(StrEnum):
    """What was found out about some epochs of a sink."""

    OK = "ok"
    LOST = "lost"
    DOUBLED = "doubled"
    """There are more rows than were written."""
    EDITED = "edited"
    EXCHANGED = "exchanged"
    UNREADABLE = "unreadable"
    """The rows are there and cannot be read: a file is damaged."""
    UNCOMPARED = "not compared"

    @property
    def is_damage(self) -> bool:
        """Whether the sink does not show what was written to it."""
        return self not in (Result.OK, Result.UNCOMPARED)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a sink shows of some epochs, next to what it should."""

    first: int
    last: int
    expected: RowDigest | None = None
    found: RowDigest | None = None
    damage: str = ""
    """Why the rows cannot be read; they are damaged then."""
    note: str = ""
    """Why nothing is compared, or what is to be known about it."""
    is_proven: bool = False
    """Whether the files are byte for byte those that were written, whatever their rows read as."""
    is_counted: bool = False
    """Whether rows could only be counted: ``found`` has no digest."""
    is_of_now: bool = False
    """Whether the target was read as it is now, so that a running pipeline may be ahead."""
    ahead: RowDigest | None = None
    """What it shows instead if it has committed the epoch that comes next: that is decided, and no
    checkpoint says yet whether the sink has committed it."""
    given_up: Mapping[RowDigest, int] = field(default_factory=dict)
    """What it shows instead as long as no start has taken back what a rollback has given up, with
    the last of these epochs."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was found out about some epochs of one sink."""

    first: int
    last: int
    result: Result
    expected_rows: int | None
    found_rows: int | None
    text: str = ""

    @property
    def epochs(self) -> str:
        """The epochs, for people."""
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


def verdict_of(shown: Shown, known: SinkHistory) -> Verdict:
    """What a sink shows of some epochs, judged by their digest and by those of other epochs."""
    result, text = _judged(shown, known)
    return Verdict(
        first=shown.first,
        last=shown.last,
        result=result,
        expected_rows=shown.expected.rows if shown.expected is not None else None,
        found_rows=shown.found.rows if shown.found is not None else None,
        text=text,
    )


def _judged(shown: Shown, known: SinkHistory) -> tuple[Result, str]:
    expected, found = shown.expected, shown.found
    if shown.damage:
        return Result.UNREADABLE, shown.damage
    if expected is None or found is None:
        return Result.UNCOMPARED, shown.note
    if found == expected or (shown.is_counted and found.rows == expected.rows):
        return Result.OK, shown.note
    if shown.ahead is not None and (
        found == shown.ahead or (shown.is_counted and found.rows == shown.ahead.rows)
    ):
        return Result.OK, (
            f"it shows epoch {shown.last + 1} already, which is decided; its checkpoint does not "
            "say yet that it is committed"
        )
    if (last := _last_given_up(shown, found)) is not None:
        return Result.OK, (
            f"it still shows epochs up to {last}, which a rollback has given up; the next start "
            "takes them back"
        )
    if shown.is_proven:
        return Result.OK, (
            "the files are byte for byte those that were written; their format does not keep "
            "every value as it was"
        )
    again = known.computed_again(shown.first, shown.last)
    if again is not None and (found.rows or not expected.rows):
        return Result.UNCOMPARED, (
            f"epoch {again} lost its checkpoint and was computed again, with other rows; the sink "
            "shows those of the first time"
        )
    is_known = found.rows and not shown.is_counted
    other = known.with_rows(found) if is_known else None
    if other is not None and not shown.first <= other.epoch <= shown.last:
        return Result.EXCHANGED, f"it shows the rows of epoch {other.epoch}"
    if found.rows < expected.rows:
        missing = expected.rows - found.rows
        rest = "" if found.rows else ": nothing is left"
        return Result.LOST, f"{_rows(missing)} of {grouped(expected.rows)} missing{rest}"
    if found.rows > expected.rows:
        more = found.rows - expected.rows
        twice = " (every row is there twice)" if found == expected + expected else ""
        return Result.DOUBLED, f"{_rows(more)} too many{twice}"
    return Result.EDITED, f"{_rows(found.rows)}, as many as were written, but not the same"


def _last_given_up(shown: Shown, found: RowDigest) -> int | None:
    if not shown.is_counted:
        return shown.given_up.get(found)
    counted = (last for rows, last in shown.given_up.items() if rows.rows == found.rows)
    return next(counted, None)


def _rows(count: int) -> str:
    return f"{grouped(count)} row{'' if count == 1 else 's'}"
