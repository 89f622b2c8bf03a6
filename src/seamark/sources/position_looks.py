"""Asking a source, before anything runs, whether it can go on from where a checkpoint stands.

Tests: ``tests/sources/test_position_looks.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING

from seamark._common.json_documents import UNREADABLE
from seamark.errors import InvalidInputError, PositionUnavailable
from seamark.sources.offsets import offset_from
from seamark.sources.sequence_reader import PositionRange

if TYPE_CHECKING:
    from seamark.sources.sequenced import SequencedSource

PositionLook = Callable[[str], PositionRange | None]
"""Asks a source about a line of the offset log. :class:`PositionUnavailable` when what comes next
is gone; None when the source does not know."""


def look_at_line(
    name: str, cls: type[SequencedSource], options: Mapping[str, str], line: str
) -> PositionRange | None:
    """Ask a source of a class about the position that a line of the offset log has."""
    try:
        offset = offset_from(json.loads(line))
    except UNREADABLE as error:
        raise InvalidInputError(
            f"the position of source {name!r} in the checkpoint cannot be read", where=str(error)
        ) from error
    try:
        return cls(_without_case(options)).check(offset.position)
    except PositionUnavailable as error:
        raise PositionUnavailable(
            f"source {name!r}: {error.what}",
            where=error.where,
            hint=error.hint,
            source=name,
            requested=error.requested,
            earliest=error.earliest,
        ) from error


def _without_case(options: Mapping[str, str]) -> MutableMapping[str, str]:
    """Options as Spark gives them to a source."""
    from pyspark.sql.datasource import CaseInsensitiveDict

    return CaseInsensitiveDict(options)
