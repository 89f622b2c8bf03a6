"""Where the outputs of two stores differ, epoch by epoch. Pure, over what their checkpoints say.

Two epochs of one number are held against each other only if both have read the same rows. Where
the epochs of two stores do not line up, all rows up to the newest position that both have come to
are compared instead.

Tests: ``tests/pipeline/test_comparison.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from seamark.manifest import CheckpointManifest
from seamark.manifest.described import is_first_of_fork
from seamark.spark.row_digests import RowDigest, comparable_digests

Epochs = Mapping[int, CheckpointManifest]
"""By epoch: the newest checkpoint of it."""


class Verdict(Enum):
    """How two outputs compare."""

    EQUAL = "equal"
    DIFFERS = "differs"
    UNKNOWN = "unknown"
    """One of them has no digest."""


class Inputs(Enum):
    """Whether two epochs have read the same rows."""

    SAME = "same rows"
    OTHER = "other rows"
    UNKNOWN = "not recorded"


@dataclass(frozen=True)
class OutputComparison:
    """One output of both stores."""

    sink: str
    a: RowDigest | None
    b: RowDigest | None

    @property
    def verdict(self) -> Verdict:
        """Equal rows have equal digests."""
        if self.a is None or self.b is None:
            return Verdict.UNKNOWN
        return Verdict.EQUAL if self.a == self.b else Verdict.DIFFERS


@dataclass(frozen=True, kw_only=True)
class EpochComparison:
    """One epoch that both stores have."""

    epoch: int
    inputs: Inputs
    outputs: tuple[OutputComparison, ...] = ()
    """Only for the same rows: those of which one side has a digest."""
    undigested: int = 0
    """How many others both have; which they are is the same in most epochs."""
    watermarks: tuple[int | None, int | None] = (None, None)

    @property
    def is_unknown(self) -> bool:
        """Whether the rows of one output, or more, are not known."""
        return self.undigested > 0 or _any(self.outputs, Verdict.UNKNOWN)


@dataclass(frozen=True, kw_only=True)
class Cumulated:
    """All rows after the common past, up to a position that both have come to."""

    a_epoch: int
    b_epoch: int
    outputs: tuple[OutputComparison, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What two stores have in common, and where they differ."""

    since: int
    """The last epoch of their common past; 0 without one."""
    is_related: bool
    """Whether one is a fork of the other, or both are forks of one history."""
    epochs: tuple[EpochComparison, ...]
    cumulated: Cumulated | None = None
    sinks: tuple[str, ...] = ()
    """Outputs that both have, by name."""
    undigested: tuple[str, ...] = ()
    """Those of them that have no digest in any epoch on the same rows."""
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def differing(self) -> list[EpochComparison]:
        """Epochs on the same rows in which an output differs."""
        return [e for e in self.epochs if _any(e.outputs, Verdict.DIFFERS)]

    @property
    def is_different(self) -> bool:
        """Whether an output is proven to differ."""
        cumulated = self.cumulated.outputs if self.cumulated is not None else ()
        return bool(self.differing) or _any(cumulated, Verdict.DIFFERS)


def _any(outputs: Iterable[OutputComparison], verdict: Verdict) -> bool:
    return any(output.verdict is verdict for output in outputs)


@dataclass(frozen=True)
class ComparedStore:
    """A store as far as it is compared."""

    url: str
    manifests: tuple[CheckpointManifest, ...]
    """All that count, newest first."""

    @cached_property
    def epochs(self) -> Epochs:
        """The epochs that have run there."""
        found: dict[int, CheckpointManifest] = {}
        for manifest in self.manifests:
            if not is_first_of_fork(manifest):
                found.setdefault(manifest.epoch, manifest)
        return found

    @cached_property
    def timelines(self) -> dict[str, int | None]:
        """Histories that lead to its newest checkpoint, each with the epoch at which it was left;
        None for those of the store itself.
        """
        left: dict[str, int | None] = {}
        fork = self.manifests[0].fork if self.manifests else None
        if fork is not None:
            left[fork.timeline] = fork.epoch
            left |= {timeline: min(epoch, fork.epoch) for timeline, epoch in fork.earlier}
        return left | {manifest.timeline or "": None for manifest in self.manifests}

    @property
    def begins_after(self) -> int:
        """The epoch after which its own epochs begin."""
        fork = self.manifests[0].fork if self.manifests else None
        return 0 if fork is None else fork.epoch

    @cached_property
    def sinks(self) -> dict[str, None]:
        """The names of its outputs, in their order."""
        names = self.manifests[0].sink_names if self.manifests else []
        digested = (name for each in self.epochs.values() for name in each.output_digests or {})
        return dict.fromkeys([*names, *digested])


