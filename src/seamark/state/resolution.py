"""What each partition consists of at a checkpoint, worked out from what it was at the parent.

Many checkpoints may build on one that names very many partitions. Each costs what its own manifest
names, in time and in memory: the rest is shared with its parent.

Tests: ``tests/state/test_resolution.py``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from seamark._common.text import shortened
from seamark.errors import DamageError
from seamark.limits import LONGEST_PREFIX
from seamark.state.chains import Chain, Link, PartitionKey, links_of
from seamark.state.layout import CheckpointId, CheckpointManifestV2
from seamark.state.shared_rows import SharedRow

_WHOLE: Final = 1 << 62
"""Longer than any object."""

_FEW: Final = 16
"""So many blocks are put in their places one by one; more of them are sorted."""

Span = tuple[int, int]
"""Where a block begins and ends."""


def place_text(key: PartitionKey) -> str:
    """A partition, as a text that may be told of very many checkpoints."""
    return f"operator '{shortened(key[0], LONGEST_PREFIX)}' partition {key[1]}"


class Step:
    """What one checkpoint has put on the chain of a partition, and what was there before."""

    __slots__ = ("_named", "below", "is_open", "links", "size_bytes")

    def __init__(self, below: Step | None, links: tuple[Link, ...]) -> None:
        self.below = below if links[0].entry.is_delta else None
        self.links = links
        self.is_open: bool = links[0].entry.is_delta and (below is None or below.is_open)
        """Whether the snapshot is missing that its deltas begin with."""
        self.size_bytes = sum(link.entry.size_bytes for link in links)
        self._named: list[Named] | None = None

    def newest_first(self) -> Iterator[Step]:
        """The steps of the whole chain."""
        step: Step | None = self
        while step is not None:
            yield step
            step = step.below

    def chain(self) -> Chain:
        """The objects of the whole chain, oldest first."""
        steps = [*self.newest_first()]
        return tuple(link for step in reversed(steps) for link in step.links)

    def named(self, numbers: Numbers) -> list[Named]:
        """What its own links name. Of many it is kept: siblings may all replace them."""
        if self._named is not None:
            return self._named
        by_object: dict[int, list[Link]] = {}
        for link in self.links:
            by_object.setdefault(numbers.object(link), []).append(link)
        named = [Named(number, len(each), _spans(each)) for number, each in by_object.items()]
        if len(self.links) > 1:
            self._named = named
        return named


class Named(NamedTuple):
    """What some links name of one object."""

    number: int
    links: int
    spans: list[Span]
    """In order, without empty ones."""


@dataclass
class Change:
    """What is different in one object."""

    links: int = 0
    """How many more there are."""
    gone: list[Span] = field(default_factory=list)
    new: list[Span] = field(default_factory=list)


class Blocks(NamedTuple):
    """What is named of one object."""

    links: int = 0
    spans: tuple[Span, ...] = ()
    """In order, without empty ones: those start where the next one does."""
    are_shared: bool = False
    """Whether bytes are named twice."""

    def changed(self, change: Change) -> Blocks:
        """The same without some links and with others."""
        links = self.links + change.links
        spans = _without(self.spans, change.gone)
        if len(change.new) > _FEW or (self.are_shared and change.gone):
            spans = sorted([*spans, *change.new])
            return Blocks(links, tuple(spans), any(b[0] < a[1] for a, b in pairwise(spans)))
        are_shared = self.are_shared
        for span in change.new:
            at = bisect_left(spans, span)
            are_shared |= at > 0 and spans[at - 1][1] > span[0]
            are_shared |= at < len(spans) and spans[at][0] < span[1]
            spans.insert(at, span)
        return Blocks(links, tuple(spans), are_shared)


def _without(spans: tuple[Span, ...], gone: list[Span]) -> list[Span]:
    """The spans in their order, each of those that are gone taken out once."""
    if len(gone) == len(spans):
        return []  # only what is there goes
    left = [*spans]
    if len(gone) <= _FEW:
        for span in gone:
            del left[bisect_left(left, span)]
        return left
    going = iter(sorted(gone))
    next_gone: Span | None = next(going)
    left.clear()
    for span in spans:
        if span == next_gone:
            next_gone = next(going, None)
        else:
            left.append(span)
    return left


def _spans(links: Iterable[Link]) -> list[Span]:
    # a whole object has no place for anybody else
    places = ((0, _WHOLE, 0) if e.pack is msgspec.UNSET else e.pack for _, e in links)
    return sorted((at, at + length) for at, length, _ in places if length)


@dataclass(frozen=True)
class Numbers:
    """Numbers for the partitions and objects of all checkpoints that build on one."""

    of_places: dict[PartitionKey, int] = field(default_factory=dict)
    places: list[PartitionKey] = field(default_factory=list)
    of_objects: dict[tuple[CheckpointId, str], int] = field(default_factory=dict)

    def place(self, key: PartitionKey) -> int:
        """The number of a partition."""
        number = self.of_places.setdefault(key, len(self.places))
        if number == len(self.places):
            self.places.append(key)
        return number

    def object(self, link: Link) -> int:
        """The number of a link's object."""
        return self.of_objects.setdefault((link.origin, link.entry.path), len(self.of_objects))


