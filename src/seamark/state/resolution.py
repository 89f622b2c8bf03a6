"""What each partition consists of at a checkpoint, worked out from what it was at the parent.

Many checkpoints may build on one that names very many partitions. Each costs what its own manifest
names, in time and in memory: the rest is shared with its parent.

Tests: ``tests/state/test_resolution.py``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import msgspec

from seamark._common.text import shortened
from seamark.errors import DamageError
from seamark.limits import LONGEST_PREFIX
from seamark.state.chains import Chain, Link, PartitionKey, links_of
from seamark.state.layout import CheckpointId, CheckpointManifestV2
from seamark.state.shared_rows import SharedRow
from seamark.state.taken_bytes import Root, Taken, TakenBytes

_WHOLE: Final = 1 << 62
"""Longer than any object."""


def place_text(key: PartitionKey) -> str:
    """A partition, as a text that may be told of very many checkpoints."""
    return f"operator '{shortened(key[0], LONGEST_PREFIX)}' partition {key[1]}"


class Step:
    """What one checkpoint has put on the chain of a partition, and what was there before."""

    __slots__ = ("below", "chain_bytes", "is_open", "links", "root")

    def __init__(self, place: int, below: Step | None, links: tuple[Link, ...]) -> None:
        self.below = below = below if links[0].entry.is_delta else None
        self.links = links
        self.root: Root = Root(place, links[0]) if below is None else below.root
        self.is_open: bool = self.root.first.entry.is_delta
        """Whether the snapshot is missing that its deltas begin with."""
        own = sum(link.entry.size_bytes for link in links)
        self.chain_bytes: int = own if below is None else own + below.chain_bytes

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


def _taken(step: Step, numbers: Numbers) -> Iterator[tuple[int, Taken]]:
    """What the own links of a step take of which object."""
    for link in step.links:
        pack = link.entry.pack
        # a whole object has no place for anybody else
        start, length, _ = (0, _WHOLE, 0) if pack is msgspec.UNSET else pack
        if length:
            yield numbers.object(link), Taken(start, start + length, step.root)


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

    def name(self, number: int) -> str:
        """The object with a number, as a text that may be told of very many checkpoints."""
        origin, path = next(islice(self.of_objects, number, None))  # they are in order
        return f"{shortened(path, LONGEST_PREFIX)} of {origin}"


@dataclass(frozen=True)
class Resolution:
    """What each partition consists of at one checkpoint."""

    numbers: Numbers = field(default_factory=Numbers)
    steps: SharedRow[Step] = field(default_factory=SharedRow)
    """The newest step of each partition."""
    taken: SharedRow[TakenBytes] = field(default_factory=SharedRow)
    """Which bytes of each object."""
    size_bytes: int = 0
    open_chains: int = 0
    disorder: str | None = None
    """What no checkpoint that builds on this one can put right."""

    def then(self, manifest: CheckpointManifestV2) -> Resolution:
        """What it is at a checkpoint that builds on this one."""
        if self.disorder is not None:
            return self
        try:
            own = _links(manifest)
        except DamageError as error:
            return replace(self, disorder=error.what)
        changed: dict[int, Step | None] = {}
        new: defaultdict[int, list[Taken]] = defaultdict(list)
        size, opened = 0, 0
        for key, links in own.items():
            place = self.numbers.place(key)
            before = self.steps[place]
            changed[place] = step = Step(place, before, tuple(links))
            size += step.chain_bytes
            opened += step.is_open
            if before is not None:
                size -= before.chain_bytes
                opened -= before.is_open
            for number, block in _taken(step, self.numbers):
                new[number].append(block)
        steps = self.steps.changed(changed)

        def is_there(root: Root) -> bool:
            newest = steps[root.place]
            return newest is not None and newest.root is root

        taken: dict[int, TakenBytes | None] = {}
        for number, blocks in new.items():
            before_them = self.taken[number] or TakenBytes()
            taken[number] = now = before_them.with_more(blocks, is_there)
            if now is None:  # few bytes that are named twice could stand for very many
                twice = f"bytes of {self.numbers.name(number)} are named twice"
                return replace(self, disorder=twice)
        return replace(
            self,
            steps=steps,
            taken=self.taken.changed(taken),
            size_bytes=self.size_bytes + size,
            open_chains=self.open_chains + opened,
        )

    @property
    def objects(self) -> int:
        """How many objects it consists of. All of it is gone through."""
        links = (link for _, newest in self.steps.items() for link in newest.chain())
        return len({(link.origin, link.entry.path) for link in links})

    @property
    def problem(self) -> str | None:
        """Why it cannot be restored, whatever its objects hold."""
        if self.disorder is not None:
            return self.disorder
        if self.open_chains:
            number, step = next(each for each in self.steps.items() if each[1].is_open)
            where = place_text(self.numbers.places[number])
            return f"{where}: the delta of {step.root.first.origin} has no snapshot below it"
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
