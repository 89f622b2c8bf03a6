"""A checkpoint is its manifest, its sidecar and its partitioned state: the store owns all three."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from seamark import CheckpointManifest, open_store
from seamark._common.json_documents import unseal
from seamark.errors import DamageError, FencedError
from seamark.limits import MOST_MISSING_NAMED
from seamark.state import CheckpointId, CheckpointManifestV2, StateStore
from seamark.store import CheckpointStore
from seamark.store.content_health import check_contents
from seamark.store.copy.run import copy_checkpoints
from seamark.store.references import STATE_PREFIX

LIMIT = 1 << 20


@pytest.fixture(params=["filesystem", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "store") if request.param == "filesystem" else _memory()


@pytest.fixture
def store(url: str) -> Iterator[CheckpointStore]:
    """1 ← 2 and 3 ← 4; the state of 1 and of 3 is partitioned."""
    with open_store(url) as opened:
        save(opened, 1, partitioned=True)
        save(opened, 2, parent_id=1)
        save(opened, 3, partitioned=True)
        save(opened, 4, parent_id=3)
        yield opened


def _memory() -> str:
    return f"memory://{uuid.uuid4().hex}"


def save(
    store: CheckpointStore,
    checkpoint_id: int,
    *,
    partitioned: bool = False,
    parent_id: int | None = None,
) -> None:
    path = None
    if partitioned:
        with store.partitioned_state.begin(checkpoint_id) as writer:
            for partition in range(3):
                writer.put("agg", partition, b"%d of %d" % (partition, checkpoint_id) * 50)
            path = f"state/{writer.commit().checkpoint_id}"
    store.save(
        CheckpointManifest.new(
            checkpoint_id,
            checkpoint_id,
            is_incremental=parent_id is not None,
            parent_id=parent_id,
            table_store_checkpoint_path=path,
        )
    )


def state_keys(store: CheckpointStore, checkpoint_id: int) -> list[str]:
    manifest = store.load_by_id(checkpoint_id)
    assert manifest is not None
    keys = store.backend.entries(f"{manifest.table_store_checkpoint_path}/")
    return [entry.key for entry in keys]


def flip_a_bit(store: CheckpointStore, checkpoint_id: int) -> None:
    key = next(k for k in state_keys(store, checkpoint_id) if not k.endswith("manifest.json"))
    blob = store.backend.read(key, LIMIT)
    assert blob is not None
    data = bytearray(blob.data)
    data[len(data) // 2] ^= 1
    store.backend.delete([key])
    store.backend.create(key, bytes(data))


def orphan(store: CheckpointStore) -> CheckpointId:
    old = CheckpointId.before(time.time() - 7200)
    with store.partitioned_state.begin(9, checkpoint_id=old) as writer:
        writer.put("agg", 0, b"x" * 1000)
        writer.commit()
    return old


def test_a_flipped_bit_in_partitioned_state_is_damage_of_its_checkpoint_and_of_what_builds_on_it(
    url: str, store: CheckpointStore
) -> None:
    flip_a_bit(store, 3)
    with open_store(url) as fresh:
        for checkpoint_id in (3, 4):
            result = fresh.validate_checkpoint(checkpoint_id)
            assert not result.valid
            assert "state/" in result.damage[0]
        assert fresh.validate_checkpoint(2).valid
        report = fresh.recover_latest_validated()
        assert report.chosen_id == 2
        assert [number for number, _ in report.skipped] == [4, 3]


def test_the_store_s_health_covers_partitioned_state(url: str, store: CheckpointStore) -> None:
    flip_a_bit(store, 3)
    with open_store(url) as fresh:
        checks = {check.name: check.verdict for check in check_contents(fresh)}
    assert checks["newest checkpoint"] != "ok"


def test_damaged_partitioned_state_does_not_count_among_those_that_are_kept(
    url: str, store: CheckpointStore
) -> None:
    flip_a_bit(store, 3)
    with open_store(url) as fresh:
        assert fresh.prune(1) == 0
        assert fresh.list_ids() == [1, 2, 3, 4]


def test_pruning_removes_the_partitioned_state_of_what_it_removes(
    url: str, store: CheckpointStore
) -> None:
    first, kept = state_keys(store, 1), state_keys(store, 3)
    with open_store(url) as fresh:
        removed = fresh.prune(1)
        assert removed == 2
        assert removed.states == 1
        assert [key for key in first if fresh.backend.stat(key)] == []
        assert state_keys(fresh, 3) == kept
        assert fresh.validate_checkpoint(4).valid


def test_partitioned_state_stays_while_a_manifest_that_may_name_it_cannot_be_read(
    url: str, store: CheckpointStore
) -> None:
    save(store, 5)
    key = next(
        entry.key
        for prefix in ("manifests/", "checkpoints/")
        for entry in store.backend.entries(prefix)
        if "000004" in entry.key and entry.key.endswith(".json")
    )
    store.backend.delete([key])
    store.backend.create(key, b"{")
    old = orphan(store)
    with open_store(url) as fresh:
        removed = fresh.cleanup_orphans(0)
        assert removed == 0
        assert "nobody knows who needs it" in removed.left_alone[0]
        assert old in fresh.partitioned_state.list()


def test_orphans_of_partitioned_state_are_found_and_removed(
    url: str, store: CheckpointStore
) -> None:
    old = orphan(store)
    unfinished = f"state/{CheckpointId.now()}/packs/half.lcb"
    store.backend.create(unfinished, b"half")
    with open_store(url) as fresh:
        whole = f"state/{old}/"
        assert whole not in [entry.key for entry in fresh.plan_cleanup()], "published just now"
        assert {entry.key for entry in fresh.plan_cleanup(0)} == {whole, unfinished}
        assert fresh.cleanup_orphans(0) == 2
        assert fresh.plan_cleanup(0) == []
        assert fresh.validate_checkpoint(4).valid
        assert fresh.validate_checkpoint(2).valid


def test_a_copy_takes_partitioned_state_along(
    url: str, store: CheckpointStore, tmp_path: Path
) -> None:
    for target in (str(tmp_path / "copy"), _memory()):
        with open_store(url) as source, open_store(target) as copy:
            assert {each.outcome for each in copy_checkpoints(source, copy)} == {"copied"}
            assert state_keys(copy, 3) == state_keys(source, 3)
            assert copy.validate_checkpoint(4).valid
            flip_a_bit(copy, 3)
            assert copy.recover_latest_validated().chosen_id == 2


def test_a_checkpoint_with_damaged_partitioned_state_is_not_copied(
    url: str, store: CheckpointStore
) -> None:
    flip_a_bit(store, 3)
    with open_store(url) as source, open_store(_memory()) as copy:
        outcomes = {each.checkpoint_id: each.outcome for each in copy_checkpoints(source, copy)}
    assert outcomes == {1: "copied", 2: "copied", 3: "damaged", 4: "damaged"}


def test_a_path_that_is_no_partitioned_state_is_damage(url: str) -> None:
    with open_store(url) as store:
        store.save(CheckpointManifest.new(1, 1, table_store_checkpoint_path="tables/ckpt_2"))
        assert not store.validate_checkpoint(1).valid
        assert store.recover_latest_validated().chosen_id is None


def test_the_members_of_a_store_are_those_that_the_architecture_lists() -> None:
    text = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text()
    table = text.split("| members of `CheckpointStore` |")[1].split("\n\n")[0]
    listed = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == [name for name in dir(CheckpointStore) if not name.startswith("_")]


# state that no checkpoint points at yet


def published(store: CheckpointStore, epoch: int) -> str:
    with store.partitioned_state.begin(epoch) as writer:
        writer.put("agg", 0, b"%d" % epoch * 50)
        return f"state/{writer.commit().checkpoint_id}"


def test_I1_state_that_is_about_to_be_saved_is_pruned_by_no_other_save_of_its_handle(
    url: str,
) -> None:
    with open_store(url, keep=5) as store:
        store.claim(pipeline="p")
        save(store, 1, partitioned=True)
        first, second = published(store, 2), published(store, 3)
        for checkpoint_id, path in ((2, second), (3, first)):
            store.save(
                CheckpointManifest.new(
                    checkpoint_id, checkpoint_id, table_store_checkpoint_path=path
                )
            )
        assert [store.validate_checkpoint(i).valid for i in (1, 2, 3)] == [True] * 3


def test_I1_state_that_is_about_to_be_saved_is_no_orphan_of_its_own_handle(
    url: str, store: CheckpointStore
) -> None:
    path = published(store, 5)
    assert store.cleanup_orphans(0) == 0
    store.save(CheckpointManifest.new(5, 5, table_store_checkpoint_path=path))
    assert store.validate_checkpoint(5).valid


def test_a_checkpoint_whose_partitioned_state_was_removed_is_not_decided(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        save(store, 1)
        path = published(store, 2)
        with open_store(tmp_path / "store") as other:
            assert other.cleanup_orphans(0) == 1
        with pytest.raises(FencedError, match="was removed or replaced"):
            store.save(CheckpointManifest.new(2, 2, table_store_checkpoint_path=path))
        assert store.list_ids() == [1]


def test_state_that_was_copied_just_now_is_not_old_because_its_id_is(
    store: CheckpointStore, tmp_path: Path
) -> None:
    old = orphan(store)
    with open_store(tmp_path / "copy") as copy:
        copy_checkpoints(store, copy)
        store.partitioned_state.copy(old, copy.partitioned_state)
    with open_store(tmp_path / "copy") as pruning:
        assert pruning.prune(1).states == 1
        assert old in pruning.partitioned_state.list()


def test_damaged_state_that_nobody_needs_stops_the_removal_of_no_other(
    url: str, store: CheckpointStore
) -> None:
    save(store, 5, partitioned=True)
    key = f"state/{published(store, 6).removeprefix('state/')}/manifest.json"
    store.backend.delete([key])
    store.backend.create(key, b"{")
    with open_store(url) as fresh:
        fresh.claim(pipeline="p")
        save(fresh, 6, partitioned=True)
        removed = fresh.prune(1)
        assert removed.states == 3
        assert "was left alone" in removed.left_alone[0]
        assert fresh.validate_checkpoint(6).valid


def test_partitioned_state_stays_while_another_process_removes_some(
    url: str, store: CheckpointStore
) -> None:
    old = orphan(store)
    mark = f"{STATE_PREFIX}_removing"
    store.backend.create(mark, b"of another process")
    with open_store(url) as fresh:
        removed = fresh.cleanup_orphans(0)
        assert "something else is being removed" in removed.left_alone[0]
        assert old in fresh.partitioned_state.list()
        fresh.backend.delete([mark])
        fresh.cleanup_orphans(0)
        assert old not in fresh.partitioned_state.list()


def test_a_clean_up_makes_no_store_of_a_folder_that_is_none(tmp_path: Path) -> None:
    with open_store(tmp_path / "no store") as store:
        assert store.cleanup_orphans(0) == 0
    assert not (tmp_path / "no store").exists()


def test_I3_a_store_whose_owner_is_from_before_a_rollback_is_not_copied(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        store.claim(pipeline="p")
        for checkpoint_id in (1, 2, 3):
            save(store, checkpoint_id)
    before = (root / "owner.json").read_bytes()
    with open_store(root) as store:
        store.claim(pipeline="p")
        store.supersede(2, 3)
        save(store, 4)
    (root / "owner.json").write_bytes(before)
    with open_store(root) as source, open_store(tmp_path / "copy") as copy:
        with pytest.raises(DamageError, match=r"owner\.json"):
            copy_checkpoints(source, copy)
        assert copy.list_ids() == []


def test_state_without_hashes_is_never_taken_for_verified(store: CheckpointStore) -> None:
    blobs = store.backend
    with StateStore(blobs, prefix="state/", pack_below=0).begin(5) as writer:
        writer.put("agg", 0, b"an object of its own")
        state = writer.commit().checkpoint_id
    path, key = f"state/{state}", f"state/{state}/manifest.json"
    stored = blobs.read(key, LIMIT)
    assert stored is not None
    manifest = CheckpointManifestV2.from_json(unseal(stored.data))
    bare = {
        name: msgspec.structs.replace(
            state,
            partitions=[msgspec.structs.replace(e, sha256=None) for e in state.partitions],
        )
        for name, state in manifest.operators.items()
    }
    blobs.delete([key])
    blobs.create(key, manifest.replace(operators=bare, extra={}).to_json())
    store.save(CheckpointManifest.new(5, epoch=5, state_checkpoint=path))
    assert "has no SHA-256" in store.validate_checkpoint(5).damage[0]
    assert store.recover_latest_validated().chosen_id == 4
    with pytest.raises(DamageError, match="has no SHA-256"):
        list(store.partitioned_state.restore_all(state))


def test_very_many_lost_partitions_are_told_as_a_number(store: CheckpointStore) -> None:
    many = MOST_MISSING_NAMED + 7
    with StateStore(store.backend, prefix="state/", pack_below=0).begin(5) as writer:
        for partition in range(many):
            writer.put("agg", partition, b"an object of its own")
        path = f"state/{writer.commit().checkpoint_id}"
    store.save(CheckpointManifest.new(5, epoch=5, state_checkpoint=path))
    objects = [entry.key for entry in store.backend.entries(f"{path}/operators/")]
    assert len(objects) == many
    store.backend.delete(objects)
    [damage] = store.validate_checkpoint(5).damage
    assert damage.count(" is missing") == MOST_MISSING_NAMED
    assert damage.endswith("; and 7 more")
