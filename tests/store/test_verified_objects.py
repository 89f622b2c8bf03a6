"""A prune reads shared objects once, or leaves that to others, and never counts known damage."""

from __future__ import annotations

import sys
import threading

import pytest

from seamark import CheckpointManifest, open_store
from seamark.errors import DamageError, FencedError
from seamark.manifest.facts import SharedObject
from seamark.store.shared_objects import SHARED_PREFIX
from seamark.store.verified_objects import VerifiedObjects
from tests.store.support.counted_reads import CountedBytes
from tests.store.test_shared_objects import flip, save, url

__all__ = ["url"]


def test_what_was_read_whole_is_not_read_again_by_a_prune(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(url) as writer:
        whole, begun = (writer.shared_objects.write([data]) for data in (b"whole", b"begun"))
        save(writer, 1, [whole, begun])
        with open_store(url) as other:
            list(other.shared_objects.read(whole))
            next(other.shared_objects.read(begun))
            read = CountedBytes(monkeypatch)
            other.prune(1)
            assert read.since_last() == begun.size
            other.prune(1)
            assert read.since_last() == 0


def test_a_prune_for_which_objects_are_read_at_another_time_reads_none(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(url) as writer:
        save(writer, 1, [writer.shared_objects.write([b"1"])])
        save(writer, 2, [writer.shared_objects.write([b"2"])])
        with open_store(url) as other:
            read = CountedBytes(monkeypatch)
            assert other.prune(1, read_shared=False) == 1
            assert read.since_last() == 0


@pytest.mark.parametrize("accident", ["seen to be damaged", "cut off", "gone"])
def test_I6_such_a_prune_does_not_count_a_checkpoint_that_is_known_not_to_be_whole(
    url: str, accident: str
) -> None:
    with open_store(url) as writer:
        save(writer, 1, [writer.shared_objects.write([b"good"])])
        bad = writer.shared_objects.write([b"going to rot"])
        save(writer, 2, [bad])
        flip(writer, bad, 3)
        with open_store(url) as other:
            if accident == "seen to be damaged":
                with pytest.raises(DamageError):
                    list(other.shared_objects.read(bad))
            else:
                writer.backend.delete([SHARED_PREFIX + bad.name])
            if accident == "cut off":
                writer.backend.create(SHARED_PREFIX + bad.name, b"going")
            assert other.prune(1, read_shared=False) == 0
            assert other.recover_latest_validated().chosen_id == 1


def test_an_object_that_was_damaged_and_is_whole_again_counts(url: str) -> None:
    with open_store(url) as store:
        save(store, 1, [store.shared_objects.write([b"old"])])
        shared = store.shared_objects.write([b"rotten"])
        save(store, 2, [shared])
        flip(store, shared, 0)
        with pytest.raises(DamageError):
            list(store.shared_objects.read(shared))
        flip(store, shared, 0)
        assert store.prune(1, read_shared=False) == 1


def test_objects_are_verified_by_many_threads_while_others_are_removed() -> None:
    known = VerifiedObjects()
    objects = [SharedObject(f"1-{n:032x}", 1, "0" * 64) for n in range(300)]
    over = threading.Event()
    failures: list[RuntimeError] = []

    def remove() -> None:
        while not over.is_set():
            try:
                known.forget([objects[0].name])
            except RuntimeError as error:
                failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        remover = threading.Thread(target=remove)
        remover.start()
        for _ in range(30):
            for shared in objects:
                known.add(shared)
            for shared in objects[:150]:
                known.add_damaged(shared)
        over.set()
        remover.join()
    finally:
        sys.setswitchinterval(before)
    assert failures == []


def test_a_handle_that_claims_again_looks_for_what_others_have_left_meanwhile(url: str) -> None:
    with open_store(url) as store:
        store.claim()
        store.save(CheckpointManifest.new(store.next_id(), epoch=1))
        store.prune(1)
        store.release()
        with open_store(url) as other:
            other.claim()
            other.shared_objects.write([b"never named"])
        store.claim()
        assert store.prune(1).objects == 1


def test_a_store_that_was_released_is_free_and_its_handle_stays_open(url: str) -> None:
    with open_store(url) as store, open_store(url) as other:
        store.claim()
        with pytest.raises(FencedError):
            other.save(CheckpointManifest.new(other.next_id(), epoch=1))
        store.release()
        other.save(CheckpointManifest.new(other.next_id(), epoch=1))
        store.claim()
        store.save(CheckpointManifest.new(store.next_id(), epoch=2))
        assert len(store.list_ids()) == 2
