"""Finding the first epoch for which a test fails, by halving.

A test gets Spark's checkpoint directory as it was after an epoch, restored and verified. It fails
from some epoch on. Among n epochs that one is found in at most ⌈log2(n + 1)⌉ restores.

Tests: ``tests/native/test_bisection.py``.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Final

from seamark import limits
from seamark._common.logs import logger_named
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import CheckpointNotFoundError, DamageError, InvalidInputError
from seamark.manifest import CheckpointManifest
from seamark.native.restore import RestoreOptions, restore_directory
from seamark.store import CheckpointStore
from seamark.store.inspection import scan, was_pruned

log = logger_named("seamark.native")


class Verdict(StrEnum):
    """What a test says about an epoch."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"
    """It says nothing: the checkpoint cannot be restored, or the test cannot decide."""


@dataclass(frozen=True)
class Candidate:
    """An epoch, and the newest checkpoint of it."""

    epoch: int
    checkpoint_id: int
    links: int | None = field(default=0, compare=False)
    """How many checkpoints it builds on; None when one of them is gone or cannot be read."""


@dataclass(frozen=True)
class Tried:
    """One test that was made."""

    epoch: int
    checkpoint_id: int
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """What halving has found."""

    first_bad: Candidate | None
    """The first epoch that fails; None when the newest one passes."""
    last_good: Candidate | None
    """The epoch before it; None when the oldest one fails."""
    between: tuple[Candidate, ...]
    """Epochs between the two that were skipped or left out: one may be the first bad one."""
    tried: tuple[Tried, ...]
    left_out: int = 0
    """Epochs that were not tried, because a checkpoint that they build on is gone or damaged."""


@dataclass(frozen=True)
class Span:
    """The epochs among which the first bad one is looked for, oldest first."""

    candidates: tuple[Candidate, ...]
    good: Candidate | None = None
    """The epoch before them, when it is known to pass."""
    bad: Candidate | None = None
    """The epoch after them, when it is known to fail."""

    @property
    def most_tests(self) -> int:
        """How many tests it takes at most, if none is skipped."""
        return len(self.whole_places).bit_length()

    @cached_property
    def whole_places(self) -> list[int]:
        """Places of those that can be tried."""
        return [place for place, each in enumerate(self.candidates) if each.links is not None]


Test = Callable[[Candidate], Verdict]


def bisect(span: Span, test: Test, told: Callable[[Tried], None] | None = None) -> Bisection:
    """The first epoch of a span for which ``test`` fails; ``told`` gets each test that was made."""
    candidates = span.candidates
    tried: list[Tried] = []
    untried = list(span.whole_places)
    good, bad = -1, len(candidates)  # places of the last good and the first bad one

    while (at := _nearest_to_middle(good, bad, untried)) is not None:
        place = untried.pop(at)
        candidate = candidates[place]
        verdict = test(candidate)
        tried.append(Tried(candidate.epoch, candidate.checkpoint_id, verdict))
        if told is not None:
            told(tried[-1])
        if verdict is Verdict.GOOD:
            good = place
        elif verdict is Verdict.BAD:
            bad = place
    return Bisection(
        first_bad=candidates[bad] if bad < len(candidates) else span.bad,
        last_good=candidates[good] if good >= 0 else span.good,
        between=tuple(candidates[good + 1 : bad]),
        tried=tuple(tried),
        left_out=len(candidates) - len(span.whole_places),
    )


def _nearest_to_middle(good: int, bad: int, untried: Sequence[int]) -> int | None:
    """Where in the untried places, ascending, the one nearest to the middle is; None without one.

    Found by halving too: of very many epochs most may have been skipped.
    """
    middle = (good + bad) // 2
    after = bisect_left(untried, middle)
    around = (at for at in (after - 1, after) if 0 <= at < len(untried))
    inside = (at for at in around if good < untried[at] < bad)
    return min(inside, key=lambda at: abs(untried[at] - middle), default=None)


