"""The plan of an epoch is stored once, found by every later try, and gone when nobody needs it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from obstore.store import MemoryStore

from seamark._common.json_documents import seal
from seamark.blobs.memory import MemoryBlobs
from seamark.blobs.object_store import ObjectBlobs
from seamark.errors import (
    DamageError,
    FencedError,
    FormatTooNewError,
    InvalidInputError,
    RefusedError,
    StoreUnavailableError,
)
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore, open_store, plans
from seamark.store.copy import run
from seamark.store.copy.run import copy_checkpoints
from seamark.store.layout import ObjectLayout
from seamark.store.plans import decode_plan
from tests.store.support.copies import BEGUN, COUNTING, fill, save
from tests.store.support.scenarios import plan

Open = Callable[[], CheckpointStore]


@pytest.fixture(params=["filesystem", "object store", "memory"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """A new handle on one and the same store, each time."""
    if request.param == "filesystem":
        return lambda: open_store(tmp_path / "store")
    if request.param == "memory":
        blobs = MemoryBlobs()
        return lambda: CheckpointStore(blobs, ObjectLayout())
    bucket = MemoryStore()
    return lambda: CheckpointStore(ObjectBlobs(bucket, "test"), ObjectLayout())


@pytest.fixture
def store(reopen: Open) -> Iterator[CheckpointStore]:
    with reopen() as store:
        store.claim(pipeline="orders")
        yield store


def timeline_of(store: CheckpointStore) -> str:
    return store.owner().timeline


# one plan for each epoch


def test_whoever_tries_an_epoch_later_gets_the_plan_that_was_stored_first(
    store: CheckpointStore, reopen: Open
) -> None:
    first = plan(timeline_of(store), 1, "first")
    assert store.plans.keep(first) == first
    assert store.plans.keep(first) == first
    assert store.plans.keep(plan(timeline_of(store), 1, "second")) == first
    with reopen() as later:
        later.claim(pipeline="orders")
        assert later.plans.read(timeline_of(later), 1) == first
        assert later.plans.keep(plan(timeline_of(later), 1, "third")) == first


def test_a_writer_that_was_fenced_stores_no_plan(store: CheckpointStore, reopen: Open) -> None:
    with reopen() as winner:
        winner.claim(pipeline="orders")
        with pytest.raises(FencedError):
            store.plans.keep(plan(timeline_of(winner), 1))
        assert winner.plans.entries() == []


def test_other_timelines_and_epochs_have_plans_of_their_own(store: CheckpointStore) -> None:
    old = timeline_of(store)
    store.plans.keep(plan(old, 2, "old"))
    save(store, 1)
    new = store.supersede(1, 1).timeline
    assert store.plans.keep(plan(new, 2, "new")).fingerprint == "of new"
    assert store.plans.read(new, 3) is None
    assert store.plans.epochs_after(new, 1) == {2}
    assert store.plans.epochs_after(new, 2) == set()


def test_nobody_else_sees_plans(store: CheckpointStore) -> None:
    store.plans.keep(plan(timeline_of(store), 1))
    assert store.list_ids() == []
    assert store.next_id() == 1
    assert store.recover_latest_validated().fresh_start
    assert store.load_latest() is None


# keeping house


def test_a_prune_removes_plans_that_no_start_could_need(store: CheckpointStore) -> None:
    for checkpoint_id in range(1, 6):
        save(store, checkpoint_id)  # epochs 101 to 105
        store.plans.keep(plan(timeline_of(store), checkpoint_id + 101))
    store.prune(2)
    # a start may have to fall back to epoch 104; 106 was begun
    assert store.plans.epochs_after(timeline_of(store), 0) == {105, 106}


def test_a_pin_does_not_keep_plans_for_ever(store: CheckpointStore) -> None:
    save(store, 1)
    store.pin("release", 1)
    for checkpoint_id in range(2, 6):
        save(store, checkpoint_id)
        store.plans.keep(plan(timeline_of(store), checkpoint_id + 100))
    store.prune(1)
    assert store.list_ids() == [1, 5]
    assert store.plans.entries() == []


def test_plans_of_a_timeline_that_was_left_go_with_the_next_prune(store: CheckpointStore) -> None:
    save(store, 1)
    save(store, 2)
    store.plans.keep(plan(timeline_of(store), 103))
    store.supersede(2, 2)
    store.plans.keep(plan(timeline_of(store), 102))
    store.prune(20)
    assert [p.epoch for p in store.plans.entries()] == [102]


def test_a_clean_up_removes_the_same_plans_when_they_are_old_enough(
    store: CheckpointStore,
) -> None:
    save(store, 1)
    store.plans.keep(plan(timeline_of(store), 101))
    store.plans.keep(plan(timeline_of(store), 102))
    assert store.plan_cleanup() == []
    assert store.cleanup_orphans(min_age=0) == 1
    assert store.plans.epochs_after(timeline_of(store), 0) == {102}


def test_I9_a_copy_of_a_store_goes_on_with_the_epoch_that_was_begun(
    store: CheckpointStore, tmp_path: Path
) -> None:
    fill(store)
    with open_store(tmp_path / "copy") as target:
        for _ in range(2):
            copy_checkpoints(store, target)
            assert target.list_ids() == COUNTING
            begun = target.plans.read(timeline_of(store), BEGUN)
            assert begun == store.plans.read(timeline_of(store), BEGUN) is not None
            assert len(target.plans.entries()) == 1


def test_I9_a_copy_of_a_store_without_a_checkpoint_has_the_plan_of_its_first_epoch(
    store: CheckpointStore, tmp_path: Path
) -> None:
    begun = plan(timeline_of(store), 1)
    store.plans.keep(begun)
    with open_store(tmp_path / "copy") as target:
        for _ in range(2):
            copy_checkpoints(store, target)
            assert target.owner().pipeline == "orders"
            assert target.plans.read(timeline_of(store), 1) == begun
        target.claim(pipeline="orders")
        assert timeline_of(target) == timeline_of(store)
    with open_store(tmp_path / "begun") as other:
        other.claim()
        other.close()
    with (
        open_store(tmp_path / "begun") as other,
        pytest.raises(RefusedError, match="history of its own"),
    ):
        copy_checkpoints(store, other)


@pytest.mark.parametrize("copied_before", [False, True])
def test_I9_a_copy_of_a_store_that_was_reset_has_the_plan_of_its_new_first_epoch(
    store: CheckpointStore, tmp_path: Path, copied_before: bool
) -> None:
    save(store, 1)
    save(store, 2)
    with open_store(tmp_path / "copy") as target:
        if copied_before:
            copy_checkpoints(store, target)
        store.supersede(1, 2)
        begun = plan(timeline_of(store), 1)
        store.plans.keep(begun)
        for _ in range(2):
            copy_checkpoints(store, target)
            assert target.plans.read(timeline_of(store), 1) == begun
        target.claim(pipeline="orders")
        assert timeline_of(target) == timeline_of(store)
        assert target.recover_latest_validated().chosen_id is None
        save(target, target.next_id())
        assert target.recover_latest_validated().chosen_id == 3


# what cannot be trusted


def test_I7_a_flipped_bit_anywhere_in_a_plan_is_noticed(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.claim(pipeline="orders")
        timeline = timeline_of(store)
        store.plans.keep(plan(timeline, 1))
    (file,) = (tmp_path / "plans").iterdir()
    whole = file.read_bytes()
    seeded = random.Random(1)
    for at in seeded.sample(range(len(whole) * 8), 300):
        data = bytearray(whole)
        data[at // 8] ^= 1 << at % 8
        with pytest.raises(DamageError, match="epoch 1 is damaged"):
            decode_plan(bytes(data), timeline, 1)
    file.write_bytes(whole[:-1])
    with open_store(tmp_path) as store, pytest.raises(DamageError) as told:
        store.plans.read(timeline, 1)
    assert f"plans/{timeline}-000001.json" in str(told.value.where)
    assert "roll the pipeline back" in str(told.value.hint)


@pytest.mark.parametrize(
    "document",
    [
        b"{}",
        b'{"version":1}',
        b'{"version":1,"timeline":5}',
        b'{"version":1,"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        msgspec.json.encode(plan("0" * 32, 2)),
        msgspec.json.encode(plan("1" * 32, 1)),
    ],
)
def test_a_plan_that_was_not_written_here_is_damage(document: bytes) -> None:
    with pytest.raises(DamageError):
        decode_plan(seal(document), "0" * 32, 1)


def test_a_plan_of_a_newer_seamark_is_left_to_that() -> None:
    newer = msgspec.structs.replace(plan("0" * 32, 1), version=2)
    with pytest.raises(FormatTooNewError):
        decode_plan(seal(msgspec.json.encode(newer)), "0" * 32, 1)


@pytest.mark.parametrize("timeline", ["", "..", "../../x", "a" * 31, "A" * 32, "0" * 31 + "/"])
def test_a_timeline_cannot_lead_out_of_the_store(store: CheckpointStore, timeline: str) -> None:
    with pytest.raises(InvalidInputError):
        store.plans.keep(plan(timeline, 1))
    with pytest.raises(InvalidInputError):
        store.plans.read(timeline, 1)


def test_other_files_beside_plans_are_left_alone(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.claim(pipeline="orders")
        save(store, 1)
        folder = tmp_path / "plans"
        folder.mkdir()
        names = ["notes.txt", f"{'0' * 32}-1.json", f"{'0' * 32}-0000001.json"]
        for name in names:
            (folder / name).touch()
        store.prune(1)
        assert store.plans.entries() == []
        assert sorted(path.name for path in folder.iterdir()) == sorted(names)


def test_a_plan_that_is_too_large_is_refused_before_anything_is_written(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "PLAN_LIMIT", 1000)
    with pytest.raises(RefusedError, match="maxFilesPerTrigger"):
        store.plans.keep(plan(timeline_of(store), 1, "x" * 1000))
    assert store.plans.entries() == []


def test_a_copy_that_is_cut_off_has_brought_the_plans_before_any_checkpoint(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(CheckpointManifest.new(1, epoch=1))
    mine = store.plans.keep(plan(timeline_of(store), 2))

    def cut_off(*_: object, **__: object) -> None:
        raise StoreUnavailableError("the target does not answer")

    monkeypatch.setattr(run, "_copy_one", cut_off)
    with open_store("memory://") as target:
        with pytest.raises(StoreUnavailableError):
            run.copy_checkpoints(store, target)
        assert target.plans.read(timeline_of(store), 2) == mine