def compare(
    a: ComparedStore, b: ComparedStore, first: int = 0, last: int | None = None
) -> Comparison:
    """Hold the epochs of two stores against each other, from ``first`` to ``last``."""
    since = common_past(a, b)
    sinks = {name: place for place, name in enumerate(n for n in a.sinks if n in b.sinks)}
    start = max(since or 0, a.begins_after, b.begins_after, first - 1)
    common = sorted(
        e for e in a.epochs.keys() & b.epochs.keys() if e > start and (last is None or e <= last)
    )
    epochs = tuple(_epoch(a.epochs[e], b.epochs[e], sinks) for e in common)
    lines_up = all(each.inputs is Inputs.SAME for each in epochs)
    cumulated = None
    if not (lines_up and epochs):
        cumulated = _cumulated(a.epochs, b.epochs, start, last, sinks)
    undigested = _never_digested(epochs, sinks)
    notes = [*_notes(epochs, cumulated, lines_up=lines_up)]
    if undigested:
        notes.append(f"{len(undigested)} of {len(sinks)} outputs have no digest in any such epoch")
    return Comparison(
        since=since or 0,
        is_related=since is not None,
        epochs=epochs,
        cumulated=cumulated,
        sinks=tuple(sinks),
        undigested=undigested,
        only_a=tuple(name for name in a.sinks if name not in b.sinks),
        only_b=tuple(name for name in b.sinks if name not in a.sinks),
        notes=tuple(notes),
    )


def common_past(a: ComparedStore, b: ComparedStore) -> int | None:
    """The last epoch that two stores have in common; None when nothing says that there is one.

    Two copies of one store have no epoch of their own to tell them apart: 0.
    """
    shared = a.timelines.keys() & b.timelines.keys()
    left = [
        min((e for e in (a.timelines[t], b.timelines[t]) if e is not None), default=0)
        for t in shared
    ]
    if left:
        return max(left)
    # its timeline may have been left and pruned since
    for one, other in ((a, b), (b, a)):
        fork = other.manifests[0].fork if other.manifests else None
        if fork is not None and fork.url == one.url:
            return fork.epoch
    return None


def _epoch(
    a: CheckpointManifest, b: CheckpointManifest, sinks: Mapping[str, int]
) -> EpochComparison:
    """``sinks`` are the outputs that both have, with the place of each in their order."""
    inputs = _inputs(a, b)
    if inputs is not Inputs.SAME:
        return EpochComparison(epoch=a.epoch, inputs=inputs, watermarks=(a.watermark, b.watermark))
    # a store may have very many outputs and epochs: what neither manifest names costs nothing
    named = sinks.keys() & {*(a.output_digests or {}), *(b.output_digests or {})}
    return EpochComparison(
        epoch=a.epoch,
        inputs=inputs,
        outputs=_compared(digests(a), digests(b), sorted(named, key=sinks.__getitem__)),
        undigested=len(sinks) - len(named),
        watermarks=(a.watermark, b.watermark),
    )


def _never_digested(epochs: Iterable[EpochComparison], sinks: Iterable[str]) -> tuple[str, ...]:
    same = [each for each in epochs if each.inputs is Inputs.SAME]
    named = {output.sink for each in same for output in each.outputs}
    return tuple(sink for sink in sinks if sink not in named) if same else ()


