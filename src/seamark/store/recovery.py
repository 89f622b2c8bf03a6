"""The walk from the newest checkpoint down to the first one that can be trusted.

Only proven damage lets the walk go on to an older checkpoint. An I/O error stops it: going back
because a store was slow would rewind a pipeline, and finding nothing because of one would reset it.

Tests: ``tests/store/test_conformance.py``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from seamark.store.consistent_read import pointed_listing, raise_if_overtaken, until_settled
from seamark.store.owner import UNCOUNTED, Owner, Standing, standing
from seamark.store.parts import StoreParts
from seamark.store.validation import CheckpointKind, KnownCheckpoints, ReadState


@dataclass(frozen=True)
class RecoveryReport:
    """The walk from the newest checkpoint down: what was chosen, what was not, and why."""

    chosen_id: int | None
    skipped: list[tuple[int, str]]
    examined: int
    elapsed: float
    fresh_start: bool
    """True only for a store that has never held a checkpoint."""
    warnings: list[str] = field(default_factory=list)
    superseded: frozenset[int] = frozenset()
    """Those of ``skipped`` that a rollback took out of use. All others are damaged or missing."""

    @property
    def broken(self) -> list[tuple[int, str]]:
        """Those of ``skipped`` that should have counted, newest first."""
        return [(number, why) for number, why in self.skipped if number not in self.superseded]

    @property
    def begins_anew(self) -> bool:
        """Whether there is nothing to go on from, and no damage is the reason for that."""
        if self.chosen_id is not None:
            return False
        return self.fresh_start or (bool(self.skipped) and not self.broken)


def recover(parts: StoreParts, read_state: ReadState = "always") -> RecoveryReport:
    """Choose the newest checkpoint that is valid, of the current timeline, and not superseded."""
    started = time.perf_counter()
    return until_settled(lambda: _walk(parts, started, read_state), parts.blobs.url)


def _walk(parts: StoreParts, started: float, read_state: ReadState) -> RecoveryReport:
    listed, owner, named = pointed_listing(parts.manifests, parts.ownership)
    present = frozenset(listed)
    skipped: list[tuple[int, str]] = []
    given_up: set[int] = set()
    examined = 0
    decided = False
    known = KnownCheckpoints()  # many may build on one that is damaged: it is read once
    for checkpoint_id in _candidates(listed, named, owner):
        if standing(owner, checkpoint_id) is Standing.SUPERSEDED:
            skipped.append((checkpoint_id, "superseded by a rollback"))
            given_up.add(checkpoint_id)
            decided = True
            continue
        examined += 1
        candidate = parts.validator.examine(
            checkpoint_id, owner, read_state=read_state, known=known
        )
        if candidate.kind is CheckpointKind.TOMBSTONE:
            continue
        decided = True
        if candidate.kind is not CheckpointKind.CHECKPOINT:
            # before anything is called gone or damaged
            was_there = checkpoint_id in present or candidate.kind is CheckpointKind.DAMAGED
            there = [checkpoint_id] if was_there else []
            raise_if_overtaken(parts.manifests, parts.ownership, owner, there)
        else:
            warnings = [str(issue) for issue in candidate.result.issues]
            elapsed = time.perf_counter() - started
            return RecoveryReport(
                checkpoint_id, skipped, examined, elapsed, False, warnings, frozenset(given_up)
            )
        why = "; ".join(candidate.result.damage)
        if candidate.kind is CheckpointKind.NOTHING and checkpoint_id == named:
            why += ", although the pointer names it"
        skipped.append((checkpoint_id, why))
    fresh = not decided and named is None and owner.prune_boundary == 0
    elapsed = time.perf_counter() - started
    return RecoveryReport(None, skipped, examined, elapsed, fresh, superseded=frozenset(given_up))


def _candidates(listed: list[int], named: int | None, owner: Owner) -> list[int]:
    """Ids to look at, newest first: what is listed, and what the pointer names."""
    ids = {*listed, *([named] if named else [])}
    return sorted(
        (i for i in ids if standing(owner, i) not in UNCOUNTED),
        reverse=True,
    )