@dataclass(frozen=True)
class Resolution:
    """What each partition consists of at one checkpoint."""

    numbers: Numbers = field(default_factory=Numbers)
    steps: SharedRow[Step] = field(default_factory=SharedRow)
    """The newest step of each partition."""
    blocks: SharedRow[Blocks] = field(default_factory=SharedRow)
    objects: int = 0
    """How many objects it consists of."""
    size_bytes: int = 0
    open_chains: int = 0
    shared_objects: int = 0
    """Objects of which bytes are named twice: few of them could stand for very many."""
    disorder: str | None = None

    def then(self, manifest: CheckpointManifestV2) -> Resolution:
        """What it is at a checkpoint that builds on this one."""
        try:
            own = _links(manifest)
        except DamageError as error:
            return replace(self, disorder=error.what)
        steps: dict[int, Step | None] = {}
        changes: defaultdict[int, Change] = defaultdict(Change)
        size, opened = 0, 0
        for key, links in own.items():
            number = self.numbers.place(key)
            before = self.steps[number]
            steps[number] = step = Step(before, tuple(links))
            opened += step.is_open - (before is not None and before.is_open)
            size += step.size_bytes
            for number_of_object, count, spans in step.named(self.numbers):
                change = changes[number_of_object]
                change.links += count
                change.new += spans
            if before is None or step.below is not None:
                continue
            for replaced in before.newest_first():
                size -= replaced.size_bytes
                for number_of_object, count, spans in replaced.named(self.numbers):
                    change = changes[number_of_object]
                    change.links -= count
                    change.gone += spans
        blocks: dict[int, Blocks | None] = {}
        objects, shared = 0, 0
        for number, change in changes.items():
            was = self.blocks[number] or Blocks()
            blocks[number] = now = was.changed(change)
            objects += bool(now.links) - bool(was.links)
            shared += now.are_shared - was.are_shared
        return replace(
            self,
            steps=self.steps.changed(steps),
            blocks=self.blocks.changed(blocks),
            objects=self.objects + objects,
            size_bytes=self.size_bytes + size,
            open_chains=self.open_chains + opened,
            shared_objects=self.shared_objects + shared,
        )

    @property
    def problem(self) -> str | None:
        """Why it cannot be restored, whatever its objects hold."""
        if self.disorder is not None:
            return self.disorder
        if self.open_chains:
            number, step = next(each for each in self.steps.items() if each[1].is_open)
            where, origin = place_text(self.numbers.places[number]), step.chain()[0].origin
            return f"{where}: the delta of {origin} has no snapshot below it"
        if self.shared_objects:
            wrong = next(number for number, each in self.blocks.items() if each.are_shared)
            names = self.numbers.of_objects.items()
            origin, path = next(name for name, number in names if number == wrong)
            return f"bytes of {shortened(path, LONGEST_PREFIX)} of {origin} are named twice"
        return None

    def chains(self) -> dict[PartitionKey, Chain]:
        """All of it; :class:`DamageError` when it cannot be restored."""
        if problem := self.problem:
            raise DamageError(problem)
        return {self.numbers.places[number]: step.chain() for number, step in self.steps.items()}


def resolutions(
    base: Resolution | None, line: Iterable[CheckpointManifestV2]
) -> Iterator[tuple[CheckpointManifestV2, Resolution]]:
    """What each checkpoint of a line consists of, oldest first.

    ``line`` is newest first; its last one builds on what ``base`` is of, or on nothing.
    """
    resolution = base or Resolution()
    for manifest in reversed([*line]):
        resolution = resolution.then(manifest)
        yield manifest, resolution


def resolve(line: Iterable[CheckpointManifestV2]) -> dict[PartitionKey, Chain]:
    """What each partition consists of at the newest checkpoint of a lineage (newest first)."""
    *_, (_, newest) = resolutions(None, line)
    return newest.chains()


def _links(manifest: CheckpointManifestV2) -> dict[PartitionKey, list[Link]]:
    """The objects that one manifest names, by partition, checked to be in order."""
    links_by_key: dict[PartitionKey, list[Link]] = {}
    for (operator, partition), link in links_of(manifest):
        links = links_by_key.setdefault((operator, partition), [])
        if links and not link.entry.is_delta:
            raise DamageError(
                f"state checkpoint {manifest.checkpoint_id}: {place_text((operator, partition))} "
                "has a snapshot after other objects"
            )
        links.append(link)
    return links_by_key
