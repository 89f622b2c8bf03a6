"""Which bytes of one object the partitions of a line of checkpoints have taken.

Tests: ``tests/state/test_taken_bytes.py``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from seamark.state.chains import Link

_FEW: Final = 16
"""Fewer blocks than one for so many that are there are put in their places one by one; more of them
are sorted with all others."""

_WIDTH: Final = 64
"""Blocks in a piece; one that has twice as many is divided."""


class Root:
    """Where a chain begins. Two are equal only if they are the same object."""

    __slots__ = ("first", "place")

    def __init__(self, place: int, first: Link) -> None:
        self.place = place
        """The number of the partition."""
        self.first = first


class Taken(NamedTuple):
    """A block of an object that a chain has named."""

    start: int
    end: int
    root: Root


Piece = tuple[Taken, ...]

_start = attrgetter("start")
_end = attrgetter("end")
_root = attrgetter("root")


def _first_start(piece: Piece) -> int:
    return piece[0].start


def _last_end(piece: Piece) -> int:
    return piece[-1].end


class TakenBytes:
    """Blocks in order, no byte of them twice. It never changes, and copies share most of it.

    Blocks of chains that were replaced stay until their bytes are taken again: who replaces a long
    chain does not go through it.
    """

    __slots__ = ("_pieces",)

    def __init__(self, pieces: tuple[Piece, ...] = ()) -> None:
        self._pieces = pieces

    @property
    def blocks(self) -> list[Taken]:
        """All of them."""
        return [*chain.from_iterable(self._pieces)]

    def with_more(
        self, new: Sequence[Taken], is_there: Callable[[Root], bool]
    ) -> TakenBytes | None:
        """The same with other blocks; None when chains that are there take bytes of it twice."""
        if len(new) * _FEW >= sum(map(len, self._pieces)):
            roots = {root for root in set(map(_root, self.blocks)) if is_there(root)}
            blocks = sorted([*(b for b in self.blocks if b.root in roots), *new], key=_start)
            is_twice = any(b.start < a.end for a, b in pairwise(blocks))
            return None if is_twice else TakenBytes(_divided(blocks))
        taken: TakenBytes | None = self
        for block in new:
            taken = taken and taken._with_one(block, is_there)
        return taken

    def _with_one(self, block: Taken, is_there: Callable[[Root], bool]) -> TakenBytes | None:
        pieces = self._pieces
        begin = bisect_right(pieces, block.start, key=_last_end)
        end = bisect_left(pieces, block.end, begin, key=_first_start)
        if begin == end:  # between two pieces: it is put at the end of the first
            begin = max(begin - 1, 0)
            end = begin + 1
        near = [*chain.from_iterable(pieces[begin:end])]
        low = bisect_right(near, block.start, key=_end)
        high = bisect_left(near, block.end, low, key=_start)
        if any(map(is_there, set(map(_root, near[low:high])))):
            return None
        near[low:high] = [block]
        return TakenBytes((*pieces[:begin], *_divided(near), *pieces[end:]))


def _divided(blocks: list[Taken]) -> tuple[Piece, ...]:
    if len(blocks) < 2 * _WIDTH:
        return (tuple(blocks),)
    return tuple(tuple(blocks[at : at + _WIDTH]) for at in range(0, len(blocks), _WIDTH))
