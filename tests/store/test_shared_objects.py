"""Shared objects stay as long as a checkpoint names them, are verified, and go when none does."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from seamark import CheckpointManifest, open_store
from seamark._common.json_documents import seal
from seamark.errors import DamageError, FencedError, InvalidInputError, RefusedError
from seamark.manifest.facts import SharedObject, is_object_name
from seamark.reports.verification import check_checkpoints
from seamark.store import CheckpointStore
from seamark.store.copy.run import copy_checkpoints
from seamark.store.shared_objects import SHARED_PREFIX

LIMIT = 64 << 20


@pytest.fixture(params=["filesystem", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "store") if request.param == "filesystem" else _memory()


def _memory() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def store(url: str) -> Iterator[CheckpointStore]:
    with open_store(url) as opened:
        yield opened


def save(
    store: CheckpointStore,
    checkpoint_id: int,
    shared: list[SharedObject],
    *,
    parent_id: int | None = None,
) -> CheckpointManifest:
    return store.save(
        CheckpointManifest.new(
            checkpoint_id,
            epoch=checkpoint_id,
            shared_objects=[list(each) for each in shared] or None,
            is_incremental=parent_id is not None,
            parent_id=parent_id,
        )
    )


def put(store: CheckpointStore, checkpoint_id: int, objects: object) -> None:
    """A manifest that names objects in a way in which Seamark would not."""
    manifest = CheckpointManifest.new(
        checkpoint_id, epoch=checkpoint_id, attempt="a", shared_objects=objects
    )
    store.backend.create(store._parts.layout.manifest(checkpoint_id), seal(manifest.to_json()))


def names(store: CheckpointStore) -> set[str]:
    return set(store.shared_objects.entries())


def flip(store: CheckpointStore, shared: SharedObject, at: int) -> None:
    blobs, key = store.backend, SHARED_PREFIX + shared.name
    blob = blobs.read(key, LIMIT)
    assert blob is not None
    data = bytearray(blob.data)
    data[at] ^= 1
    blobs.delete([key])
    blobs.create(key, bytes(data))


@pytest.mark.parametrize("size", [0, 1, 5 << 20])
def test_what_was_written_in_pieces_is_read_in_pieces(store: CheckpointStore, size: int) -> None:
    data = b"0123456789" * (size // 10 + 1)
    shared = store.shared_objects.write(data[at : at + 1000] for at in range(0, size, 1000))
    assert is_object_name(shared.name)
    length = len(b"".join(data[at : at + 1000] for at in range(0, size, 1000)))
    assert shared.size == length
    assert b"".join(map(bytes, store.shared_objects.read(shared))) == data[:length]


@pytest.mark.parametrize("at", [0, 7, -1])
def test_I7_a_flipped_bit_is_found_by_a_plain_store(
    url: str, store: CheckpointStore, at: int
) -> None:
    save(store, 1, [])
    shared = store.shared_objects.write([b"some state", b" and more"])
    save(store, 2, [shared])
    save(store, 3, [], parent_id=2)
    flip(store, shared, at)
    with open_store(url) as plain:
        for damaged in (2, 3):
            result = plain.validate_checkpoint(damaged)
            assert not result.valid
            assert shared.name in str(result.damage)
        assert plain.recover_latest_validated().chosen_id == 1
    with pytest.raises(DamageError, match="SHA-256"):
        list(store.shared_objects.read(shared))


def test_I7_an_object_that_is_cut_off_longer_or_gone_is_found(url: str) -> None:
    with open_store(url) as store:
        shared = store.shared_objects.write([b"some state"])
        save(store, 1, [shared])
    key = SHARED_PREFIX + shared.name
    for data in (b"some stat", b"some state.", b"", None):
        with open_store(url) as store:
            store.backend.delete([key])
            if data is not None:
                store.backend.create(key, data)
            assert not store.validate_checkpoint(1).valid
            with pytest.raises(DamageError):
                list(store.shared_objects.read(shared))


@pytest.mark.parametrize(
    "name", ["../owner.json", "x", "1-" + "a" * 31, "1-" + "A" * 32, "", "a/b"]
)
def test_a_name_that_could_lead_elsewhere_is_damage_and_is_not_saved(
    store: CheckpointStore, name: str
) -> None:
    odd = SharedObject(name, 1, "ab" * 32)
    with pytest.raises(InvalidInputError, match="cannot be a shared object"):
        save(store, 1, [odd])
    put(store, 1, [list(odd)])
    assert not store.validate_checkpoint(1).valid
    with pytest.raises(DamageError, match="no shared object"):
        list(store.shared_objects.read(odd))
    with open_store(_memory()) as target:
        (result,) = copy_checkpoints(store, target)
        assert result.outcome == "damaged"
        assert target.list_ids() == []
        assert not target.backend.entries("shared/")


def test_an_object_that_is_named_twice_is_damage(store: CheckpointStore) -> None:
    shared = store.shared_objects.write([b"state"])
    with pytest.raises(InvalidInputError, match="twice"):
        save(store, 1, [shared] * 2)
    put(store, 1, [list(shared)] * 1500)
    assert "twice" in str(store.validate_checkpoint(1).damage)


def test_an_object_that_many_checkpoints_name_is_read_once_in_a_pass(
    url: str, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = store.shared_objects.write([b"some state"])
    for checkpoint_id in range(1, 6):
        save(store, checkpoint_id, [shared])
    for damaged in (False, True):
        if damaged:
            flip(store, shared, 0)
        with open_store(url) as other:
            reads: list[str] = []
            stream = other.backend.stream

            def counted(
                key: str, piece: int, stream: Any = stream, reads: list[str] = reads
            ) -> Any:
                reads.append(key)
                return stream(key, piece)

            monkeypatch.setattr(other.backend, "stream", counted)
            checks = check_checkpoints(other, other.list_ids(), read=range(6))
            assert {check.status for check in checks} == {"damaged" if damaged else "ok"}
            assert reads == [SHARED_PREFIX + shared.name]
            reads.clear()
            other.recover_latest_validated()
            assert reads == [SHARED_PREFIX + shared.name]


def test_no_more_is_read_of_an_object_than_it_may_have(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        shared = store.shared_objects.write([b"some state"])
        save(store, 1, [shared])
    with open(tmp_path / f"shared/{shared.name}", "ab") as file:
        file.write(bytes(range(256)) * (1 << 14))
    with open_store(tmp_path) as store:
        assert not store.validate_checkpoint(1).valid
        assert store.recover_latest_validated().chosen_id is None
        with pytest.raises(DamageError, match="does not have 10 bytes"):
            list(store.shared_objects.read(shared))


def test_objects_stay_when_a_manifest_does_not_say_which_it_needs(store: CheckpointStore) -> None:
    shared = store.shared_objects.write([b"precious"])
    put(store, 1, [[shared.name, shared.size + 0.5, shared.sha256]])
    save(store, 2, [store.shared_objects.write([b"other"])])
    planned = store.plan_cleanup(min_age=0)
    assert "'shared_objects' cannot be read" in str(planned.left_alone)
    store.cleanup_orphans(min_age=0)
    assert shared.name in names(store)


@pytest.mark.parametrize("size", [5, 100])
def test_a_copy_never_replaces_an_object_that_the_target_needs(
    url: str, store: CheckpointStore, size: int
) -> None:
    store.claim()
    shared = store.shared_objects.write([b"the state of epoch 1"])
    save(store, 1, [shared])
    with open_store(_memory()) as target:
        copy_checkpoints(store, target)
        other = bytes(size)
        store.backend.delete([SHARED_PREFIX + shared.name])
        store.backend.create(SHARED_PREFIX + shared.name, other)
        save(store, 2, [SharedObject(shared.name, size, sha256(other).hexdigest())])
        with pytest.raises(RefusedError, match="with different bytes"):
            copy_checkpoints(store, target)
        assert target.validate_checkpoint(1).valid
        assert target.list_ids() == [1]


@pytest.mark.parametrize(
    "value", [[["a"]], [["a", -1, "ab" * 32]], [["a", 1, "xyz"]], "text", [[1, 2, 3]], {}]
)
def test_a_senseless_list_of_objects_is_not_saved(store: CheckpointStore, value: object) -> None:
    manifest = CheckpointManifest.new(1, epoch=1, extra={"shared_objects": value, "attempt": "a"})
    with pytest.raises(InvalidInputError, match="shared_objects"):
        store.save(manifest)


def test_I6_a_prune_keeps_what_a_kept_checkpoint_names_and_removes_the_rest(
    store: CheckpointStore,
) -> None:
    write = store.shared_objects.write
    first, second, third = write([b"1"]), write([b"2"]), write([b"3"])
    save(store, 1, [first, second])
    save(store, 2, [second, third])
    removed = store.prune(1)
    assert (removed, removed.objects) == (1, 1)
    assert names(store) == {second.name, third.name}
    assert store.validate_checkpoint(2).valid


def test_I6_a_prune_takes_no_checkpoint_for_whole_whose_object_is_lost(
    store: CheckpointStore,
) -> None:
    first = store.shared_objects.write([b"1"])
    second = store.shared_objects.write([b"2"])
    save(store, 1, [first])
    save(store, 2, [second])
    store.backend.delete([SHARED_PREFIX + second.name])
    store.prune(1)
    assert store.recover_latest_validated().chosen_id == 1


def test_I6_a_pinned_checkpoint_and_what_a_kept_one_builds_on_keep_their_objects(
    store: CheckpointStore,
) -> None:
    write = store.shared_objects.write
    pinned, base, new = write([b"1"]), write([b"2"]), write([b"3"])
    save(store, 1, [pinned])
    store.pin("release", 1)
    save(store, 2, [base])
    save(store, 3, [new], parent_id=2)
    assert store.prune(1) == 0
    assert names(store) == {pinned.name, base.name, new.name}


def test_an_object_that_nobody_has_named_yet_survives_a_prune_and_a_clean_up(
    url: str, store: CheckpointStore
) -> None:
    save(store, 1, [store.shared_objects.write([b"old"])])
    save(store, 2, [])
    waiting = store.shared_objects.write([b"about to be named"])
    assert store.prune(1) == 1
    assert store.cleanup_orphans(min_age=0) == 0  # this handle knows that it is about to be named
    with open_store(url) as other:
        assert other.cleanup_orphans() == 0
    assert names(store) == {waiting.name}
    save(store, 3, [waiting])
    assert store.validate_checkpoint(3).valid


def test_what_was_cleaned_up_before_it_was_named_cannot_be_saved(
    url: str, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store, 1, [])
    monkeypatch.setattr("seamark.store.shared_objects._ASK_AGAIN", 0.0)
    waiting = store.shared_objects.write([b"too late"])
    with open_store(url) as other:
        assert [entry.key for entry in other.plan_cleanup(0)] == [SHARED_PREFIX + waiting.name]
        assert other.cleanup_orphans(min_age=0) == 1
    with pytest.raises(FencedError, match="removed before it was saved"):
        save(store, 2, [waiting])
    assert store.list_ids() == [1]


def test_the_first_prune_removes_what_a_fenced_writer_left(url: str) -> None:
    with open_store(url) as dead:
        dead.claim()
        dead.shared_objects.write([b"never named"])
        save(dead, 1, [])
    with open_store(url) as store:
        store.claim()
        mine = store.shared_objects.write([b"mine"])
        save(store, 2, [])
        store.prune(2)
        assert names(store) == {mine.name}


def test_an_interrupted_prune_is_finished_by_a_clean_up(
    url: str, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store, 1, [store.shared_objects.write([b"1"])])
    kept = store.shared_objects.write([b"2"])
    save(store, 2, [kept])

    def dies(_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store.shared_objects, "drop_pruned", dies)
        with pytest.raises(KeyboardInterrupt):
            store.prune(1)
    assert len(names(store)) == 2
    with open_store(url) as other:
        assert other.cleanup_orphans(min_age=0) == 1
    assert names(store) == {kept.name}


def test_nothing_is_removed_while_a_manifest_cannot_be_read(
    url: str, store: CheckpointStore
) -> None:
    save(store, 1, [store.shared_objects.write([b"1"])])
    save(store, 2, [store.shared_objects.write([b"2"])])
    save(store, 3, [store.shared_objects.write([b"3"])])
    key = store._layout.manifest(2)
    store.backend.delete([key])
    store.backend.create(key, b"{")
    with open_store(url) as other:
        removed = other.prune(1)
        assert "nobody knows who needs them" in str(removed.left_alone) or removed == 2
        orphaned = other.cleanup_orphans(min_age=0)
        assert other.validate_checkpoint(3).valid
        assert names(other) or orphaned


def test_a_copy_takes_the_objects_along_once_and_brings_back_a_lost_one(
    url: str, store: CheckpointStore
) -> None:
    write = store.shared_objects.write
    first, second = write([b"1" * 100]), write([b"2" * 100])
    save(store, 1, [first])
    save(store, 2, [first, second])
    with open_store(_memory()) as target:
        copy_checkpoints(store, target)
        assert names(target) == {first.name, second.name}
        assert target.validate_checkpoint(2).valid
        save(store, 3, [second], parent_id=2)
        copy_checkpoints(store, target)
        assert target.validate_checkpoint(3).valid


def test_damage_in_the_source_is_not_copied(store: CheckpointStore) -> None:
    shared = store.shared_objects.write([b"state"])
    save(store, 1, [shared])
    flip(store, shared, 2)
    with open_store(_memory()) as target:
        (result,) = copy_checkpoints(store, target)
        assert result.outcome == "damaged"
        assert names(target) == set()


@pytest.mark.parametrize("how", ["gone", "cut off", "flipped"])
def test_repeating_a_copy_brings_back_what_the_target_has_lost(
    store: CheckpointStore, how: str
) -> None:
    write = store.shared_objects.write
    first, second = write([b"1" * 100]), write([b"2" * 100])
    save(store, 1, [first])
    save(store, 2, [first, second])
    url = _memory()
    with open_store(url) as target:
        copy_checkpoints(store, target)
    with open_store(url) as target:
        if how == "flipped":
            flip(target, second, 50)
        else:
            target.backend.delete([SHARED_PREFIX + second.name])
        if how == "cut off":
            target.backend.create(SHARED_PREFIX + second.name, b"2" * 99)
        assert not target.validate_checkpoint(2).valid
    with open_store(url) as target:
        results = copy_checkpoints(store, target)
        assert [(r.outcome, r.size > 0) for r in results] == [
            ("there already", True),
            ("copied", True),
        ]
    with open_store(url) as target:
        assert target.validate_checkpoint(2).valid
        results = copy_checkpoints(store, target)
        assert [r.outcome for r in results] == ["there already", "there already"]


def test_a_copy_does_not_give_up_damaged_bytes_for_none(store: CheckpointStore) -> None:
    shared = store.shared_objects.write([b"1" * 100])
    save(store, 1, [shared])
    with open_store(_memory()) as target:
        copy_checkpoints(store, target)
        flip(target, shared, 50)
        flip(store, shared, 60)
        target.shared_objects._verified.clear()
        (result,) = copy_checkpoints(store, target)
        assert result.outcome == "damaged"
        assert names(target) == {shared.name}


def test_I7_what_a_copy_wrote_is_read_back(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = store.shared_objects.write([b"1" * 100])
    save(store, 1, [shared])
    with open_store(_memory()) as target:
        honest = target.backend.create

        def lying(key: str, data: bytes) -> object:
            if key.startswith(SHARED_PREFIX):
                data = b"?" + data[1:]
            return honest(key, data)

        monkeypatch.setattr(target.backend, "create", lying)
        monkeypatch.setattr(
            target.backend, "create_stream", lambda key, p: lying(key, b"".join(map(bytes, p)))
        )
        with pytest.raises(DamageError, match="does not read back"):
            copy_checkpoints(store, target)


def test_without_a_claim_an_object_that_was_pruned_meanwhile_cannot_be_named_again(
    url: str, store: CheckpointStore
) -> None:
    old = store.shared_objects.write([b"old"])
    save(store, 1, [old])
    with open_store(url) as other:
        save(other, 2, [])
        assert other.prune(1).objects == 1
    with pytest.raises(FencedError, match="removed before it was saved"):
        save(store, 3, [old])
    assert store.list_ids() == [2]


def test_I6_a_prune_does_not_count_a_checkpoint_whose_object_was_seen_to_be_damaged(
    store: CheckpointStore,
) -> None:
    save(store, 1, [store.shared_objects.write([b"good"])])
    bad = store.shared_objects.write([b"going to rot"])
    save(store, 2, [bad])
    flip(store, bad, 3)
    with pytest.raises(DamageError):
        list(store.shared_objects.read(bad))
    assert store.prune(1) == 0
    assert store.recover_latest_validated().chosen_id == 1


def test_I6_a_parent_that_is_pruned_while_state_is_written_is_missed(tmp_path: Path) -> None:
    with open_store(tmp_path / "s") as store, open_store(tmp_path / "s") as other:
        store.save_with_state(CheckpointManifest.new(1, epoch=1), [b"full"])
        store.save_with_state(CheckpointManifest.new(2, epoch=2), [b"full"])

        def chunks() -> Iterator[bytes]:
            yield b"change"
            assert other.prune(1) == 1

        manifest = CheckpointManifest.new(3, epoch=3, is_incremental=True, parent_id=1)
        with pytest.raises(RefusedError, match="builds on 1"):
            store.save_with_state(manifest, chunks())
        assert other.recover_latest_validated().chosen_id == 2
