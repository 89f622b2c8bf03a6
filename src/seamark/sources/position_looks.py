"""Asking a source, before anything runs, whether it can go on from where a checkpoint stands.

Tests: ``tests/sources/test_position_looks.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seamark._common.json_documents import UNREADABLE
from seamark.errors import (
    InvalidInputError,
    PositionUnavailable,
    RefusedError,
    SeamarkError,
    SourceSilentError,
)
from seamark.sources.offsets import Offset, Position, offset_from
from seamark.sources.patience import Stopping, answered_within, never
from seamark.sources.sequence_reader import Anchored, PositionRange
from seamark.spark.source_gaps import TableAnchor

if TYPE_CHECKING:
    from seamark.sources.sequenced import SequencedSource


@dataclass(frozen=True)
class PositionLook:
    """How to ask one source of a pipeline about lines of the offset log."""

    name: str
    cls: type[SequencedSource]
    options: Mapping[str, str]
    patience: float
    """Seconds that a source is waited for which does not answer."""

    def check(self, line: str, is_stopping: Stopping = never) -> PositionRange | None:
        """What the source has; None when it does not know.

        :class:`PositionUnavailable` when what comes next is gone, with the ways on.
        """
        try:
            return answered_within(
                self.patience,
                lambda: look_at_line(self.name, self.cls, self.options, line),
                f"source {self.name!r}",
                is_stopping,
            )
        except PositionUnavailable as error:
            if not self.can_move:
                raise
            raise _again(error, self.name, f"{error.hint or ''} {_ways_on(self.name)}") from error

    def place_id(self) -> str | None:
        """What tells the origin from another one; None when it is not known, or does not answer.

        No error: the run waits for the origin, or says what is wrong.
        """

        def ask() -> str | None:
            try:
                return self.cls(_without_case(self.options)).place_id()
            except SeamarkError:
                return None

        try:
            return answered_within(self.patience, ask, f"source {self.name!r}")
        except SourceSilentError:
            return None

    @property
    def can_move(self) -> bool:
        """Whether a source of this kind can go on elsewhere."""
        from seamark.sources.sequenced import SequencedSource

        return self.cls.anchored is not SequencedSource.anchored

    def moved(self, line: str, anchor: TableAnchor) -> tuple[str, Anchored]:
        """The line that takes the place of one whose rows are gone, and what that means.

        The number and the digest of the rows that were read stay as they are.
        """
        offset = _parsed(self.name, line)
        if offset.position is None:
            raise RefusedError(
                f"no row of source {self.name!r} was read yet, so reanchor has nothing to move",
                hint="Say in its options where it begins (starting_version, starting_snapshot).",
            )
        to = answered_within(
            self.patience,
            lambda: self.cls(_without_case(self.options)).anchored(offset.position, anchor),
            f"source {self.name!r}",
        )
        moved = Offset(offset.sequence, to.position, offset.digest).as_json()
        return json.dumps(moved, separators=(",", ":")), to


def look_at_line(
    name: str, cls: type[SequencedSource], options: Mapping[str, str], line: str
) -> PositionRange | None:
    """Ask a source of a class about the position that a line of the offset log has."""
    position = position_in(name, line)
    with raised_for(name):
        return look_at(cls, options, position)


def position_in(name: str, line: str) -> Position | None:
    """The position that a line of the offset log has."""
    return _parsed(name, line).position


def _parsed(name: str, line: str) -> Offset:
    try:
        return offset_from(json.loads(line))
    except UNREADABLE as error:
        raise InvalidInputError(
            f"the position of source {name!r} in the checkpoint cannot be read", where=str(error)
        ) from error


def look_at(
    cls: type[SequencedSource], options: Mapping[str, str], position: Position | None
) -> PositionRange | None:
    """Ask a source of a class about a position."""
    return cls(_without_case(options)).check(position)


@contextmanager
def raised_for(name: str) -> Iterator[None]:
    """Have a loss say which source it is of."""
    try:
        yield
    except PositionUnavailable as error:
        raise _again(error, name, error.hint) from error


def _again(error: PositionUnavailable, name: str, hint: str | None) -> PositionUnavailable:
    """The same error with the name of the source, once, and another hint."""
    named = f"source {name!r}: "
    return PositionUnavailable(
        named + error.what.removeprefix(named),
        where=error.where,
        hint=hint,
        source=name,
        requested=error.requested,
        earliest=error.earliest,
    )


def _ways_on(name: str) -> str:
    return (
        f"Or go on without the rows: Pipeline(…, reanchor={{{name!r}: 'earliest'}}) reads on from "
        "the oldest that is left, 'latest' what is added from now on, and a number from that "
        "version or snapshot on; the gap is recorded in every later checkpoint."
    )


def _without_case(options: Mapping[str, str]) -> MutableMapping[str, str]:
    """Options as Spark gives them to a source."""
    from pyspark.sql.datasource import CaseInsensitiveDict

    return CaseInsensitiveDict(options)
