"""Real processes whose states meet in one manifest, and what a dead one leaves behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from seamark.state import CheckpointId, PartitionState, StateStore, TaskReceipt

SPAWN = multiprocessing.get_context("spawn")
WORKERS = 4
PATIENCE = 280.0
LARGE = 200_000


def state_of(worker: int, partition: int) -> bytes:
    return b"%d/%d " % (worker, partition) * (LARGE // 10 if partition % 5 == 0 else 9)


def work(root: str, checkpoint_id: CheckpointId, worker: int, told: Connection) -> None:
    """One task, as an executor of a cluster would run it."""
    with StateStore(root, pack_below=LARGE // 10).task(checkpoint_id, f"worker-{worker}") as task:
        for partition in range(20):
            task.put(f"op-{worker}", partition, state_of(worker, partition))
        told.send_bytes(task.finish().to_json())


def work_and_hang(root: str, checkpoint_id: CheckpointId, worker: int, told: Connection) -> None:
    """The same, but in the middle of a large state nothing more comes."""
    task = StateStore(root, pack_below=LARGE // 10).task(checkpoint_id, f"worker-{worker}")
    for partition in range(10):
        task.put(f"op-{worker}", partition, state_of(worker, partition))

    def pieces() -> Iterator[bytes]:
        yield b"x" * LARGE
        told.send_bytes(b"in the middle")
        time.sleep(600)

    task.put(f"op-{worker}", 10, pieces())


Worker = tuple[multiprocessing.process.BaseProcess, Connection]


def start(target: object, root: Path, checkpoint_id: CheckpointId, worker: int) -> Worker:
    mine, theirs = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(
        target=target,  # type: ignore[arg-type]
        args=(str(root), checkpoint_id, worker, theirs),
        daemon=True,
    )
    process.start()
    theirs.close()
    return process, mine


def receipt_of(worker: Worker) -> TaskReceipt:
    process, told = worker
    assert told.poll(PATIENCE)
    receipt = TaskReceipt.from_json(told.recv_bytes())
    process.join(PATIENCE)
    assert process.exitcode == 0
    return receipt


def expected_of(workers: int) -> dict[tuple[str, int], PartitionState]:
    return {
        (f"op-{worker}", partition): PartitionState(state_of(worker, partition), [])
        for worker in range(workers)
        for partition in range(20)
    }


def files_below(root: Path) -> dict[str, int]:
    return {
        str(path.relative_to(root)): path.stat().st_size
        for path in root.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


def test_the_states_of_many_processes_meet_in_one_manifest(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "store")
    with store.begin(1) as writer:
        workers = [start(work, tmp_path / "store", writer.checkpoint_id, n) for n in range(WORKERS)]
        receipts = [receipt_of(worker) for worker in workers]
        assert store.list() == []
        for receipt in receipts:
            writer.add(receipt)
        new = writer.commit().checkpoint_id
    reader = StateStore(tmp_path / "store")
    assert reader.list() == [new]
    assert {(o, p): s for o, p, s in reader.restore_all(new)} == expected_of(WORKERS)
    assert reader.verify(new).valid


def test_a_killed_process_changes_nothing_and_its_task_can_be_tried_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = StateStore(root)
    with store.begin(1) as writer:
        writer.put("op-old", 0, b"old")
        old = writer.commit().checkpoint_id
    pointer = (root / "checkpoints/_latest").read_bytes()
    with store.begin(2) as writer:
        victim = start(work_and_hang, root, writer.checkpoint_id, 0)
        others = [start(work, root, writer.checkpoint_id, n) for n in range(1, WORKERS)]
        receipts = [receipt_of(worker) for worker in others]
        kill_in_the_middle(victim, lambda: any("op-0/" in f for f in files_below(root)))
        reader = StateStore(root)
        assert reader.list() == [old]
        assert (root / "checkpoints/_latest").read_bytes() == pointer
        again = receipt_of(start(work, root, writer.checkpoint_id, 0))
        for receipt in (*receipts, again):
            writer.add(receipt)
        new = writer.commit().checkpoint_id
    reader = StateStore(root)
    assert reader.list() == [old, new]
    assert {(o, p): s for o, p, s in reader.restore_all(new)} == expected_of(WORKERS)
    assert reader.cleanup_orphans(min_age=0) > 0
    assert reader.cleanup_orphans(min_age=0) == 0
    assert reader.verify(new).valid
    assert reader.verify(old).valid


def test_what_killed_processes_left_can_be_cleaned_up(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with StateStore(root).begin(1) as writer:
        writer.put("op-old", 0, b"old")
        writer.commit()
    before = files_below(root)
    victim = start(work_and_hang, root, CheckpointId.now(), 0)
    kill_in_the_middle(victim, lambda: len(files_below(root)) > len(before))
    assert StateStore(root).cleanup_orphans() == 0  # it is young
    StateStore(root).cleanup_orphans(min_age=0)
    assert files_below(root) == before


def kill_in_the_middle(worker: Worker, has_written: Callable[[], bool]) -> None:
    process, told = worker
    assert told.poll(PATIENCE)
    assert told.recv_bytes() == b"in the middle"
    deadline = time.monotonic() + PATIENCE
    while not has_written():  # what it has put before is on its way
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with pytest.raises(EOFError):
        told.recv_bytes()
