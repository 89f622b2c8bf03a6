"""Which checkpoint decided an epoch, with which state it began, and why one cannot be run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark import CheckpointManifest, open_store
from seamark.errors import CheckpointNotFoundError, DamageError, RefusedError
from seamark.pipeline.replay.recorded_epochs import (
    KnownCheckpoint,
    RecordedEpoch,
    epoch_to_replay,
    epochs_of,
    recorded_epochs,
)


def known(
    number: int, epoch: int, parent: int | None, batch: int | None = None, **more: object
) -> KnownCheckpoint:
    at = epoch - 1 if batch is None else batch
    return KnownCheckpoint(number, epoch, at, parent, **more)  # type: ignore[arg-type]


def test_an_epoch_begins_with_the_state_of_the_checkpoint_before_it() -> None:
    found = recorded_epochs([known(2, 2, 1), known(1, 1, None), known(3, 3, 2)])
    assert found == {1: RecordedEpoch(1, None), 2: RecordedEpoch(2, 1), 3: RecordedEpoch(3, 2)}


def test_of_several_checkpoints_of_an_epoch_the_first_one_decided_it() -> None:
    repeated = [known(1, 1, None), known(2, 1, 1), known(3, 1, 2), known(4, 2, 3)]
    assert recorded_epochs(repeated) == {1: RecordedEpoch(1, None), 2: RecordedEpoch(4, 3)}


def test_after_a_rollback_an_epoch_is_the_one_of_the_new_history() -> None:
    found = recorded_epochs(
        [
            known(1, 1, None),
            known(2, 2, 1, is_given_up=True),
            known(3, 3, 2, is_given_up=True),
            known(4, 1, 1),
            known(5, 2, 4),
        ]
    )
    assert found == {1: RecordedEpoch(1, None), 2: RecordedEpoch(5, 4)}


@pytest.mark.parametrize(
    ("checkpoints", "why"),
    [
        ([known(7, 5, 6)], "checkpoint 6, with whose state it began, was pruned"),
        (
            [known(7, 5, 6), KnownCheckpoint(6, damage="SHA-256 differs")],
            "checkpoint 6, with whose state it began, is damaged: SHA-256 differs",
        ),
        ([known(7, 5, 6), known(6, 3, 5)], "checkpoint 6, with whose state it began, is of epoch"),
        ([known(7, 5, None)], "it is the first epoch of this store, and the state before it"),
        (
            [known(7, 5, 6, is_upgrade=True)],
            "checkpoint 7 is an upgrade, and the one that decided the epoch was pruned",
        ),
        ([known(7, 5, 6, batch=9), known(6, 4, 5)], "says that it is batch 9"),
    ],
)
def test_why_an_epoch_cannot_be_run_again_is_said(
    checkpoints: list[KnownCheckpoint], why: str
) -> None:
    assert why in recorded_epochs(checkpoints)[5].why_not


def test_an_upgrade_does_not_hide_the_decision_of_its_epoch() -> None:
    found = recorded_epochs(
        [known(1, 1, None), known(2, 2, 1), known(3, 2, 2, is_upgrade=True), known(4, 3, 3)]
    )
    assert found[2] == RecordedEpoch(2, 1)
    assert found[3] == RecordedEpoch(4, 3)


# in a store


def save(root: Path, epochs: int, **more: object) -> None:
    with open_store(root) as store:
        store.claim()
        for epoch in range(1, epochs + 1):
            parent = store.next_id() - 1 or None
            manifest = CheckpointManifest.new(
                store.next_id(), epoch=epoch, batch=epoch - 1, parent_id=parent
            )
            store.save(manifest.with_extra(**more) if more else manifest)


def test_the_error_for_a_pruned_epoch_says_which_can_be_run_again(tmp_path: Path) -> None:
    save(tmp_path, 9)
    with open_store(tmp_path) as store:
        store.claim()
        store.prune(4)
        assert list(epochs_of(store)) == [6, 7, 8, 9]
        with pytest.raises(CheckpointNotFoundError) as refused:
            epoch_to_replay(store, 3)
        assert "it is not in the store" in str(refused.value)
        assert "Epochs that can be: 7 to 9." in str(refused.value)
        with pytest.raises(CheckpointNotFoundError, match="was pruned"):
            epoch_to_replay(store, 6)
        found = epoch_to_replay(store, 8)
        assert (found.decided.checkpoint_id, found.epoch) == (8, 8)
        assert found.parent is not None
        assert found.parent.epoch == 7


def test_a_store_of_one_kept_checkpoint_has_nothing_to_run_again(tmp_path: Path) -> None:
    save(tmp_path, 3)
    with open_store(tmp_path) as store:
        store.claim()
        store.prune(1)
        with pytest.raises(CheckpointNotFoundError, match="None of its epochs can be"):
            epoch_to_replay(store, 3)


def test_a_manifest_that_is_damaged_is_passed_over_and_told(tmp_path: Path) -> None:
    save(tmp_path, 4)
    path = next(tmp_path.rglob("*0002*/manifest.json"))
    path.write_bytes(path.read_bytes()[:-20])
    with open_store(tmp_path) as store:
        epochs = epochs_of(store)
        assert 2 not in epochs
        assert "is damaged" in epochs[3].why_not
        assert not epochs[4].why_not


def test_snapshots_of_a_plain_query_are_not_epochs_of_a_pipeline(tmp_path: Path) -> None:
    save(tmp_path, 2, native={"query": "q"})
    with open_store(tmp_path) as store, pytest.raises(RefusedError, match="not a pipeline"):
        epoch_to_replay(store, 2)


def test_a_checkpoint_that_changes_under_way_is_checked_again(tmp_path: Path) -> None:
    save(tmp_path, 2)
    with open_store(tmp_path) as store:
        epochs = {1: RecordedEpoch(2, None)}
        assert epoch_to_replay(store, 1, epochs).epoch == 2
        store.claim()
        store.save(CheckpointManifest.new(3, epoch=9, batch=2))
        with pytest.raises(DamageError, match="epoch 9 is batch 2"):
            epoch_to_replay(store, 9, {9: RecordedEpoch(3, None)})
