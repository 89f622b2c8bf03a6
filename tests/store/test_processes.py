"""Real processes on a real disk: SIGKILL at random moments, and two writers at once."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from seamark.errors import FencedError, StoreUnavailableError
from seamark.manifest import CheckpointManifest, OperatorCheckpoint
from seamark.store import CheckpointStore, open_store
from seamark.store.inspection import scan

SPAWN = multiprocessing.get_context("spawn")
STATE = random.Random(1).randbytes(300_000)
PATIENCE = 280.0


def save_forever(root: str, told: Connection) -> None:
    store = open_store(root, keep=3)
    store.claim()
    told.send(("claimed", store.owner().generation))
    while True:
        checkpoint_id = store.next_id()
        operators = {"op": OperatorCheckpoint.in_sidecar(0, len(STATE))}
        manifest = CheckpointManifest.new(
            checkpoint_id, epoch=checkpoint_id, operator_states=operators
        )
        try:
            store.save_with_state(manifest, [STATE])
        except FencedError:
            told.send(("fenced", checkpoint_id))
            return
        told.send(("saved", checkpoint_id))


def drain(told: Connection) -> list[tuple[str, int]]:
    """All that a process has told, up to the last whole message before it died."""
    messages = []
    try:
        while told.poll(0):
            messages.append(told.recv())
    except (EOFError, OSError):
        pass
    return messages


def start(root: Path) -> tuple[multiprocessing.process.BaseProcess, Connection]:
    mine, theirs = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=save_forever, args=(str(root), theirs), daemon=True)
    process.start()
    theirs.close()
    assert mine.poll(PATIENCE)
    return process, mine


def first_save(told: Connection) -> list[tuple[str, int]]:
    """Wait until a process has saved something; all that it has told."""
    messages: list[tuple[str, int]] = []
    while not messages or messages[-1][0] == "claimed":
        assert told.poll(PATIENCE)
        messages.append(told.recv())
    return messages


@pytest.mark.slow
def test_I3_no_acknowledged_checkpoint_is_lost_when_the_writer_is_killed(tmp_path: Path) -> None:
    rng = random.Random(int(os.environ["SEAMARK_SEED"]))
    newest = 0
    for _ in range(6):
        process, told = start(tmp_path / "store")
        messages = first_save(told) if rng.random() < 0.5 else []
        time.sleep(rng.uniform(0.0, 0.25))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        saved = [number for what, number in messages + drain(told) if what == "saved"]
        newest = max([newest, *saved])
        store = open_store(tmp_path / "store")
        report = store.recover_latest_validated()
        assert (report.chosen_id or 0) >= newest
        if report.chosen_id is not None:
            assert store.load_state_data(report.chosen_id) == STATE
            newest = report.chosen_id
        assert report.skipped == []
    assert newest > 0


def test_I4_a_second_process_takes_over_and_the_first_one_is_told(tmp_path: Path) -> None:
    first, told_first = start(tmp_path / "store")
    second, told_second = start(tmp_path / "store")
    first.join(PATIENCE)
    assert first.exitcode == 0
    messages = first_save(told_second)
    second.kill()
    second.join()
    by_first, by_second = drain(told_first), messages + drain(told_second)
    assert by_first[-1][0] == "fenced"
    saved_first = {number for what, number in by_first if what == "saved"}
    saved_second = {number for what, number in by_second if what == "saved"}
    assert saved_second
    assert saved_first.isdisjoint(saved_second)
    assert max(saved_first, default=0) < min(saved_second)


def test_a_dead_owner_does_not_lock_out_a_writer_without_a_claim(tmp_path: Path) -> None:
    process, told = start(tmp_path / "store")
    assert told.poll(PATIENCE)
    outsider = open_store(tmp_path / "store")
    with pytest.raises(FencedError, match="another writer"):
        outsider.save(CheckpointManifest.new(10_000, epoch=1))
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    outsider.save(CheckpointManifest.new(10_000, epoch=1))
    assert outsider.recover_latest_validated().chosen_id == 10_000


def save_and_prune(root: str, saves: int, done: Event) -> None:
    with open_store(root, keep=1) as store:
        store.claim()
        for _ in range(saves):
            number = store.next_id()
            store.save_with_state(CheckpointManifest.new(number, epoch=number), [STATE[:5000]])
    done.set()


def wrong_answers(store: CheckpointStore) -> list[object]:
    """What a store that always holds a whole checkpoint may never answer."""
    report = store.recover_latest_validated()
    surveyed = list(scan(store))
    newest = report.chosen_id or 1
    damage = store.validate_checkpoint(newest).damage
    answers: dict[str, tuple[bool, object]] = {
        "recover": (report.chosen_id is not None and not report.broken, report),
        "load_latest": (store.load_latest() is not None, None),
        "list": (bool(store.list()), []),
        "list_ids": (bool(store.list_ids()), []),
        "survey": (bool(surveyed) and not any(each.damage for each in surveyed), surveyed),
        "plan_prune": (all(v.reason != "damaged" for v in store.plan_prune(1)), "damaged"),
        "validate": (damage in ([], [f"manifest not found for checkpoint {newest}"]), damage),
    }
    return [(name, found) for name, (is_right, found) in answers.items() if not is_right]


def read_meanwhile(root: str, done: Event, told: Connection) -> None:
    """Read in every way until the writer has ended, and at least once."""
    wrong: list[object] = []
    rounds = 0
    while not wrong and not (done.is_set() and rounds):
        rounds += 1
        try:
            wrong += wrong_answers(open_store(root))
        except StoreUnavailableError as error:
            if "pruned while they were being read" not in error.what:
                wrong.append(repr(error))
        except Exception as error:  # noqa: BLE001 - told to the test
            wrong.append(repr(error))
    told.send([str(each) for each in wrong])


@pytest.mark.slow
def test_readers_beside_a_writer_that_prunes_never_see_damage_or_an_empty_store(
    tmp_path: Path,
) -> None:
    root = str(tmp_path / "store")
    with open_store(root) as store:
        store.save(CheckpointManifest.new(1, epoch=1))
    done = SPAWN.Event()
    writer = SPAWN.Process(target=save_and_prune, args=(root, 100, done), daemon=True)
    answers: list[Connection] = []
    processes: list[multiprocessing.process.BaseProcess] = [writer]
    for _ in range(3):
        mine, theirs = SPAWN.Pipe(duplex=False)
        processes.append(SPAWN.Process(target=read_meanwhile, args=(root, done, theirs)))
        answers.append(mine)
    for process in processes:
        process.start()
    try:
        for answer in answers:
            assert answer.recv() == []
    finally:
        done.set()
        for process in processes:
            process.join()
    assert writer.exitcode == 0


def test_many_threads_share_one_handle(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with open_store(tmp_path / "store") as store, ThreadPoolExecutor(8) as pool:
        store.claim()

        def save(checkpoint_id: int) -> int:
            manifest = CheckpointManifest.new(checkpoint_id, epoch=checkpoint_id)
            store.save_with_state(manifest, [b"%d" % checkpoint_id])
            return checkpoint_id

        ids = sorted(pool.map(save, range(1, 41)))
        assert store.list_ids() == ids
        assert all(pool.map(lambda i: store.validate_checkpoint(i).valid, ids))
