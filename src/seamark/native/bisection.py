"""Finding the first epoch for which a test fails, by halving.

A test gets Spark's checkpoint directory as it was after an epoch, restored and verified. It fails
from some epoch on. Among n epochs that one is found in at most ⌈log2(n + 1)⌉ restores.

Tests: ``tests/native/test_bisection.py``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from seamark._common.logs import logger_named
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import CheckpointNotFoundError, DamageError, InvalidInputError
from seamark.native.restore import restore_directory
from seamark.store import CheckpointStore
from seamark.store.inspection import scan

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
    """Epochs between the two that were skipped: one of them may be the first bad one."""
    tried: tuple[Tried, ...]


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
        return len(self.candidates).bit_length()


Test = Callable[[Candidate], Verdict]


def bisect(span: Span, test: Test, told: Callable[[Tried], None] | None = None) -> Bisection:
    """The first epoch of a span for which ``test`` fails; ``told`` gets each test that was made."""
    candidates = span.candidates
    tried: list[Tried] = []
    verdicts: dict[int, Verdict] = {}
    good, bad = -1, len(candidates)  # places of the last good and the first bad one

    def judged(place: int) -> Verdict:
        candidate = candidates[place]
        verdict = verdicts[place] = test(candidate)
        tried.append(Tried(candidate.epoch, candidate.checkpoint_id, verdict))
        if told is not None:
            told(tried[-1])
        return verdict

    while (place := _middle(good, bad, verdicts)) is not None:
        verdict = judged(place)
        if verdict is Verdict.GOOD:
            good = place
        elif verdict is Verdict.BAD:
            bad = place
    return Bisection(
        first_bad=candidates[bad] if bad < len(candidates) else span.bad,
        last_good=candidates[good] if good >= 0 else span.good,
        between=tuple(candidates[good + 1 : bad]),
        tried=tuple(tried),
    )


def _middle(good: int, bad: int, known: dict[int, Verdict]) -> int | None:
    """The place nearest to the middle that was not tried; None when there is none."""
    open_places = [place for place in range(good + 1, bad) if place not in known]
    if not open_places:
        return None
    middle = (good + bad) // 2
    return min(open_places, key=lambda place: abs(place - middle))


def span_of(store: CheckpointStore, *, good: int | None = None, bad: int | None = None) -> Span:
    """The epochs of the store's history, each with its newest checkpoint.

    ``good`` and ``bad`` are ids of checkpoints that are known to pass and to fail: only what lies
    between them is tested. A checkpoint that cannot be read is left out.
    """
    newest: dict[int, int] = {}
    epochs: dict[int, int] = {}
    for each in scan(store):  # newest first
        if each.manifest is None:
            log.warning("checkpoint %d is left out: %s", each.checkpoint_id, each.damage)
        elif not each.superseded:
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
    between = (
        Candidate(epoch, newest[epoch])
        for epoch in sorted(newest)
        if (known_good is None or known_good.epoch < epoch)
        and (known_bad is None or epoch < known_bad.epoch)
    )
    return Span(tuple(between), known_good, known_bad)


def restored_test(store: CheckpointStore, judge: Callable[[int, Path], Verdict]) -> Test:
    """A test of the directory that a checkpoint restores to; ``judge`` gets its epoch and path.

    The directory is removed afterwards. A checkpoint that cannot be restored is skipped.
    """

    def test(candidate: Candidate) -> Verdict:
        with tempfile.TemporaryDirectory(prefix="seamark-bisect-") as folder:
            directory = Path(folder, "checkpoint")
            try:
                restore_directory(store, candidate.checkpoint_id, LocalDirectory(str(directory)))
            except (DamageError, CheckpointNotFoundError) as error:
                log.warning("epoch %d is skipped: %s", candidate.epoch, error)
                return Verdict.SKIPPED
            return judge(candidate.epoch, directory)

    return test
