"""A fork is whole or not there; its origin never notices it, and neither needs the other."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from seamark import CheckpointManifest, open_store
from seamark.blobs import object_store
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.object_store import ObjectBlobs
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    FencedError,
    InvalidInputError,
    RefusedError,
    SeamarkError,
)
from seamark.pipeline.recovery import fork as fork_module
from seamark.pipeline.recovery.fork import Forked, choose, choose_again, first_of, fork_store
from seamark.pipeline.recovery.rollback import roll_back
from seamark.store import CheckpointStore
from seamark.store.inspection import newest_checkpoint
from seamark.store.layout import FilesystemLayout, ObjectLayout
from seamark.store.owner import live_pins
from tests.cli.support.stores import flip, stored_manifest
from tests.pipeline.support.forks import Origin, contents, everything, filled, structure
from tests.support.disk import SimulatedDisk
from tests.support.mounting import mount
from tests.support.recording import Crash, Recording
from tests.support.servers import ObjectServer
from tests.support.slow_cases import slow_except

Open = Callable[[str], CheckpointStore]
WHEN = ("after", "before")


@pytest.fixture(params=["disk", "memory", "s3"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens stores by their names, all in one place."""
    if request.param == "disk":
        return lambda name: open_store(tmp_path / name)
    if request.param == "memory":
        return lambda name: open_store(f"memory://{tmp_path}/{name}")
    server: ObjectServer = request.getfixturevalue("s3")
    bucket = server.new_url()
    return lambda name: open_store(f"{bucket}/{name}", storage_options=server.storage_options)


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return filled(open_store(tmp_path / "origin"))


@pytest.fixture
def target(tmp_path: Path) -> CheckpointStore:
    return open_store(tmp_path / "fork")


def fork(origin: CheckpointStore, target: CheckpointStore, number: int | None = None) -> Forked:
    return fork_store(origin, target, choose(origin, number))


def require_whole(forked: CheckpointStore, origin: CheckpointStore, number: int) -> None:
    """The fork has exactly the files of the checkpoint that it was forked from."""
    newest = first_of(forked)
    chosen = origin.load_by_id(number)
    assert newest is not None
    assert chosen is not None
    assert forked.validate_checkpoint(newest.checkpoint_id).valid
    assert contents(forked, newest) == contents(origin, chosen)


# beside a pipeline that goes on and prunes