def span_of(store: CheckpointStore, *, good: int | None = None, bad: int | None = None) -> Span:
    """The epochs of the store's history, each with its newest checkpoint.

    ``good`` and ``bad`` are ids of checkpoints that are known to pass and to fail: only what lies
    between them is tested. A checkpoint that cannot be read is left out, and one whose chain of
    parents is broken is not tried: each manifest is read once, however long the chains are.
    """
    newest: dict[int, int] = {}
    epochs: dict[int, int] = {}
    manifests: dict[int, int | None] = {}  # each with what it builds on
    for each in scan(store):  # newest first
        if each.manifest is None:
            log.warning("checkpoint %d is left out: %s", each.checkpoint_id, each.damage)
        elif not each.superseded:
            manifests[each.checkpoint_id] = _parent_of(each.manifest)
            newest.setdefault(each.manifest.epoch, each.checkpoint_id)
            epochs[each.checkpoint_id] = each.manifest.epoch
    for name, given in (("good", good), ("bad", bad)):
        if given is not None and given not in epochs:
            raise CheckpointNotFoundError(f"there is no checkpoint {given}, given as {name}")
    known_good = None if good is None else Candidate(epochs[good], good)
    known_bad = None if bad is None else Candidate(epochs[bad], bad)
    if known_good and known_bad and known_good.epoch >= known_bad.epoch:
        raise InvalidInputError(
            f"the good epoch ({known_good.epoch}) must be before the bad one ({known_bad.epoch})",
            hint="A test passes up to some epoch and fails from the next one on.",
        )
    links = _links(store, manifests)
    between = (
        Candidate(epoch, newest[epoch], links[newest[epoch]])
        for epoch in sorted(newest)
        if (known_good is None or known_good.epoch < epoch)
        and (known_bad is None or epoch < known_bad.epoch)
    )
    return Span(tuple(between), known_good, known_bad)


_NOT_OLDER: Final = 0
"""In place of a parent that is not older; no checkpoint has this id."""


def _parent_of(manifest: CheckpointManifest) -> int | None:
    try:
        return manifest.builds_on
    except DamageError:
        return _NOT_OLDER


def _links(store: CheckpointStore, parents: Mapping[int, int | None]) -> dict[int, int | None]:
    """How many checkpoints each one builds on; None where one of them is not to be had."""
    links: dict[int, int | None] = {}
    for checkpoint_id in sorted(parents):  # what it builds on is older
        parent = parents[checkpoint_id]
        if parent is None:
            links[checkpoint_id] = 0
            continue
        if parent not in links:
            links[parent] = 0 if _is_there(store, parent) else None
        before = links[parent]
        links[checkpoint_id] = None if before is None else before + 1
    return links


def _is_there(store: CheckpointStore, checkpoint_id: int) -> bool:
    """Whether a checkpoint that was not among those listed is there all the same."""
    try:
        return checkpoint_id != _NOT_OLDER and store.load_by_id(checkpoint_id) is not None
    except DamageError:
        return False


def judged_by(predicate: Callable[[int, Path], bool]) -> Callable[[int, Path], Verdict]:
    """The verdict of a function that is true for what is good."""
    return lambda epoch, path: Verdict.GOOD if predicate(epoch, path) else Verdict.BAD


def restored_test(
    store: CheckpointStore,
    judge: Callable[[int, Path], Verdict],
    own_classes: Collection[str] = (),
) -> Test:
    """A test of the directory that a checkpoint restores to; ``judge`` gets its epoch and path.

    The directory is removed afterwards. A checkpoint that cannot be restored is skipped;
    :class:`DamageError` when very many cannot. :class:`RefusedError` when the offset log names
    other classes than Spark's and ``own_classes``: a test has Spark read the directory.
    """
    in_vain = 0
    wishes = RestoreOptions(own_classes=own_classes)

    def failed(candidate: Candidate) -> Verdict:
        nonlocal in_vain
        if was_pruned(store, candidate.checkpoint_id):
            return Verdict.SKIPPED  # which costs no restore, and is no damage
        in_vain += 1 + (candidate.links or 0)
        if in_vain > limits.MOST_LINKS_IN_VAIN:
            raise DamageError(
                f"very many epochs cannot be restored, epoch {candidate.epoch} among them",
                where=store.url,
                hint="'seamark verify' says which are whole. Name one that is, of which you know "
                "the answer, as the good or the bad one (--good, --bad).",
            )
        return Verdict.SKIPPED

    def test(candidate: Candidate) -> Verdict:
        with tempfile.TemporaryDirectory(prefix="seamark-bisect-") as folder:
            directory = Path(folder, "checkpoint")
            try:
                place = LocalDirectory(str(directory))
                restore_directory(store, candidate.checkpoint_id, place, wishes)
            except (DamageError, CheckpointNotFoundError) as error:
                log.warning("epoch %d is skipped: %s", candidate.epoch, error)
                return failed(candidate)
            return judge(candidate.epoch, directory)

    return test
