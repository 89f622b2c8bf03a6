"""A copy is whole or can be finished; it never mixes two histories and never hides damage."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
import obstore
import pytest
from obstore.store import MemoryStore

from seamark._common.json_documents import seal, unseal
from seamark.blobs import object_store
from seamark.blobs.contract import Blobs, Tag
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.blobs.object_store import ObjectBlobs
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    FencedError,
    InvalidInputError,
    RefusedError,
)
from seamark.limits import LARGEST_GENERATION, MOST_SUPERSEDED_RANGES
from seamark.store import CheckpointStore, open_store, ownership
from seamark.store.copy import decisions
from seamark.store.copy.plan import CopyResult, plan_copy
from seamark.store.copy.run import copy_checkpoints
from seamark.store.layout import FilesystemLayout, ObjectLayout
from seamark.store.owner import Owner, Pin, live_pins
from seamark.store.ownership import write_owner
from tests.store.support.copies import BIG, COUNTING, commit, fill, problems, save
from tests.store.support.interleaving import Kind, Place
from tests.support.disk import SimulatedDisk
from tests.support.mounting import mount
from tests.support.recording import Crash, Recording

LAMINAR = Path(__file__).parents[1] / "fixtures/laminar"
When = Literal["before", "after", "torn"]


def in_memory() -> CheckpointStore:
    return CheckpointStore(MemoryBlobs(), ObjectLayout())


@pytest.fixture
def source() -> CheckpointStore:
    store = in_memory()
    fill(store)
    return store


@pytest.fixture
def target(tmp_path: Path) -> CheckpointStore:
    return open_store(tmp_path / "copy")


def outcomes(results: list[CopyResult]) -> dict[int, str]:
    return {each.checkpoint_id: each.outcome for each in results}


# what a copy is


def test_I9_all_that_counts_is_there_and_the_next_writer_goes_on_from_it(
    source: CheckpointStore, target: CheckpointStore
) -> None:
    assert outcomes(copy_checkpoints(source, target)) == dict.fromkeys(COUNTING, "copied")
    assert problems(target, COUNTING) == []
    assert source.owner().timeline == target.owner().timeline
    assert target.owner().pipeline == "orders"
    for checkpoint_id in COUNTING:
        assert target.load_by_id(checkpoint_id) == source.load_by_id(checkpoint_id)
        assert target.load_state_data(checkpoint_id) == BIG
    claim = target.claim(pipeline="orders")
    assert claim.timeline == source.owner().timeline
    assert target.next_id() == 7
    save(target, 7, parent_id=6)
    assert problems(target, [*COUNTING, 7]) == []


def test_a_store_that_was_rolled_back_does_not_bring_the_past_to_life_in_its_copy(
    source: CheckpointStore, target: CheckpointStore
) -> None:
    copy_checkpoints(source, target)
    assert target.owner().superseded == source.owner().superseded
    assert target.load_by_id(3) is None


def test_one_checkpoint_brings_what_it_builds_on_and_nothing_else(
    source: CheckpointStore, target: CheckpointStore
) -> None:
    copy_checkpoints(source, target, plan_copy(source, target, 5))
    assert problems(target, [1, 2, 5]) == []
    assert target.partitioned_state.list() == []


def test_an_older_one_alone_goes_on_in_its_own_timeline(
    source: CheckpointStore, target: CheckpointStore
) -> None:
    copy_checkpoints(source, target, plan_copy(source, target, 2))
    older = source.load_by_id(2)
    assert older is not None
    assert target.owner().timeline == older.extra["timeline"] != source.owner().timeline


def test_a_pipeline_goes_on_from_an_older_one_alone_though_the_next_ids_were_rolled_back(
    target: CheckpointStore,
) -> None:
    source = in_memory()
    source.claim()
    for number in (1, 2, 3):
        save(source, number)
    source.supersede(2, 3)
    save(source, source.next_id())
    copy_checkpoints(source, target, plan_copy(source, target, 1))
    target.claim()
    save(target, target.next_id())
    assert target.list_ids() == [1, 4]
    assert target.recover_latest_validated().chosen_id == 4


def test_copying_again_brings_only_what_is_new_and_what_sinks_have_done_since(
    source: CheckpointStore, target: CheckpointStore
) -> None:
    copy_checkpoints(source, target)
    newest = source.load_by_id(6)
    assert newest is not None
    commit(source, newest)
    save(source, 7, parent_id=6)
    before = target.owner()
    assert outcomes(copy_checkpoints(source, target)) == {
        1: "there already",
        2: "there already",
        5: "there already",
        6: "copied",
        7: "copied",
    }
    assert problems(target, [*COUNTING, 7]) == []
    assert target.load_by_id(6) == source.load_by_id(6)
    assert target.owner().generation > before.generation
    after = target.owner()
    assert set(outcomes(copy_checkpoints(source, target)).values()) == {"there already"}
    assert target.owner() == after, "a copy that has nothing to do changes nothing"


def test_a_commit_that_the_targets_own_pipeline_recorded_is_not_taken_back(
    source: CheckpointStore, target: CheckpointStore
) -> None:
    copy_checkpoints(source, target)
    newest = target.load_by_id(6)
    assert newest is not None
    commit(target, newest)
    assert outcomes(copy_checkpoints(source, target))[6] == "there already"
    kept = target.load_by_id(6)
    assert kept is not None
    assert kept.sink_commit_statuses["out"].is_committed


def test_pins_come_along_when_asked_for(source: CheckpointStore, target: CheckpointStore) -> None:
    copy_checkpoints(source, target)
    assert target.pins() == {}
    copy_checkpoints(source, target, plan_copy(source, target, pins=True))
    assert target.pins() == source.pins()
    target.unpin("before-upgrade")
    target.pin("before-upgrade", 1)
    with pytest.raises(RefusedError, match="before-upgrade"):
        plan_copy(source, target, pins=True)


def test_a_nightly_copy_goes_on_after_both_stores_were_pruned(target: CheckpointStore) -> None:
    source = in_memory()
    source.claim(pipeline="orders")
    for checkpoint_id in range(1, 6):
        save(source, checkpoint_id)
    copy_checkpoints(source, target)
    target.claim()  # as the command does that prunes
    target.prune(1)
    target.close()
    target = open_store(target.url)
    source.prune(3)
    save(source, 6)
    save(source, 7, parent_id=6)
    assert outcomes(copy_checkpoints(source, target)) == {
        3: "pruned there",
        4: "pruned there",
        5: "there already",
        6: "copied",
        7: "copied",
    }
    assert problems(target, [5, 6, 7]) == []
    source.prune(1)
    save(source, 8)
    source.prune(1)
    assert outcomes(copy_checkpoints(source, target)) == {8: "copied"}
    assert problems(target, [5, 6, 7, 8]) == []


def test_what_a_chain_needs_is_brought_back_though_the_target_had_pruned_it(
    target: CheckpointStore,
) -> None:
    source = in_memory()
    source.claim()
    save(source, 1)
    save(source, 2)
    copy_checkpoints(source, target)
    target.prune(1)
    save(source, 3, parent_id=1)  # after a rollback, for example
    assert outcomes(copy_checkpoints(source, target))[3] == "copied"
    assert problems(target, [1, 2, 3]) == []
    target.claim()
    assert problems(target, [1, 2, 3]) == []


# what it refuses


def test_a_target_in_use_is_left_alone(source: CheckpointStore, tmp_path: Path) -> None:
    with open_store(tmp_path) as used:
        used.claim()
        with pytest.raises(FencedError, match="in use"):
            copy_checkpoints(source, open_store(tmp_path))
        used.check_claim()
        assert used.list_ids() == []


def test_a_pipeline_that_starts_on_the_target_meanwhile_is_not_disturbed(
    source: CheckpointStore, tmp_path: Path
) -> None:
    target, other = open_store(tmp_path), open_store(tmp_path)
    plan = plan_copy(source, target)

    def advance(by: float, *, total: float | None = None) -> None:
        if other._parts.ownership.claim_held is None and target.list_ids() == [1]:
            other.claim(pipeline="orders")

    with pytest.raises(FencedError, match="claimed by another writer"):
        copy_checkpoints(source, target, plan, advance=advance)
    other.check_claim()
    assert other.list_ids() == [1]
    save(other, other.next_id())
    other.close()
    with pytest.raises(RefusedError, match="not of the source"):
        copy_checkpoints(source, target)


def test_a_writer_without_a_claim_is_not_written_over(
    source: CheckpointStore, tmp_path: Path
) -> None:
    target = open_store(tmp_path)

    def advance(by: float, *, total: float | None = None) -> None:
        if target.list_ids() == [1]:
            save(open_store(tmp_path), 2)

    with pytest.raises(FencedError, match="2 was written by another writer"):
        copy_checkpoints(source, target, advance=advance)
    kept = target.load_by_id(2)
    assert kept is not None
    assert not kept.is_incremental


def test_what_a_fenced_writer_left_in_the_target_makes_room(
    source: CheckpointStore, tmp_path: Path
) -> None:
    zombie, successor = open_store(tmp_path), open_store(tmp_path)
    zombie.claim()
    late = save(zombie, 1)
    stored = (tmp_path / FilesystemLayout().manifest(1)).read_bytes()
    (tmp_path / FilesystemLayout().manifest(1)).unlink()
    (tmp_path / FilesystemLayout.pointer).unlink()
    successor.claim()
    (tmp_path / FilesystemLayout().manifest(1)).write_bytes(stored)  # it arrives only now
    successor.close()
    target = open_store(tmp_path)
    assert target.load_by_id(late.checkpoint_id) is None
    assert outcomes(copy_checkpoints(source, target))[1] == "copied"
    assert problems(target, COUNTING) == []


def test_a_target_with_a_life_of_its_own_is_refused_whatever_ids_it_has(
    source: CheckpointStore, tmp_path: Path
) -> None:
    for first in (1, 6, 7, 40):
        with open_store(tmp_path / str(first)) as other:
            other.claim()
            save(other, first)
        with open_store(tmp_path / str(first)) as other, pytest.raises(RefusedError):
            copy_checkpoints(source, other)
    copied = open_store(tmp_path / "copied")
    copy_checkpoints(source, copied)
    with copied:
        copied.claim()
        save(copied, copied.next_id())
    save(source, 7)
    source.prune(1)
    save(source, 8)
    source.prune(1)
    with open_store(tmp_path / "copied") as forked, pytest.raises(RefusedError, match="7"):
        copy_checkpoints(source, forked)


def test_another_pipelines_store_and_the_same_store_are_refused(
    source: CheckpointStore, tmp_path: Path
) -> None:
    with open_store(tmp_path / "bills") as other:
        other.claim(pipeline="bills")
    with open_store(tmp_path / "bills") as other, pytest.raises(RefusedError, match="bills"):
        copy_checkpoints(source, other)
    (tmp_path / "link").symlink_to(tmp_path / "bills")
    with pytest.raises(InvalidInputError, match="same store"):
        copy_checkpoints(open_store(tmp_path / "bills"), open_store(tmp_path / "link"))


def test_what_is_not_there_or_was_rolled_back_cannot_be_asked_for(
    source: CheckpointStore, target: CheckpointStore
) -> None:
    with pytest.raises(CheckpointNotFoundError):
        plan_copy(source, target, 17)
    with pytest.raises(RefusedError, match="rollback"):
        plan_copy(source, target, 4)


def damage(store: CheckpointStore, key: str) -> None:
    blob = store.backend.read(key, 1 << 30)
    assert blob is not None
    middle = len(blob.data) // 2
    flipped = bytes([blob.data[middle] ^ 1])
    store.backend.replace(key, blob.data[:middle] + flipped + blob.data[middle + 1 :], blob.tag)


@pytest.mark.parametrize("what", ["manifest", "state", "partition"])
def test_nothing_of_a_damaged_checkpoint_or_of_what_builds_on_it_can_be_seen(
    source: CheckpointStore, target: CheckpointStore, what: str
) -> None:
    newest = source.load_by_id(6)
    assert newest is not None
    key = {
        "manifest": ObjectLayout().manifest(5),
        "state": ObjectLayout().state(5),
        "partition": next(
            entry.key
            for entry in source.backend.entries(f"{newest.table_store_checkpoint_path}/")
            if "manifest" not in entry.key
        ),
    }[what]
    damage(source, key)
    found = outcomes(copy_checkpoints(source, target))
    broken = [6] if what == "partition" else [5, 6]
    assert [i for i, outcome in found.items() if outcome == "damaged"] == broken
    assert problems(target, [i for i in COUNTING if i not in broken]) == []


def test_a_source_that_is_pruned_meanwhile_gives_what_is_left(target: CheckpointStore) -> None:
    source = in_memory()
    source.claim()
    for checkpoint_id in range(1, 7):
        save(source, checkpoint_id)

    def advance(by: float, *, total: float | None = None) -> None:
        if source.owner().prune_boundary == 0:
            source.prune(3)

    found = outcomes(copy_checkpoints(source, target, advance=advance))
    assert found == {1: "copied", 2: "gone", 3: "gone", 4: "copied", 5: "copied", 6: "copied"}
    assert problems(target, [1, 4, 5, 6]) == []


@pytest.mark.parametrize("kind", ["object", "locked"])
def test_a_copy_is_repeated_while_its_source_is_pruned(kind: Kind) -> None:
    for at in range(1, 200):
        place, target = Place(kind), in_memory()
        source = place.store()
        source.claim()
        for checkpoint_id in range(1, 4):
            save(source, checkpoint_id)
        copy_checkpoints(source, target)
        save(source, 4)
        seat = place.seat()
        seat.arm(at, partial(source.prune, 1))
        found = outcomes(copy_checkpoints(place.store(seat), target))
        if seat.disarm():
            assert at > 5, "it was hardly ever pruned"
            return
        assert found[4] == "copied", at
        assert problems(target, target.list_ids()) == [], at
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("kind", ["object", "locked"])
def test_a_target_that_is_pruned_meanwhile_is_not_called_damaged(kind: Kind) -> None:
    pruned = 0
    for at in range(1, 200):
        source, place = in_memory(), Place(kind)
        source.claim()
        for checkpoint_id in range(1, 5):
            save(source, checkpoint_id, parent_id=3 if checkpoint_id == 4 else None)
        seat = place.seat()
        seat.arm(at, partial(place.store().prune, 1))
        found = outcomes(copy_checkpoints(source, place.store(seat)))
        if seat.disarm():
            assert pruned > 5, "it was hardly ever pruned"
            return
        left = [i for i, outcome in found.items() if outcome == "copied"]
        pruned += len(left) < 4
        assert set(found.values()) <= {"copied", "pruned there"}
        assert set(place.store().list_ids()) <= set(left)
        assert problems(place.store(), place.store().list_ids()) == [], at
    raise AssertionError("it never came to an end")


def test_a_sidecar_that_needs_parts_gets_a_name_that_its_manifest_tells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    local = open_store(tmp_path / "local")
    fill(local)
    bucket = MemoryStore()
    remote = CheckpointStore(ObjectBlobs(bucket, "test"), ObjectLayout())
    monkeypatch.setattr(ObjectBlobs, "max_put", len(BIG) - 1)
    copy_checkpoints(local, remote)
    assert problems(remote, COUNTING) == []
    copied = remote.load_by_id(1)
    assert copied is not None
    assert "state_object" in copied.extra
    back = open_store(tmp_path / "back")
    copy_checkpoints(remote, back)
    assert problems(back, COUNTING) == []
    for checkpoint_id in COUNTING:
        assert back.load_by_id(checkpoint_id) == local.load_by_id(checkpoint_id)
    assert set(outcomes(copy_checkpoints(local, remote)).values()) == {"there already"}


# dying


def open_local() -> CheckpointStore:
    return CheckpointStore(FilesystemBlobs("/store"), FilesystemLayout())


def small() -> CheckpointStore:
    store = in_memory()
    store.claim(pipeline="orders")
    save(store, 1)
    save(store, 2)
    store.supersede(2, 2)
    save(store, 3, parent_id=1, partitioned=True)
    return store


def images(disk: SimulatedDisk, seed: int) -> Iterator[tuple[str, SimulatedDisk]]:
    yield "killed", disk.after_kill()
    yield "power cut", disk.after_power_cut()
    yield "unlucky power cut", disk.after_power_cut(random.Random(seed))


def die(act: Callable[[], object]) -> None:
    with suppress(Crash):
        act()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["after", "torn"])
def test_a_copy_that_died_at_any_io_of_its_target_is_finished_by_the_next(
    when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = small()

    def run(crash_at: int | None) -> tuple[Recording, SimulatedDisk]:
        disk = SimulatedDisk()
        recording = Recording(crash_at=crash_at, when=when)
        mount(monkeypatch, recording.wrap(disk), recording.wrap(disk.fcntl))
        die(lambda: copy_checkpoints(source, open_local()))
        return recording, disk

    calls = run(None)[0].calls
    assert len(calls) > 50
    for crash_at in range(1, len(calls) + 1):
        if when == "torn" and not calls[crash_at - 1].writes:
            continue
        recording, disk = run(crash_at)
        assert recording.crashed
        if recording.calls[-1].only_reads:
            continue  # the disk is as the death before has left it
        for what, after in images(disk, crash_at):
            mount(monkeypatch, after, after.fcntl)
            seen = open_local()
            half = [d for i in seen.list_ids() for d in seen.validate_checkpoint(i).damage]
            copy_checkpoints(source, open_local())
            found = half + problems(open_local(), [1, 3])
            assert not found, f"died {when} {recording.calls[-1]}, {what}: {found}\n{after.tree()}"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_copy_that_died_at_any_request_to_its_target_is_finished_by_the_next(
    when: Literal["before", "after"], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = small()

    def run(crash_at: int | None) -> tuple[Recording, Callable[[], CheckpointStore]]:
        bucket = MemoryStore()

        def reopen() -> CheckpointStore:
            return CheckpointStore(ObjectBlobs(bucket, "test"), ObjectLayout())

        recording = Recording(crash_at=crash_at, when=when)
        monkeypatch.setattr(object_store, "obstore", recording.wrap(obstore, kind="obstore"))
        die(lambda: copy_checkpoints(source, reopen()))
        monkeypatch.setattr(object_store, "obstore", obstore)
        return recording, reopen

    total = len(run(None)[0].calls)
    assert total > 10
    for crash_at in range(1, total + 1):
        recording, reopen = run(crash_at)
        assert recording.crashed
        copy_checkpoints(source, reopen())
        found = problems(reopen(), [1, 3])
        assert not found, f"died {when} {recording.calls[-1]}: {found}"


@pytest.mark.parametrize(
    "folder",
    ["laminardb-0.17.0", *(f"made/{path.name}" for path in sorted(LAMINAR.glob("made/*fs-*")))],
)
def test_a_store_of_another_system_copies_byte_by_byte_or_is_said_to_be_damaged(
    folder: str, tmp_path: Path
) -> None:
    source, there = open_store(LAMINAR / folder), in_memory()
    whole = [i for i in source.list_ids() if source.validate_checkpoint(i).valid]
    found = outcomes(copy_checkpoints(source, there))
    assert [i for i, outcome in found.items() if outcome == "copied"] == whole
    back = open_store(tmp_path)
    copy_checkpoints(there, back)
    for checkpoint_id in whole:
        key = FilesystemLayout().manifest(checkpoint_id)
        assert (tmp_path / key).read_bytes() == (LAMINAR / folder / key).read_bytes()
        assert back.load_state_data(checkpoint_id) == source.load_state_data(checkpoint_id)


def test_damage_in_the_target_is_told_and_not_written_over(
    source: CheckpointStore, target: CheckpointStore
) -> None:
    copy_checkpoints(source, target)
    damage(target, FilesystemLayout().manifest(5))
    with pytest.raises(DamageError, match="5 of the target"):
        copy_checkpoints(source, target)


# what the source has forgotten


@pytest.mark.parametrize("is_told", [True, False])
def test_what_was_rolled_back_stays_so_in_a_copy_though_the_source_has_pruned_it_since(
    target: CheckpointStore, is_told: bool
) -> None:
    source = in_memory()
    source.claim()
    for checkpoint_id in range(1, 7):
        save(source, checkpoint_id)
    copy_checkpoints(source, target)
    source.supersede(4, 6)
    for checkpoint_id in range(7, 10):
        save(source, checkpoint_id)
    if not is_told:
        source.prune(1)  # from here on no checkpoint tells what was rolled back
        save(source, 10)
    save(source, 11)
    source.prune(1)
    assert source.owner().superseded == ()
    copy_checkpoints(source, target)
    assert problems(target, [1, 2, 3, 4, 5, 6, 11]) == []
    key = FilesystemLayout().manifest(11)
    (Path(target.url) / key).write_bytes(b"{")
    found = target.recover_latest_validated()
    assert found.chosen_id not in (4, 5, 6)
    assert found.superseded >= {4, 5, 6}
    assert copy_again_changes_nothing(source, target)


def copy_again_changes_nothing(source: CheckpointStore, target: CheckpointStore) -> bool:
    before = target.owner()
    with suppress(DamageError):
        copy_checkpoints(source, target)
    return target.owner() == before


def test_checkpoints_of_the_same_timeline_go_on_to_count_when_the_source_has_pruned_them(
    target: CheckpointStore,
) -> None:
    source = in_memory()
    source.claim()
    for checkpoint_id in range(1, 4):
        save(source, checkpoint_id)
    copy_checkpoints(source, target)
    source.prune(1)
    save(source, 4)
    copy_checkpoints(source, target)
    assert target.owner().superseded == ()
    (Path(target.url) / FilesystemLayout().manifest(4)).write_bytes(b"{")
    assert target.recover_latest_validated().chosen_id == 3


@pytest.mark.parametrize("inner", ["tmp/backup", "probe/b", "deep/er"])
def test_a_store_inside_the_other_is_refused_either_way(tmp_path: Path, inner: str) -> None:
    with open_store(tmp_path / "store") as outer:
        save(outer, 1)
    (tmp_path / "link").symlink_to(tmp_path / "store")
    for one, two in [("store", f"link/{inner}"), (f"link/{inner}", "store")]:
        with pytest.raises(InvalidInputError, match="inside"):
            plan_copy(open_store(tmp_path / one), open_store(tmp_path / two))
    plan_copy(open_store(tmp_path / "store"), open_store(tmp_path / "store-2"))


def test_one_bucket_is_recognised_however_it_is_spelled() -> None:
    def place(url: str, endpoint: str = "http://127.0.0.1:9") -> CheckpointStore:
        options = {"endpoint": endpoint, "region": "us-east-1", "skip_signature": "true"}
        return open_store(url, storage_options=options)

    for two, why in [("s3a://b/x/", "same store"), ("s3a://b/x/tmp", "inside"), ("s3://b", "insi")]:
        with pytest.raises(InvalidInputError, match=why):
            plan_copy(place("s3://b/x"), place(two))
    here = place("s3://b/x").backend.address
    for endpoint in ("http://localhost:9", "http://[::1]:9/", "http://127.0.0.1:9/b/"):
        assert place("s3://b/x", endpoint).backend.address == here
    assert here != place("s3://b/xx").backend.address
    assert here != place("s3://b/x", "http://127.0.0.1:10").backend.address


def changed(file: Path, **members: object) -> None:
    """Change a document of a store, with the checksum that goes with it."""
    document = json.loads(unseal(file.read_bytes())) | members
    file.write_bytes(seal(json.dumps(document).encode()))


@pytest.mark.parametrize("what", ["generation", "rollbacks"])
def test_a_source_that_would_make_the_target_unreadable_is_refused(
    tmp_path: Path, what: str
) -> None:
    with open_store(tmp_path / "source") as source, open_store(tmp_path / "target") as target:
        save(source, 1)
        copy_checkpoints(source, target)
        save(source, 2)
        if what == "generation":
            source.claim()
            source.release()
            changed(tmp_path / "source/owner.json", generation=LARGEST_GENERATION)
        else:
            many = [[3 * number, 3 * number] for number in range(9, MOST_SUPERSEDED_RANGES + 10)]
            manifest = tmp_path / "source" / FilesystemLayout().manifest(2)
            changed(manifest, supersedes=many, decision=None)
        before = target.owner()
        with pytest.raises(RefusedError, match="nobody could read"):
            copy_checkpoints(source, target)
        assert target.owner() == before
        assert target.recover_latest_validated().chosen_id == 1


def test_the_pins_of_a_target_are_gone_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def counted(owner: Owner, now_ms: int | None = None) -> dict[str, Pin]:
        nonlocal looks
        looks += 1
        return live_pins(owner, now_ms)

    monkeypatch.setattr(decisions, "live_pins", counted)
    pins = {f"pin {number}": Pin(1, 0) for number in range(50)}
    owner = Owner(pins=pins)
    assert decisions.pins_to_copy(owner, owner, [1]) == pins
    assert looks == 2


def test_many_pins_come_along_in_one_write(
    target: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = {f"pin {number}": Pin(1, 0) for number in range(50)}
    source = in_memory()
    save(source, 1)
    source._parts.ownership.amend(lambda now: msgspec.structs.replace(now, pins=pins))
    plan = plan_copy(source, target, pins=True)
    written: list[Owner] = []

    def counted(blobs: Blobs, owner: Owner, before: Tag | None) -> None:
        written.append(owner)
        write_owner(blobs, owner, before)

    monkeypatch.setattr(ownership, "write_owner", counted)
    copy_checkpoints(source, target, plan)
    assert target.pins() == pins
    assert [len(owner.pins) for owner in written] == [0, 50]
