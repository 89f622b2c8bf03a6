"""What a task takes, and what a writer takes of it."""

from __future__ import annotations

import msgspec
import pytest

from seamark.errors import InvalidInputError
from seamark.state import StateStore, TaskReceipt


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_small_states_are_packed_whatever_they_come_in(kind: type) -> None:
    store = StateStore("memory://")
    with store.begin(1) as writer:
        for partition in range(3):
            writer.put("agg", partition, kind(b"small"))
        manifest = writer.commit()
    paths = {entry.path for entry in manifest.operators["agg"].partitions}
    assert len(paths) == 1
    assert store.restore(manifest.checkpoint_id, "agg", 2).snapshot == b"small"


def test_the_name_of_the_writers_own_task_is_refused() -> None:
    store = StateStore("memory://")
    with store.begin(1) as writer, pytest.raises(InvalidInputError, match="main"):
        store.task(writer.checkpoint_id, "main")


def test_a_receipt_that_leads_elsewhere_is_refused() -> None:
    store = StateStore("memory://")
    with store.begin(1) as writer:
        task = store.task(writer.checkpoint_id, "a")
        task.put("agg", 0, b"state")
        receipt = task.finish()
        operator, entry = receipt.entries[0]
        elsewhere = msgspec.structs.replace(entry, path="../other/packs/x.lcb")
        writer.add(TaskReceipt(receipt.checkpoint_id, "a", [(operator, elsewhere)]))
        with pytest.raises(InvalidInputError, match="leave"):
            writer.commit()
    assert store.list() == []


def test_large_and_small_states_of_many_threads_do_not_wait_for_each_other() -> None:
    from concurrent.futures import ThreadPoolExecutor

    store = StateStore("memory://", parallelism=1, pack_below=20_000, pack_bytes=1)
    with store.begin(1) as writer, ThreadPoolExecutor(4) as pool:
        sizes = [number * 997 % 70_000 for number in range(120)]
        list(pool.map(lambda n: writer.put("agg", n, bytes(sizes[n])), range(120)))
        new = writer.commit().checkpoint_id
    found = {partition: state.snapshot for _, partition, state in store.restore_all(new)}
    assert found == {number: bytes(size) for number, size in enumerate(sizes)}
