"""Damage: what verify says about it, and that nothing is restored from it."""

from __future__ import annotations

from typing import Any

import pytest

from seamark.blobs.contract import Blobs
from seamark.errors import DamageError, SeamarkError
from seamark.state import CheckpointId, StateStore
from tests.state.support.examples import (
    ALONE,
    LARGE,
    PATHS,
    OpenState,
    chain_of,
    entry,
    forge,
    keys,
    objects,
    restored,
    write,
)
from tests.store.support.examples import flip, overwrite

ELSEWHERE = ("../secret", "/secret", "a/../../secret", "nul\x00", "", ".", "a//b", "..\\secret")
HUGE = (2**63 - 1, 2**63, 2**64 - 1)


class StateDamage:
    """verify, and restore of what is not whole."""

    def test_verify_of_a_whole_checkpoint_finds_nothing(self, open_state: OpenState) -> None:
        store = open_state(pack_below=ALONE)
        first = write(store, {("agg", 0): LARGE, ("agg", 1): b"small"})
        second = write(store, {}, {("agg", 0): LARGE[:9]}, parent=first)
        for checkpoint_id, count, size in ((first, 2, 1029), (second, 3, 1038)):
            result = open_state().verify(checkpoint_id)
            assert (result.valid, result.issues) == (True, [])
            assert (result.objects, result.size_bytes) == (count, size)
            assert open_state().verify(checkpoint_id, read_data=False).valid

    @pytest.mark.parametrize("pack_below", [0, 1 << 20], ids=["alone", "packed"])
    @pytest.mark.parametrize("read_data", [True, False])
    def test_an_object_that_is_missing_is_found(
        self, open_state: OpenState, blobs: Blobs, pack_below: int, read_data: bool
    ) -> None:
        new = write(open_state(pack_below=pack_below), {("agg", 3): LARGE})
        (key,) = objects(blobs)
        blobs.delete([key])
        result = open_state().verify(new, read_data=read_data)
        assert not result.valid
        assert key in result.issues[0]
        assert "agg" in result.issues[0]
        assert_nothing_comes_back(open_state(), new, "agg", 3)

    @pytest.mark.parametrize("pack_below", [0, 1 << 20], ids=["alone", "packed"])
    def test_a_flipped_bit_is_found(
        self, open_state: OpenState, blobs: Blobs, pack_below: int
    ) -> None:
        new = write(open_state(pack_below=pack_below), {("agg", 3): LARGE})
        (key,) = objects(blobs)
        flip(blobs, key, 100)
        result = open_state().verify(new)
        assert not result.valid
        assert "operator 'agg' partition 3" in result.issues[0]
        assert_nothing_comes_back(open_state(), new, "agg", 3)

    @pytest.mark.parametrize("pack_below", [0, 1 << 20], ids=["alone", "packed"])
    def test_a_cut_or_grown_object_is_found(
        self, open_state: OpenState, blobs: Blobs, pack_below: int
    ) -> None:
        new = write(open_state(pack_below=pack_below), {("agg", 3): LARGE})
        (key,) = objects(blobs)
        blob = blobs.read(key, 1 << 20)
        assert blob is not None
        for wrong in (blob.data[:50], b"", blob.data + b"!"):
            overwrite(blobs, key, wrong)
            assert not open_state().verify(new).valid, len(wrong)
        overwrite(blobs, key, blob.data)
        assert open_state().verify(new).valid

    def test_every_byte_of_a_pack_counts(self, open_state: OpenState, blobs: Blobs) -> None:
        new = write(open_state(), {("agg", 0): b"zero", ("agg", 1): b"one"})
        (key,) = objects(blobs)
        blob = blobs.read(key, 1 << 20)
        assert blob is not None
        unseen = []
        for at in range(len(blob.data)):
            bad = bytearray(blob.data)
            bad[at] ^= 0x10
            overwrite(blobs, key, bytes(bad))
            if open_state().verify(new).valid:
                unseen.append(at)
        assert not unseen, f"of {len(blob.data)} bytes nobody looks at {unseen}"

    def test_a_missing_parent_is_named(self, open_state: OpenState, blobs: Blobs) -> None:
        first, second, third = chain_of(open_state(), 3)
        blobs.delete([PATHS.manifest(first)])
        for child in (second, third):
            result = open_state().verify(child)
            assert str(first) in result.issues[0]
            with pytest.raises(DamageError, match=str(first)):
                open_state().restore(child, "agg", 0)
            with pytest.raises(DamageError, match=str(first)):
                list(open_state().restore_all(child))
            with pytest.raises(DamageError, match=str(first)):
                open_state().begin(4, parent=child)

    def test_a_damaged_delta_in_the_middle_of_a_chain_is_found(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        store = open_state(pack_below=0)
        _, second, third = chain_of(store, 3)
        flip(blobs, PATHS.delta(second, "agg", 0), 0)
        assert not open_state().verify(third).valid
        assert_nothing_comes_back(open_state(), third, "agg", 0)
        assert open_state().restore(third, "agg", 1).snapshot == b"never changed"

    def test_a_damaged_manifest_is_found(self, open_state: OpenState, blobs: Blobs) -> None:
        new = write(open_state(), {("agg", 0): b"state"})
        key = PATHS.manifest(new)
        blob = blobs.read(key, 1 << 20)
        assert blob is not None
        truth = blob.data
        wrongs = [truth[:-1], b"", b"{}", b"[]", b"\xff", truth.replace(b'"epoch":1', b'"epoch":2')]
        wrongs += [bytes([*truth[:at], truth[at] ^ 1, *truth[at + 1 :]]) for at in range(0, 99, 7)]
        for wrong in wrongs:
            overwrite(blobs, key, wrong)
            store = open_state()
            assert store.list() == [new]
            assert not store.verify(new).valid
            for action in (store.load, store.partitions):
                with pytest.raises(DamageError, match="manifest"):
                    action(new)
            with pytest.raises(DamageError, match="manifest"):
                store.latest()
            assert_nothing_comes_back(store, new, "agg", 0)

    def test_a_manifest_of_another_checkpoint_is_not_this_one(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        first = write(open_state(), {("agg", 0): b"first"})
        second = write(open_state(), {("agg", 0): b"second"})
        blob = blobs.read(PATHS.manifest(first), 1 << 20)
        assert blob is not None
        overwrite(blobs, PATHS.manifest(second), blob.data)
        with pytest.raises(DamageError):
            open_state().load(second)

    def test_a_cyclic_chain_is_refused(self, open_state: OpenState, blobs: Blobs) -> None:
        own = CheckpointId.now()
        forge(blobs, entry("x", is_delta=True), checkpoint_id=own, parent_id=str(own))
        older, newer = CheckpointId.now(), CheckpointId.now()
        forge(blobs, entry("x", is_delta=True), checkpoint_id=older, parent_id=str(newer))
        forge(blobs, entry("x", is_delta=True), checkpoint_id=newer, parent_id=str(older))
        for checkpoint_id in (own, older, newer):
            with pytest.raises(DamageError, match="cyclic"):
                open_state().restore(checkpoint_id, "agg", 0)
            assert not open_state().verify(checkpoint_id).valid

    def test_a_chain_without_a_snapshot_or_with_two_is_refused(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        headless = forge(blobs, entry("x", is_delta=True))
        doubled = forge(blobs, entry("x"), entry("y"))
        for checkpoint_id in (headless, doubled):
            with pytest.raises(DamageError, match="snapshot"):
                open_state().restore(checkpoint_id, "agg", 0)
            assert not open_state().verify(checkpoint_id).valid

    @pytest.mark.parametrize("path", ELSEWHERE)
    @pytest.mark.parametrize("pack", [None, (0, 1, 0)], ids=["alone", "packed"])
    def test_a_manifest_leads_nowhere_else(
        self, open_state: OpenState, blobs: Blobs, path: str, pack: tuple[int, int, int] | None
    ) -> None:
        secret = [blobs.create(f"{place}secret", b"s") for place in ("", PATHS.prefix)]
        assert secret
        fields: dict[str, Any] = {"pack": pack} if pack else {}
        new = forge(blobs, entry(path, **fields))
        store = open_state()
        assert not store.verify(new).valid
        assert not store.verify(new, read_data=False).valid
        assert_nothing_comes_back(store, new, "agg", 0)
        with pytest.raises(DamageError):
            list(store.restore_all(new))
        with pytest.raises(DamageError):
            store.copy(new, StateStore("memory://"))
        before = keys(blobs)
        with pytest.raises(SeamarkError):
            store.cleanup_orphans(min_age=0)
        assert keys(blobs) == before
        store.delete(new)
        assert blobs.stat("secret") is not None
        assert blobs.stat(f"{PATHS.prefix}secret") is not None

    @pytest.mark.parametrize("size", HUGE)
    def test_a_size_that_cannot_be_is_damage(
        self, open_state: OpenState, blobs: Blobs, size: int
    ) -> None:
        new = forge(blobs, entry("x", size))
        blobs.create(f"{PATHS.checkpoint_dir(new)}x", b"x")
        assert not open_state().verify(new).valid
        assert_nothing_comes_back(open_state(), new, "agg", 0)

    @pytest.mark.parametrize(
        "pack",
        [
            *((huge, 5, 0) for huge in (*HUGE, 2**70)),
            *((0, huge, 0) for huge in (2**45, *HUGE, 2**70)),
            (-1, 5, 0),
            (0, -1, 0),
            (0, 5, 9),
            (0, 0, 0),
        ],
        ids=str,
    )
    def test_a_place_in_a_pack_that_cannot_be_is_damage(
        self, open_state: OpenState, blobs: Blobs, pack: tuple[int, int, int]
    ) -> None:
        new = forge(blobs, entry("x", max(0, min(pack[1], 2**64 - 1)), sha256="00" * 32, pack=pack))
        blobs.create(f"{PATHS.checkpoint_dir(new)}x", b"hello")
        assert_nothing_comes_back(open_state(), new, "agg", 0)
        assert not open_state().verify(new).valid

    def test_restoring_all_is_restoring_each(self, open_state: OpenState) -> None:
        store = open_state(pack_below=ALONE, pack_bytes=500, parallelism=3)
        states = {
            (name, n): f"{name} {n} ".encode() * (n % 20 + 1)
            for name in ("agg", "join")
            for n in range(40)
        }
        first = write(store, states)
        second = write(store, {}, {("agg", n): b"%d" % n for n in range(0, 40, 3)}, parent=first)
        for checkpoint_id in (first, second):
            found = list(open_state(parallelism=3).restore_all(checkpoint_id))
            assert [(name, n) for name, n, _ in found] == sorted(states)
            for name, number, state in found:
                assert open_state().restore(checkpoint_id, name, number) == state

    def test_a_stream_is_the_same_state(self, open_state: OpenState, blobs: Blobs) -> None:
        store = open_state(pack_below=ALONE)
        first = write(store, {("agg", 0): LARGE, ("agg", 1): b"packed"})
        second = write(store, {}, {("agg", 0): b"delta"}, parent=first)
        assert streamed_of(store, second, "agg", 0) == [(False, LARGE), (True, b"delta")]
        assert streamed_of(store, second, "agg", 1) == [(False, b"packed")]
        flip(blobs, PATHS.snapshot(first, "agg", 0), 500)
        with pytest.raises(DamageError):
            streamed_of(open_state(), second, "agg", 0)

    def test_looking_at_a_store_writes_nothing(self, open_state: OpenState, blobs: Blobs) -> None:
        reader = open_state()
        reader.list(), reader.latest()
        reader.cleanup_orphans(min_age=0)
        assert reader.prune(1) == 0
        new = write(open_state(), {("agg", 0): b"state"})
        before = keys(blobs)
        restored(reader, new), reader.verify(new), reader.partitions(new)
        assert keys(blobs) == before


def assert_nothing_comes_back(
    store: StateStore, checkpoint_id: CheckpointId, operator: str, partition: int
) -> None:
    with pytest.raises(DamageError):
        store.restore(checkpoint_id, operator, partition)
    with pytest.raises(DamageError):
        streamed_of(store, checkpoint_id, operator, partition)


def streamed_of(
    store: StateStore, checkpoint_id: CheckpointId, operator: str, partition: int
) -> list[tuple[bool, bytes]]:
    objects_of_it = store.stream(checkpoint_id, operator, partition)
    return [(is_delta, b"".join(pieces)) for is_delta, pieces in objects_of_it]