def overtaken(reader: CheckpointStore, origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all that the next walk finds pruned before it is used."""
    walk = reader.recover_latest_validated
    met: list[object] = []

    def then_pruned(**options: Any) -> object:
        found = walk(**options)
        if not met:
            met.append(found)
            origin.add(full=True)
            origin.add(full=True)
            origin.store.prune(1)
        return found

    monkeypatch.setattr(reader, "recover_latest_validated", then_pruned)


def test_the_newest_checkpoint_is_a_newer_one_when_a_prune_is_faster(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "origin") as reader:
        overtaken(reader, origin, monkeypatch)
        assert choose(reader).manifest.checkpoint_id == 5


def test_a_fork_does_not_take_its_own_store_for_given_up_when_a_prune_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = {"url": "/o", "checkpoint_id": 1, "timeline": "t", "epoch": 1}
    own = filled(open_store(tmp_path / "own"), fork=begun)
    with open_store(tmp_path / "own") as reader:
        overtaken(reader, own, monkeypatch)
        newest = first_of(reader)
        assert newest is not None
        assert newest.checkpoint_id == 5


def test_a_start_beside_a_prune_does_not_take_the_store_for_empty(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(stored_manifest(tmp_path / "origin", 3))  # the walk is for what is damaged
    with open_store(tmp_path / "origin") as reader:
        overtaken(reader, origin, monkeypatch)
        newest = newest_checkpoint(reader)
        assert newest is not None
        assert newest.checkpoint_id == 5


def test_a_checkpoint_that_is_pruned_before_it_is_pinned_gives_way_to_a_newer_one(
    origin: Origin, target: CheckpointStore
) -> None:
    chosen = choose(origin.store)
    origin.add(full=True)
    origin.store.prune(1)
    with pytest.raises(CheckpointNotFoundError) as gone:
        fork_store(origin.store, target, chosen)
    assert choose_again(origin.store, chosen, gone.value).manifest.checkpoint_id == 4
    with pytest.raises(DamageError, match="it"):
        choose_again(origin.store, choose(origin.store), DamageError("it"))


# what a fork is


def test_I16_a_fork_has_the_state_of_its_checkpoint_and_the_origin_stays_as_it_was(
    opened: Open,
) -> None:
    with opened("origin") as store, opened("fork") as target:
        origin = filled(store)
        before = everything(store)
        forked = fork(store, target, 2)
        assert everything(store) == before
        require_whole(target, store, 2)
        first, chosen = forked.manifest, store.load_by_id(2)
        assert chosen is not None
        assert (first.epoch, first.batch) == (2, 1)
        assert first.source_offsets == chosen.source_offsets
        assert first.timeline not in ("", chosen.timeline)
        assert first.builds_on is None
        assert not first.sink_names
        assert not first.sink_committables
        assert not first.sink_commit_statuses
        assert first.fork is not None
        assert (first.fork.url, first.fork.checkpoint_id) == (store.url, 2)
        assert first.fork.timeline == chosen.timeline
        assert target.owner().released
        origin.add()  # its writer was not fenced


def test_a_query_of_the_fork_has_an_id_of_its_own(origin: Origin, target: CheckpointStore) -> None:
    from seamark.capture.checkpoint_contents import Chain

    first = fork(origin.store, target).manifest
    ids = [
        Chain.load(store, manifest).small["metadata"]
        for store, manifest in ((origin.store, origin.newest), (target, first))
        if manifest is not None
    ]
    assert ids[0] != ids[1]  # Spark would stop the one when the other starts


def test_on_one_disk_and_in_one_bucket_no_byte_of_an_object_passes_through_here(
    opened: Open,
) -> None:
    with opened("origin") as store, opened("fork") as target:
        filled(store)
        forked = fork(store, target)
        assert forked.size > 9000
        assert forked.streamed == (forked.size if "memory" in store.url else 0)


def test_prune_gc_and_rollback_of_the_one_never_break_the_other(opened: Open) -> None:
    with opened("origin") as store, opened("fork") as target:
        origin = filled(store, 4)
        fork(store, target, 2)
        kept = everything(target)
        origin.add(full=True)
        store.prune(1)
        store.cleanup_orphans(0)
        roll_back(store, store.list_ids()[-1], None)
        store.prune(1)
        store.cleanup_orphans(0)
        assert everything(target) == kept
        assert target.validate_checkpoint(1).valid
        of_origin = everything(store)
        # and the fork goes on, prunes what it was forked with, and is rolled back
        target.claim(pipeline="trades-v2")
        roll_back(target, 1, None)
        target.prune(1)
        target.save(CheckpointManifest.new(target.next_id(), epoch=3, attempt="g0002-1"))
        target.prune(1)
        target.cleanup_orphans(0)
        assert everything(store) == of_origin
        assert all(store.validate_checkpoint(i).valid for i in store.list_ids())


def test_a_fork_of_a_fork_knows_all_that_came_before(opened: Open) -> None:
    with opened("origin") as store, opened("fork") as middle, opened("again") as last:
        filled(store)
        fork(store, middle)
        forked = fork(middle, last).manifest.fork
        assert forked is not None
        assert forked.url == middle.url
        assert forked.pipelines == ("trades",)
        assert forked.targets == (("files", "/data/bars"),)
        assert forked.earlier == ((store.owner().timeline, 3),)
        require_whole(last, store, 3)


def test_a_store_that_was_rolled_back_is_forked_where_it_stands(
    origin: Origin, target: CheckpointStore, tmp_path: Path
) -> None:
    roll_back(origin.store, 2, None)
    forked = fork(origin.store, target)
    assert forked.manifest.epoch == 2
    assert forked.manifest.abandoned is None
    require_whole(target, origin.store, 2)
    # what was given up is still there to be looked into
    with open_store(tmp_path / "given-up") as other:
        assert fork(origin.store, other, 3).manifest.epoch == 3
        require_whole(other, origin.store, 3)


# while the origin runs


def test_what_is_being_read_is_not_pruned_meanwhile(
    origin: Origin, target: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_module, "_THREADS", 1)
    pruned: list[int] = []

    def advance(_: int) -> None:
        if not pruned:
            origin.add(full=True)
            pruned.append(origin.store.prune(1))
            origin.store.cleanup_orphans(0)

    fork_store(origin.store, target, choose(origin.store, 2), advance=advance)
    assert 2 in origin.store.list_ids()
    require_whole(target, origin.store, 2)
    assert origin.store.pins() == {}
    origin.store.prune(1)
    assert 2 not in origin.store.list_ids()
    assert target.validate_checkpoint(1).valid


def test_a_checkpoint_that_was_pruned_before_it_could_be_pinned_is_told(
    origin: Origin, target: CheckpointStore
) -> None:
    chosen = choose(origin.store, 1)
    origin.add(full=True)
    origin.store.prune(1)
    with pytest.raises(CheckpointNotFoundError):
        fork_store(origin.store, target, chosen)
    assert first_of(target) is None


# what is refused


def test_a_store_that_holds_anything_else_is_refused(
    origin: Origin, target: CheckpointStore, tmp_path: Path
) -> None:
    fork(origin.store, target, 2)
    with pytest.raises(RefusedError, match="empty store"):
        fork(origin.store, target, 3)
    with open_store(tmp_path / "other") as other:
        filled(other, 1)
    with open_store(tmp_path / "other") as other, pytest.raises(RefusedError, match="empty"):
        fork(origin.store, other)
    with pytest.raises(InvalidInputError, match="same store"):
        fork(origin.store, open_store(tmp_path / "origin"))
    with pytest.raises(InvalidInputError, match="inside"):
        fork(origin.store, open_store(tmp_path / "origin" / "fork"))


def test_a_store_that_somebody_uses_is_left_alone(origin: Origin, tmp_path: Path) -> None:
    with open_store(tmp_path / "used") as used:
        used.claim(pipeline="other")
        with pytest.raises(FencedError, match="in use"):
            fork(origin.store, open_store(tmp_path / "used"))
        used.check_claim()


def test_of_two_forks_into_one_store_one_is_decided(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_module, "_THREADS", 1)
    first, second = open_store(tmp_path / "fork"), open_store(tmp_path / "fork")
    done: list[Forked] = []

    def advance(_: int) -> None:
        if not done:
            done.append(fork(origin.store, second, 2))

    with pytest.raises(SeamarkError):
        fork_store(origin.store, first, choose(origin.store, 3), advance=advance)
    require_whole(open_store(tmp_path / "fork"), origin.store, 2)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"native": {"path": "/job"}}, "snapshot of a directory"),
        ({"structure": None, "leaves": None}, "not made by a pipeline"),
    ],
)
def test_only_checkpoints_of_a_pipeline_are_forked(
    tmp_path: Path, target: CheckpointStore, fields: dict[str, Any], why: str
) -> None:
    filled(open_store(tmp_path / "origin"), 1, **fields).store.close()
    with open_store(tmp_path / "origin") as store, pytest.raises(RefusedError, match=why):
        fork(store, target)
    assert not (tmp_path / "fork").exists()


# damage


def objects_of(path: Path) -> list[Path]:
    return sorted((path / "shared").iterdir())


@pytest.mark.parametrize("damage", ["flipped", "short", "gone"])
def test_damage_in_any_object_is_found_before_anything_is_decided(
    origin: Origin, tmp_path: Path, damage: str
) -> None:
    origin.store.close()
    for number, path in enumerate(objects_of(tmp_path / "origin")):
        copy = tmp_path / f"origin-{number}"
        shutil.copytree(tmp_path / "origin", copy)
        broken = copy / "shared" / path.name
        data = broken.read_bytes()
        broken.unlink()
        if damage != "gone":
            flipped = bytes([data[0] ^ 1]) + data[1:]
            broken.write_bytes(flipped if damage == "flipped" else data[:-1])
        with open_store(copy) as store, open_store(tmp_path / f"fork-{number}") as target:
            with pytest.raises(DamageError):
                fork(store, target, 3)
            assert first_of(target) is None
            broken.write_bytes(data)
            fork(store, target, 3)
            require_whole(target, store, 3)


def test_the_newest_checkpoint_that_is_whole_is_taken_when_none_is_named(
    origin: Origin, tmp_path: Path, target: CheckpointStore
) -> None:
    manifest = tmp_path / "origin" / FilesystemLayout().manifest(3)
    manifest.write_bytes(manifest.read_bytes().replace(b"trades", b"tradez", 1))
    chosen = choose(origin.store)
    assert chosen.manifest.checkpoint_id == 2
    assert [number for number, _ in chosen.skipped] == [3]
    fork_store(origin.store, target, chosen)
    require_whole(target, origin.store, 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fork", {"url": "x"}),
        ("fork", {"url": "x", "checkpoint_id": -1, "timeline": "", "epoch": 0}),
        (
            "fork",
            {
                "url": "x",
                "checkpoint_id": 1,
                "timeline": "",
                "epoch": 0,
                "targets": [["files", "/x"]] * 1001,
            },
        ),
        ("structure", {**structure(), "sinks": [1, 2]}),
        ("structure", {**structure(), "operators": "bars"}),
    ],
)
def test_a_manifest_that_no_pipeline_writes_is_damage_and_nothing_is_forked(
    tmp_path: Path, target: CheckpointStore, field: str, value: object
) -> None:
    from seamark._common.json_documents import seal

    origin = filled(open_store(tmp_path / "origin"), 1)
    assert origin.newest is not None
    path = tmp_path / "origin" / FilesystemLayout().manifest(1)
    forged = origin.newest.with_extra(self_checksum=None).with_extra(**{field: value})
    path.write_bytes(seal(forged.to_json()))
    with open_store(tmp_path / "origin") as store, pytest.raises((DamageError, RefusedError)):
        fork(store, target, 1)
    assert not (tmp_path / "fork").exists()


# deaths


def open_local(name: str) -> CheckpointStore:
    return CheckpointStore(FilesystemBlobs(f"/{name}"), FilesystemLayout())


def die(act: Callable[[], object]) -> None:
    with suppress(Crash):
        act()


def images(disk: SimulatedDisk, seed: int) -> Iterator[tuple[str, SimulatedDisk]]:
    yield "killed", disk.after_kill()
    yield "power cut", disk.after_power_cut()
    yield "unlucky power cut", disk.after_power_cut(random.Random(seed))


def survived(reopen: Open, before: dict[str, bytes]) -> list[str]:
    """What is wrong after a death in the middle of a fork, and after the fork is done again."""
    found = []
    with reopen("origin") as store, reopen("fork") as target:
        if unchanging(store) != before:
            found.append("the origin has changed")
        if any(pin.expires_at_ms is None for pin in store.pins().values()):
            found.append("a pin stays for ever")
        if first_of(target) is None:
            fork(store, target, 3)
        elif not target.validate_checkpoint(1).valid:
            found.append("a fork that is not whole is decided")
        require_whole(target, store, 3)
        if len(live_pins(store.owner())) > 1:
            found.append("the fork that was done again has left a pin")
        target.claim(pipeline="trades-v2")
        target.save(CheckpointManifest.new(target.next_id(), epoch=4, attempt="g0009-1"))
        target.prune(1)
        target.cleanup_orphans(0)
        if target.shared_objects.entries():
            found.append("objects are left that nothing names")
        if not all(store.validate_checkpoint(i).valid for i in store.list_ids()):
            found.append("the origin is damaged")
    return found


def unchanging(store: CheckpointStore) -> dict[str, bytes]:
    """What a store holds but for its pins, and the pointer, which a power cut may take back."""
    values = everything(store)
    return {k: v for k, v in values.items() if k not in ("owner.json", store._layout.pointer)}


@pytest.mark.slow
@pytest.mark.parametrize("turn", slow_except(range(12), "0"))
def test_I16_a_death_at_any_io_of_a_fork_leaves_the_origin_whole_and_the_fork_can_be_made(
    turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_module, "_THREADS", 1)

    def run(crash_at: int | None) -> tuple[Recording, SimulatedDisk, dict[str, bytes]]:
        disk = SimulatedDisk()
        mount(monkeypatch, disk, disk.fcntl)
        origin = filled(open_local("origin"))
        before = unchanging(origin.store)
        recording = Recording(crash_at=crash_at, when="after")
        mount(monkeypatch, recording.wrap(disk), recording.wrap(disk.fcntl))
        die(lambda: fork(open_local("origin"), open_local("fork"), 3))
        return recording, disk, before

    total = len(run(None)[0].calls)
    assert total > 100
    for crash_at in range(1 + turn, total + 1, 12):
        recording, disk, before = run(crash_at)
        assert recording.crashed
        for what, after in images(disk, crash_at):
            mount(monkeypatch, after, after.fcntl)
            found = survived(open_local, before)
            assert not found, f"died after {recording.calls[-1]}, {what}: {found}\n{after.tree()}"


@pytest.mark.parametrize(
    "case", slow_except([f"{w} {n}" for w in WHEN for n in range(6)], "after 0")
)
def test_I16_a_death_at_any_request_of_a_fork_leaves_the_origin_whole_and_the_fork_can_be_made(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    when, turn = case.split()
    monkeypatch.setattr(fork_module, "_THREADS", 1)

    def run(crash_at: int | None) -> tuple[Recording, Open, dict[str, bytes]]:
        buckets = {"origin": MemoryStore(), "fork": MemoryStore()}

        def reopen(name: str) -> CheckpointStore:
            return CheckpointStore(ObjectBlobs(buckets[name], name), ObjectLayout())

        monkeypatch.setattr(object_store, "obstore", obstore)
        origin = filled(reopen("origin"))
        before = unchanging(origin.store)
        recording = Recording(crash_at=crash_at, when="after" if when == "after" else "before")
        monkeypatch.setattr(object_store, "obstore", recording.wrap(obstore, kind="obstore"))
        die(lambda: fork(reopen("origin"), reopen("fork"), 3))
        monkeypatch.setattr(object_store, "obstore", obstore)
        return recording, reopen, before

    total = len(run(None)[0].calls)
    assert total > 30
    for crash_at in range(1 + int(turn), total + 1, 6):
        recording, reopen, before = run(crash_at)
        assert recording.crashed
        found = survived(reopen, before)
        assert not found, f"died {when} {recording.calls[-1]}: {found}"