def _compared(
    a: Mapping[str, RowDigest], b: Mapping[str, RowDigest], sinks: Iterable[str]
) -> tuple[OutputComparison, ...]:
    return tuple(OutputComparison(sink, a.get(sink), b.get(sink)) for sink in sinks)


def _inputs(a: CheckpointManifest, b: CheckpointManifest) -> Inputs:
    """By the sources that both read: one of them may read more."""
    if not a.inputs or not b.inputs:
        return Inputs.UNKNOWN
    both = a.inputs.keys() & b.inputs.keys()
    same = both and all(a.inputs[name].read == b.inputs[name].read for name in both)
    return Inputs.SAME if same else Inputs.OTHER


def digests(manifest: CheckpointManifest) -> dict[str, RowDigest]:
    """The rows of each output in one epoch, where they are known."""
    found = comparable_digests(manifest).items()
    return {sink: RowDigest(each.rows, each.digest) for sink, each in found}


# where epochs do not line up


def _cumulated(
    a: Epochs, b: Epochs, start: int, last: int | None, sinks: Iterable[str]
) -> Cumulated | None:
    """The newest position that both have come to after ``start``, and the rows up to it."""
    reached = {at: e for e, at in _positions(a, start, last)}
    for e_b, at in reversed(list(_positions(b, start, last))):
        if (e_a := reached.get(at)) is not None:
            rows = rows_after(a, start, e_a), rows_after(b, start, e_b)
            return Cumulated(a_epoch=e_a, b_epoch=e_b, outputs=_compared(*rows, sinks))
    return None


def _positions(
    epochs: Epochs, start: int, last: int | None
) -> Iterable[tuple[int, tuple[tuple[str, str], ...]]]:
    """Each epoch with the positions of all its sources, where they can be compared."""
    for epoch in sorted(epochs):
        inputs = epochs[epoch].inputs
        if not inputs or epoch <= start or (last is not None and epoch > last):
            continue
        at = tuple((name, each.at) for name, each in sorted(inputs.items()) if each.at is not None)
        if len(at) == len(inputs):
            yield epoch, at


def rows_after(epochs: Epochs, start: int, end: int) -> dict[str, RowDigest]:
    """All rows of each output after one epoch and up to another; without those not all known.

    Every manifest is asked once, and nothing is counted up to the numbers in them but what there
    is: they may be anybody's.
    """
    newest = comparable_digests(epochs[end])
    before = comparable_digests(epochs[start]) if start in epochs else {}
    between = [epoch for epoch in epochs if start < epoch <= end]
    each = [digests(epochs[epoch]) for epoch in between] if len(between) == end - start else []
    found: dict[str, RowDigest] = {}
    for sink, known in newest.items():
        total = RowDigest(known.total_rows, known.total_digest)
        earlier = before.get(sink)
        if known.since == start + 1:
            found[sink] = total
        elif earlier is not None and earlier.since == known.since:
            found[sink] = total - RowDigest(earlier.total_rows, earlier.total_digest)
        elif known.since <= start and each and all(sink in rows for rows in each):
            found[sink] = sum((rows[sink] for rows in each), RowDigest.empty())
    return found


def _notes(
    epochs: Sequence[EpochComparison], cumulated: Cumulated | None, *, lines_up: bool
) -> Iterable[str]:
    if not epochs:
        yield "they have no epoch in common after that"
    elif not lines_up:
        other = [each for each in epochs if each.inputs is Inputs.OTHER]
        if other:
            yield (
                f"from epoch {other[0].epoch} on the epochs do not line up: they read other rows"
            )
        if any(each.inputs is Inputs.UNKNOWN for each in epochs):
            yield "some checkpoints do not say what their epochs have read: an earlier Seamark"
    if cumulated is None and not lines_up:
        yield "no position is known that both have come to"
    later = [each for each in epochs if each.watermarks[0] != each.watermarks[1]]
    if later:
        yield f"the watermarks differ from epoch {later[0].epoch} on"
    if any(each.is_unknown for each in epochs):
        yield "some epochs have no digests (digests=False, or an earlier Seamark)"
