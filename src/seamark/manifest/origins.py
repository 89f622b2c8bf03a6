"""What a manifest says that can be held against another history: its origin, and what it has read.

Tests: ``tests/manifest/test_facts.py``.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from seamark._common.checks import I64_MAX
from seamark.limits import LONGEST_TARGET, MOST_ORIGIN_TARGETS

_Number = Annotated[int, msgspec.Meta(ge=0, le=I64_MAX)]
_Text = Annotated[str, msgspec.Meta(max_length=LONGEST_TARGET)]
_FEW: Final = msgspec.Meta(max_length=MOST_ORIGIN_TARGETS)


class SourceInput(msgspec.Struct, frozen=True):
    """What an epoch has read of one source; comparable between timelines."""

    read: str
    """Digest of the rows: of where they begin and end, or of the files that they are in."""
    at: str | None = None
    """Digest of the position after the epoch, where that means the same to every reader."""


class ForkOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where the history of a fork begins, and what it must stay away from."""

    url: str
    """The store that it was forked from, without anything secret."""
    checkpoint_id: _Number
    timeline: str
    epoch: _Number
    earlier: Annotated[tuple[tuple[_Text, _Number], ...], _FEW] = ()
    """Where that store was forked itself: timeline and epoch, the nearest one first."""
    pipelines: Annotated[tuple[_Text, ...], _FEW] = ()
    """The names of the pipelines that came before, the nearest one first."""
    targets: Annotated[tuple[tuple[_Text, _Text], ...], _FEW] = ()
    """Kind and target of every sink of the pipelines that came before."""
    consumer_groups: Annotated[tuple[_Text, ...], _FEW] = ()
    """The consumer groups in which those pipelines store their offsets."""
