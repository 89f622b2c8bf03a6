"""Rot in stored state is found while a pipeline runs, and replaced from the working copy."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from seamark.capture.background_budget import Budget, Stopped
from seamark.capture.movers import LARGE
from seamark.capture.scrub import Scrub
from seamark.capture.state_moves import BackgroundMoves
from seamark.manifest import CheckpointManifest
from seamark.manifest.facts import SharedObject
from seamark.store import CheckpointStore
from seamark.store.layout import ObjectLayout
from seamark.store.shared_objects import SHARED_PREFIX
from tests.capture.test_capture_and_restore import Stored, everything
from tests.capture.test_state_moves import look, require_same

Told = list[bool]


def scrubbed(root: Path, told: Told) -> Stored:
    """Checkpoints whose objects are read again and again. The test calls ``look()``."""
    stored = Stored(root, inline=False)
    scrub = Scrub(stored.shared, every=0.0, on_damage=told.append)
    moves = BackgroundMoves(stored.copy, stored.shared, 1 << 40, scrub=scrub)
    moves._thread = object()  # type: ignore[assignment]  # the test is the background
    stored.capture._moves = moves
    return stored


def look_often(stored: Stored) -> None:
    for _ in range(40):
        look(stored)


def spoil(stored: Stored, shared: SharedObject, *, remove: bool = False) -> None:
    blobs, key = stored.store.backend, SHARED_PREFIX + shared.name
    blob = blobs.read(key, 1 << 30)
    assert blob is not None
    blobs.delete([key])
    if not remove:
        blobs.create(key, bytes([*blob.data[:-1], blob.data[-1] ^ 1]))


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "seamark.pipeline")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("remove", [False, True], ids=["flipped", "gone"])
def test_a_damaged_pack_is_found_and_replaced_from_the_working_copy(
    remove: bool, tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    told: Told = []
    stored = scrubbed(tmp_path / "a", told)
    for batch in range(3):
        stored.take(batch)
    look(stored)
    assert told == []
    bad = stored.capture.index.files["state/0/0/2.delta"].shared
    assert bad is not None
    spoil(stored, bad, remove=remove)
    for _ in range(40):  # one object each time, in any order
        look(stored)
    assert told == [True]
    (message,) = warnings()
    assert bad.name in message
    assert "stored again from the working copy" in message
    assert not stored.store.validate_checkpoint(3).valid
    taken = stored.take(3)
    assert taken.is_full, "nothing may build on a checkpoint that refers to the damaged object"
    assert bad not in stored.capture.index.shared_objects
    assert stored.store.validate_checkpoint(4).valid
    require_same(stored, tmp_path / "b")
    stored.take(4)
    assert stored.store.validate_checkpoint(5).valid


def test_a_damaged_object_of_one_large_file_is_replaced(tmp_path: Path) -> None:
    told: Told = []
    stored = scrubbed(tmp_path / "a", told)
    for batch in range(3):
        stored.take(batch)
    stored.copy.write("state/0/0/3.snapshot", os.urandom(LARGE + 1))
    look(stored)
    stored.take(3)
    bad = stored.capture.index.files["state/0/0/3.snapshot"].shared
    assert bad is not None
    spoil(stored, bad)
    for _ in range(60):
        look(stored)
    assert told == [True]
    stored.take(4)
    require_same(stored, tmp_path / "b")
    assert stored.store.recover_latest_validated().chosen_id == 5


def test_what_the_working_copy_has_lost_or_changed_is_not_stored_in_its_place(
    tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    told: Told = []
    stored = scrubbed(tmp_path / "a", told)
    for batch in range(3):
        stored.take(batch)
    bad = stored.capture.index.files["state/0/0/2.delta"].shared
    assert bad is not None
    spoil(stored, bad)
    stored.copy.write("state/0/0/2.delta", b"something else")
    stored.copy.remove("state/0/1/2.delta")
    before = set(stored.shared.entries())
    for _ in range(40):
        look(stored)
    assert told == [False]
    (message,) = warnings()
    assert "state/0/0/2.delta and 1 more" in message
    assert "seamark copy" in message
    assert set(stored.shared.entries()) == before


def test_a_prune_of_what_is_being_read_is_not_taken_for_damage(tmp_path: Path) -> None:
    told: Told = []
    stored = scrubbed(tmp_path / "a", told)
    for batch in range(3):
        stored.take(batch)
    moves = stored.capture._moves
    assert isinstance(moves, BackgroundMoves)
    old = moves._index
    for path in ("state/0/0/3.snapshot", "state/0/1/3.snapshot"):
        stored.copy.write(path, b"snapshot")
    look(stored)
    stored.take(3, full=True)
    stored.store.prune(1)
    for _ in range(40):
        moves._move_objects(old)
    assert told == []
    assert everything(stored.restored(tmp_path / "b"))


def objects(count: int) -> list[SharedObject]:
    return [SharedObject(f"1-{n:032x}", 10, "ab" * 32) for n in range(count)]


def test_each_object_is_read_once_in_the_time_and_not_all_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = [1000.0]
    stored = Stored(tmp_path / "a")
    scrub = Scrub(stored.shared, every=100.0)
    monkeypatch.setattr(scrub, "_clock", lambda: now[0])
    named = objects(10)
    read: list[tuple[float, SharedObject]] = []
    for _ in range(4000):
        now[0] += 0.1
        if (due := scrub.due(named)) is not None:
            scrub.problem(due, Budget(1 << 40))
            read.append((now[0], due))
    assert 30 <= len(read) <= 35  # 400 seconds without the first minute, an object every ten
    for at in range(0, 30, 10):
        assert {each for _, each in read[at : at + 10]} == set(named)
    gaps = [later - before for (before, _), (later, _) in itertools.pairwise(read)]
    assert min(gaps) >= 9.9


def test_with_none_nothing_is_read(tmp_path: Path) -> None:
    scrub = Scrub(Stored(tmp_path / "a").shared, None)
    assert scrub.due(objects(3)) is None


def test_a_driver_that_was_taken_over_calls_nothing_damaged(
    tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    told: Told = []
    stored = scrubbed(tmp_path / "a", told)
    stored.store.claim(pipeline="p")
    for batch in range(3):
        stored.take(batch)
    successor = CheckpointStore(stored.store.backend, ObjectLayout())
    successor.claim(pipeline="p")
    successor.save(CheckpointManifest.new(4, epoch=4))
    assert successor.prune(1).objects
    with pytest.raises(Stopped):
        look_often(stored)
    assert (told, warnings()) == ([], [])
