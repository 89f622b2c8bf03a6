"""Which epochs of a store can be run again, and from which checkpoint each of them began.

Several checkpoints may be of one epoch: a rollback, an upgrade, a recorded gap and the end of a run
repeat the newest one. The first of them is the decision, and its parent has the state with which
the epoch began.

Tests: ``tests/pipeline/test_recorded_epochs.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from seamark._common.text import ranges_text
from seamark.errors import CheckpointNotFoundError, DamageError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore
from seamark.store.inspection import scan


class KnownCheckpoint(NamedTuple):
    """What one manifest says, as far as it matters here."""

    checkpoint_id: int
    epoch: int = 0
    batch: int = 0
    parent_id: int | None = None
    is_given_up: bool = False
    """Whether a rollback has taken it out of use."""
    is_upgrade: bool = False
    """Whether it is an epoch's state rearranged, and not the decision of the epoch."""
    damage: str | None = None


class RecordedEpoch(NamedTuple):
    """One epoch: the checkpoint that decided it, and the one whose state it began with."""

    decided_id: int
    parent_id: int | None
    """None for the first epoch, which began without state."""
    why_not: str = ""
    """Why it cannot be run again; empty when it can."""


def recorded_epochs(checkpoints: Iterable[KnownCheckpoint]) -> dict[int, RecordedEpoch]:
    """Every epoch of the history that counts, ascending. Pure."""
    known = {each.checkpoint_id: each for each in checkpoints}
    epochs: dict[int, RecordedEpoch] = {}
    for each in sorted(known.values()):
        parent = known.get(each.parent_id or 0)
        repeats = parent is not None and parent.epoch == each.epoch and not parent.damage
        if each.is_given_up or each.damage or repeats or each.epoch in epochs:
            continue
        epochs[each.epoch] = RecordedEpoch(
            each.checkpoint_id, each.parent_id, _why_not(each, parent)
        )
    return dict(sorted(epochs.items()))


def _why_not(decided: KnownCheckpoint, parent: KnownCheckpoint | None) -> str:
    number, came_from = decided.checkpoint_id, decided.parent_id
    if decided.is_upgrade:
        return f"checkpoint {number} is an upgrade, and the one that decided the epoch was pruned"
    if decided.epoch != decided.batch + 1:
        return f"checkpoint {number} says that it is batch {decided.batch}, which is another epoch"
    if came_from is None:
        if decided.batch == 0:
            return ""
        return "it is the first epoch of this store, and the state before it was never in it"
    if parent is None:
        return f"checkpoint {came_from}, with whose state it began, was pruned"
    if parent.damage:
        return f"checkpoint {came_from}, with whose state it began, is damaged: {parent.damage}"
    if parent.epoch != decided.epoch - 1:
        return f"checkpoint {came_from}, with whose state it began, is of epoch {parent.epoch}"
    return ""


def epochs_of(store: CheckpointStore) -> dict[int, RecordedEpoch]:
    """The epochs of a store, ascending. Every manifest is read once."""
    found: list[KnownCheckpoint] = []
    for each in scan(store):
        manifest = each.manifest
        if manifest is None:
            found.append(KnownCheckpoint(each.checkpoint_id, damage=each.damage or "unreadable"))
            continue
        found.append(
            KnownCheckpoint(
                each.checkpoint_id,
                manifest.epoch,
                manifest.batch,
                manifest.parent_id,
                each.superseded,
                manifest.upgrade is not None,
                each.damage,
            )
        )
    return recorded_epochs(found)


@dataclass(frozen=True)
class EpochToReplay:
    """The manifests of one epoch and of the checkpoint that it began from."""

    decided: CheckpointManifest
    parent: CheckpointManifest | None

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self.decided.epoch


def epoch_to_replay(
    store: CheckpointStore, epoch: int, known: Mapping[int, RecordedEpoch] | None = None
) -> EpochToReplay:
    """The checkpoints that an epoch is run again from; ``known`` is what the store has, if read.

    :class:`CheckpointNotFoundError` says why an epoch cannot be run again, and which can.
    """
    epochs = epochs_of(store) if known is None else known
    recorded = epochs.get(epoch)
    if recorded is None or recorded.why_not:
        raise CheckpointNotFoundError(
            f"epoch {epoch} cannot be run again",
            where=f"{store.url}: {recorded.why_not if recorded else 'it is not in the store'}",
            hint=_choice(epochs),
        )
    decided = _loaded(store, recorded.decided_id)
    parent = None if recorded.parent_id is None else _loaded(store, recorded.parent_id)
    if decided.native is not None:
        raise RefusedError(
            "this store holds snapshots of a query that is not a pipeline",
            where=store.url,
            hint="'seamark spark restore' makes its directory as it was before any batch.",
        )
    return EpochToReplay(decided, parent)


def _loaded(store: CheckpointStore, checkpoint_id: int) -> CheckpointManifest:
    manifest = store.load_by_id(checkpoint_id)
    if manifest is None:
        raise CheckpointNotFoundError(
            f"checkpoint {checkpoint_id} was pruned while it was being read",
            where=store.url,
            hint="The store is in use. Pin a checkpoint before you read it, or take a newer one.",
        )
    if manifest.epoch < 1 or manifest.batch != manifest.epoch - 1:
        raise DamageError(
            f"checkpoint {checkpoint_id} says that epoch {manifest.epoch} is batch "
            f"{manifest.batch}",
            where=store.url,
        )
    return manifest


def _choice(epochs: Mapping[int, RecordedEpoch]) -> str:
    possible = [epoch for epoch, recorded in epochs.items() if not recorded.why_not]
    if not possible:
        return "None of its epochs can be: each needs the checkpoint before it (keep=, pins)."
    return f"Epochs that can be: {ranges_text(possible)}."
