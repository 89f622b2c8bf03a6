"""Writing a state checkpoint: what is visible when, what becomes of small and of large states."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from seamark.blobs.contract import Blobs
from seamark.errors import CheckpointNotFoundError, FencedError, InvalidInputError
from seamark.state import (
    CheckpointId,
    PartitionState,
    SourceOffsetEntry,
    StateStore,
    TaskReceipt,
    decode_batch,
)
from tests.state.support.examples import (
    ALONE,
    LARGE,
    PATHS,
    OpenState,
    keys,
    objects,
    pointer,
    restored,
    watch_writes,
    write,
)
from tests.store.support.examples import NAMES_THAT_LEAD_AWAY


class StateWriting:
    """begin, put, commit, abandon."""

    def test_an_empty_store_has_no_checkpoint(self, open_state: OpenState) -> None:
        store = open_state()
        assert (store.list(), store.latest()) == ([], None)
        with pytest.raises(CheckpointNotFoundError):
            store.load(CheckpointId.now())
        with pytest.raises(CheckpointNotFoundError):
            store.restore(CheckpointId.now(), "agg", 0)

    def test_what_was_committed_is_restored_by_another_handle(self, open_state: OpenState) -> None:
        states = {("agg", 0): b"a", ("agg", 7): b"", ("join", 0): LARGE}
        new = write(open_state(pack_below=ALONE), states, epoch=9)
        reader = open_state()
        assert reader.list() == [new]
        assert reader.load(new).epoch == 9
        assert restored(reader, new) == {k: PartitionState(v, []) for k, v in states.items()}
        for (operator, partition), state in states.items():
            assert reader.restore(new, operator, partition) == PartitionState(state, [])
        with pytest.raises(CheckpointNotFoundError):
            reader.restore(new, "agg", 1)

    def test_the_manifest_keeps_offsets_watermark_and_size(self, open_state: OpenState) -> None:
        offsets = {"trades": SourceOffsetEntry("kafka", {"0": "17"}, 3)}
        with open_state().begin(3) as writer:
            writer.put("agg", 0, b"12345")
            writer.commit(watermark=-5, source_offsets=offsets)
        manifest = open_state().latest()
        assert manifest is not None
        assert manifest.source_offsets == offsets
        assert (manifest.watermark, manifest.total_size_bytes) == (-5, 5)
        assert (manifest.version, manifest.parent_id) == (2, None)

    def test_a_checkpoint_without_any_state_is_one(self, open_state: OpenState) -> None:
        new = write(open_state(), {})
        reader = open_state()
        assert reader.list() == [new]
        assert restored(reader, new) == {}
        assert reader.verify(new).valid

    def test_nothing_is_visible_before_the_commit(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        store = open_state(pack_below=ALONE, pack_bytes=ALONE)
        old = write(store, {("agg", 0): b"old"})
        named = pointer(blobs)
        with store.begin(2) as writer:
            for partition in range(20):
                writer.put("agg", partition, LARGE if partition % 2 else b"x" * 99)
            writer.add(finished_task(store, writer.checkpoint_id, "other"))
            reader = open_state()
            assert reader.list() == [old]
            assert (latest_id(reader), pointer(blobs)) == (old, named)
            new = writer.commit().checkpoint_id
        assert open_state().list() == [old, new]
        assert (latest_id(open_state()), pointer(blobs)) == (new, str(new))

    def test_nothing_is_visible_of_what_was_abandoned(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        store = open_state(pack_below=ALONE)
        old = write(store, {("agg", 0): b"old"})
        writer = store.begin(2, parent=old)
        writer.put("agg", 0, LARGE)
        writer.abandon()
        with pytest.raises(InvalidInputError):
            writer.commit()
        with suppress(KeyError), store.begin(3) as dies:
            dies.put("agg", 0, b"of a task that dies")
            raise KeyError
        reader = open_state()
        assert reader.list() == [old]
        assert (latest_id(reader), pointer(blobs)) == (old, str(old))
        assert reader.restore(old, "agg", 0).snapshot == b"old"

    def test_the_manifest_is_written_after_all_states_and_before_the_pointer(
        self, open_state: OpenState, blobs: Blobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        order: list[str] = []

        def note(key: str) -> None:
            if key.startswith(PATHS.prefix):  # a store may be probed elsewhere
                order.append(key)

        watch_writes(monkeypatch, blobs, note)
        store = open_state(pack_below=ALONE, pack_bytes=ALONE)
        states = {("agg", n): LARGE if n % 3 else b"y" * 99 for n in range(30)}
        new = write(store, states)
        at = order.index(PATHS.manifest(new))
        assert set(order[:at]) == set(objects(blobs))
        assert order[at + 1 :] == [PATHS.latest_pointer()]

    def test_an_id_is_committed_once(self, open_state: OpenState) -> None:
        store, chosen = open_state(), CheckpointId.now()
        first = store.begin(1, checkpoint_id=chosen)
        second = open_state().begin(2, checkpoint_id=chosen)
        first.put("agg", 0, b"first")
        second.put("agg", 0, b"second")
        first.commit()
        with pytest.raises(FencedError):
            second.commit()
        with pytest.raises(InvalidInputError):
            first.commit()
        assert open_state().load(chosen).epoch == 1
        assert open_state().restore(chosen, "agg", 0).snapshot == b"first"

    def test_small_states_share_packs(self, open_state: OpenState, blobs: Blobs) -> None:
        random_ = random.Random(1)
        states = {("agg", n): random_.randbytes(random_.randrange(200)) for n in range(500)}
        new = write(open_state(), states)
        (pack,) = objects(blobs)
        assert pack.startswith(f"{PATHS.checkpoint_dir(new)}packs/")
        blob = blobs.read(pack, 1 << 20)
        assert blob is not None
        assert sorted(data for _, data in decode_batch(blob.data)) == sorted(states.values())
        assert {k: s.snapshot for k, s in restored(open_state(), new).items()} == states

    def test_a_pack_that_is_full_is_followed_by_another(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        random_ = random.Random(2)
        states = {("agg", n): random_.randbytes(100) for n in range(100)}
        new = write(open_state(pack_bytes=1000), states)
        assert 9 <= len(objects(blobs)) <= 11
        assert {k: s.snapshot for k, s in restored(open_state(), new).items()} == states

    def test_large_states_are_objects_under_their_documented_names(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        store = open_state(pack_below=ALONE)
        first = write(store, {("agg", 0): LARGE, ("agg", 1): LARGE})
        second = write(store, {}, {("agg", 1): LARGE}, parent=first)
        assert objects(blobs) == sorted(
            [
                PATHS.snapshot(first, "agg", 0),
                PATHS.snapshot(first, "agg", 1),
                PATHS.delta(second, "agg", 1),
            ]
        )
        blob = blobs.read(PATHS.delta(second, "agg", 1), 1 << 20)
        assert blob is not None
        assert blob.data == LARGE
        (entry,) = store.load(second).operators["agg"].partitions
        assert (entry.path, entry.is_delta) == ("operators/agg/partition-1.delta", True)
        assert (entry.size_bytes, entry.sha256) == (len(LARGE), hashlib.sha256(LARGE).hexdigest())

    def test_a_state_may_come_in_pieces_from_one_buffer(self, open_state: OpenState) -> None:
        buffer = bytearray(1000)

        def pieces() -> Iterator[bytearray]:
            for number in range(50):
                buffer[:] = bytes([number]) * len(buffer)
                yield buffer

        with open_state().begin(1) as writer:
            writer.put("agg", 0, pieces())
            writer.put("agg", 1, iter([]))
            writer.put("agg", 2, [b"ab", memoryview(b"cd"), bytearray(b"ef")])
            new = writer.commit().checkpoint_id
        reader = open_state()
        whole = b"".join(bytes([number]) * 1000 for number in range(50))
        assert reader.restore(new, "agg", 0).snapshot == whole
        assert reader.restore(new, "agg", 1).snapshot == b""
        assert reader.restore(new, "agg", 2).snapshot == b"abcdef"

    def test_states_may_be_buffers_of_any_kind(self, open_state: OpenState) -> None:
        with open_state().begin(1) as writer:
            writer.put("agg", 0, bytearray(b"small"))
            writer.put("agg", 1, memoryview(LARGE)[1:])
            new = writer.commit().checkpoint_id
        assert open_state().restore(new, "agg", 0).snapshot == b"small"
        assert open_state().restore(new, "agg", 1).snapshot == LARGE[1:]

    def test_a_producer_that_fails_fails_the_checkpoint(self, open_state: OpenState) -> None:
        def pieces() -> Iterator[bytes]:
            yield LARGE
            raise ArithmeticError("of the producer")

        store = open_state(pack_below=ALONE)
        old = write(store, {("agg", 0): b"old"})
        with pytest.raises(ArithmeticError), store.begin(2) as writer:
            writer.put("agg", 0, pieces())
        assert open_state().list() == [old]

    def test_many_threads_bring_states_to_one_writer(self, open_state: OpenState) -> None:
        states = {("agg", n): b"%d" % n * (50 if n % 2 else 2) for n in range(200)}
        store = open_state(pack_below=ALONE, pack_bytes=500, parallelism=2)
        with store.begin(1) as writer, ThreadPoolExecutor(8) as pool:
            puts = [pool.submit(writer.put, *place, state) for place, state in states.items()]
            for done in puts:
                done.result()
            new = writer.commit().checkpoint_id
        assert {k: s.snapshot for k, s in restored(open_state(), new).items()} == states
        assert open_state().verify(new).valid

    def test_a_partition_is_put_once(self, open_state: OpenState) -> None:
        with open_state().begin(1) as writer:
            writer.put("agg", 0, b"one")
            with pytest.raises(InvalidInputError):
                writer.put("agg", 0, b"two")
            new = writer.commit().checkpoint_id
        assert open_state().restore(new, "agg", 0).snapshot == b"one"

    @pytest.mark.parametrize("name", NAMES_THAT_LEAD_AWAY)
    def test_names_that_lead_away_are_refused(
        self, open_state: OpenState, blobs: Blobs, name: str
    ) -> None:
        store = open_state(pack_below=0)
        with store.begin(1) as writer:
            with pytest.raises(InvalidInputError):
                writer.put(name, 0, b"x")
            with pytest.raises(InvalidInputError):
                store.task(writer.checkpoint_id, name)
        assert keys(blobs) == []

    @pytest.mark.parametrize("partition", [-1, 2**32, True, 1.0, "1"])
    def test_a_partition_is_a_number(self, open_state: OpenState, partition: int) -> None:
        with open_state().begin(1) as writer, pytest.raises(InvalidInputError):
            writer.put("agg", partition, b"x")

    def test_a_checkpoint_is_newer_than_its_parent(self, open_state: OpenState) -> None:
        store, older = open_state(), CheckpointId.now()
        parent = write(store, {("agg", 0): b"x"})
        for wrong in (older, parent):
            with pytest.raises(InvalidInputError):
                store.begin(2, parent=parent, checkpoint_id=wrong)


def latest_id(store: StateStore) -> CheckpointId | None:
    manifest = store.latest()
    return manifest.checkpoint_id if manifest else None


def finished_task(store: StateStore, checkpoint_id: CheckpointId, name: str) -> TaskReceipt:
    task = store.task(checkpoint_id, name)
    task.put(name, 0, LARGE)
    return task.finish()
