"""States that several tasks bring, tasks that are tried again, and tasks that contradict."""

from __future__ import annotations

from typing import cast

import pytest

from seamark.blobs.contract import Blobs
from seamark.errors import InvalidInputError, RefusedError
from seamark.state import CheckpointId, PartitionState, TaskReceipt
from tests.state.support.examples import (
    ALONE,
    LARGE,
    PATHS,
    OpenState,
    objects,
    restored,
    write,
)

OTHER = LARGE[::-1]


class StateTasks:
    """task and its receipt."""

    def test_the_receipts_of_several_tasks_meet_in_one_manifest(
        self, open_state: OpenState
    ) -> None:
        writer = open_state().begin(1)
        for name in ("a", "b", "c"):
            task = open_state(pack_below=ALONE).task(writer.checkpoint_id, name)
            task.put(f"op-{name}", 0, b"small of " + name.encode())
            task.put("shared", ord(name), LARGE)
            writer.add(TaskReceipt.from_json(task.finish().to_json()))
        writer.put("own", 0, b"the writer's")
        new = writer.commit().checkpoint_id
        found = restored(open_state(), new)
        assert len(found) == 7
        assert found["op-b", 0] == PartitionState(b"small of b", [])
        assert found["shared", ord("c")] == PartitionState(LARGE, [])
        assert found["own", 0] == PartitionState(b"the writer's", [])
        assert open_state().verify(new).valid

    def test_a_receipt_counts_once_however_often_it_arrives(self, open_state: OpenState) -> None:
        store = open_state()
        with store.begin(1) as writer:
            task = store.task(writer.checkpoint_id, "a")
            task.put("agg", 0, b"state")
            receipt = task.finish()
            writer.add(receipt)
            writer.add(TaskReceipt.from_json(receipt.to_json()))
            new = writer.commit().checkpoint_id
        assert len(store.load(new).operators["agg"].partitions) == 1

    def test_a_receipt_of_another_checkpoint_is_refused(self, open_state: OpenState) -> None:
        store = open_state()
        with store.begin(1) as writer, pytest.raises(InvalidInputError):
            writer.add(store.task(CheckpointId.now(), "a").finish())

    def test_what_is_no_receipt_is_refused(self) -> None:
        for data in (b"", b"{}", b"[]", b"\xff", b'{"checkpoint_id":"x","task":"a","entries":[]}'):
            with pytest.raises(InvalidInputError):
                TaskReceipt.from_json(data)

    @pytest.mark.parametrize("retried", [LARGE, OTHER, LARGE + b"!", b""], ids=len)
    @pytest.mark.parametrize("pieces", [False, True], ids=["bytes", "stream"])
    def test_a_task_that_is_tried_again_does_no_harm(
        self, open_state: OpenState, blobs: Blobs, retried: bytes, pieces: bool
    ) -> None:
        store = open_state(pack_below=0)
        with store.begin(1) as writer:
            dead = store.task(writer.checkpoint_id, "a")
            dead.put("agg", 0, LARGE)
            dead.finish()  # and its receipt never arrives
            task = open_state(pack_below=0).task(writer.checkpoint_id, "a")
            task.put("agg", 0, [retried] if pieces else retried)
            writer.add(task.finish())
            new = writer.commit().checkpoint_id
        reader = open_state()
        assert reader.restore(new, "agg", 0).snapshot == retried
        assert reader.verify(new).valid
        left = blobs.read(PATHS.snapshot(new, "agg", 0), 1 << 20)
        assert left is not None
        assert left.data == LARGE  # the first try may still be on its way: it is not touched

    def test_both_tries_of_a_task_may_end_well(self, open_state: OpenState) -> None:
        store = open_state(pack_below=0)
        with store.begin(1) as writer:
            for name in ("try-1", "try-2"):
                task = open_state(pack_below=0).task(writer.checkpoint_id, name)
                task.put("agg", 0, LARGE)
                writer.add(task.finish())
            new = writer.commit().checkpoint_id
        assert restored(open_state(), new) == {("agg", 0): PartitionState(LARGE, [])}

    def test_one_partition_with_two_contents_is_refused(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        store = open_state()
        old = write(store, {("agg", 0): b"old"})
        with store.begin(2) as writer:
            for name, state in (("a", b"one"), ("b", b"two")):
                task = store.task(writer.checkpoint_id, name)
                task.put("agg", 0, state)
                writer.add(task.finish())
            with pytest.raises(InvalidInputError):
                writer.commit()
        assert open_state().list() == [old]

    def test_one_partition_as_snapshot_and_as_delta_is_refused(self, open_state: OpenState) -> None:
        store = open_state()
        old = write(store, {("agg", 0): b"a snapshot that is long enough"})
        with store.begin(2, parent=old) as writer:
            for name in ("a", "b"):
                task = store.task(writer.checkpoint_id, name)
                task.put("agg", 0, b"same bytes", is_delta=name == "b")
                writer.add(task.finish())
            with pytest.raises(InvalidInputError):
                writer.commit()
        assert open_state().list() == [old]

    def test_two_receipts_of_one_task_are_refused(self, open_state: OpenState) -> None:
        store = open_state()
        with store.begin(1) as writer:
            for partition in (0, 1):
                task = store.task(writer.checkpoint_id, "a")
                task.put("agg", partition, b"x")
                if partition == 0:
                    writer.add(task.finish())
                    continue
                with pytest.raises(InvalidInputError):
                    writer.add(task.finish())

    def test_a_delta_of_a_task_needs_a_snapshot_too(self, open_state: OpenState) -> None:
        store = open_state()
        with store.begin(1) as writer:
            task = store.task(writer.checkpoint_id, "a")
            task.put("agg", 0, b"changes", is_delta=True)
            writer.add(task.finish())
            with pytest.raises(RefusedError):
                writer.commit()
        assert open_state().list() == []

    def test_a_task_takes_nothing_after_its_end(self, open_state: OpenState, blobs: Blobs) -> None:
        store = open_state()
        for end in ("finish", "abandon"):
            task = store.task(CheckpointId.now(), "a")
            getattr(task, end)()
            with pytest.raises(InvalidInputError):
                task.put("agg", 0, b"late")
        assert objects(blobs) == []

    def test_a_task_that_was_abandoned_gives_no_receipt(self, open_state: OpenState) -> None:
        for state in (b"small", LARGE):
            task = open_state(pack_below=ALONE).task(CheckpointId.now(), "a")
            task.put("agg", 0, state)
            task.abandon()
            with pytest.raises(InvalidInputError):
                task.finish()

    def test_a_put_that_failed_is_not_left_out_in_silence(self, open_state: OpenState) -> None:
        store = open_state(pack_below=0)
        old = write(store, {("agg", 0): b"old", ("agg", 1): b"old"})
        with store.begin(2, parent=old) as writer:
            with pytest.raises(InvalidInputError):
                writer.put("agg", 0, cast("list[bytes]", [b"new", "not bytes"]))
            writer.put("agg", 1, b"new")
            # the old state of one partition with the new one of the other would be neither
            with pytest.raises(InvalidInputError):
                writer.commit()
        assert open_state().list() == [old]
