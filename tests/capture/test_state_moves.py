"""The base of a store's state follows Spark's snapshots, and no epoch waits for it."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from seamark.capture.movers import LARGE
from seamark.capture.pack_rewrites import MOST_PACKS
from seamark.capture.state_moves import BackgroundMoves
from seamark.checkpoint_dir.state_files import is_state
from tests.capture.test_capture_and_restore import COMMIT, Stored, everything
from tests.checkpoint_dir.support.directories import make_copy

SNAPSHOT = b"a whole snapshot " * 10


def moving(root: Path, *, inline: bool = True, full_every: int = 100) -> Stored:
    """Checkpoints whose state can move. Nothing runs by itself: the test calls ``look()``."""
    stored = Stored(root, inline=inline, full_every=full_every)
    moves = BackgroundMoves(stored.copy, stored.shared, 1 << 40)
    moves._thread = object()  # type: ignore[assignment]  # the test is the background
    stored.capture._moves = moves
    return stored


def look(stored: Stored) -> None:
    moves = stored.capture._moves
    assert isinstance(moves, BackgroundMoves)
    moves.look()


def state_paths(stored: Stored) -> set[str]:
    return {path for path in stored.capture.index.files if is_state(path)}


def require_same(stored: Stored, root: Path) -> None:
    """Check that a restore writes exactly what the index names, as it is in the directory."""
    made = everything(stored.restored(root))
    assert set(made) == set(stored.capture.index.files) - {
        path for path in stored.capture.index.files if stored.chain()._is_past(path)
    }
    for path in state_paths(stored):
        assert made[path] == stored.copy.read(path)


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "shared"])
@pytest.mark.parametrize("size", [len(SNAPSHOT), LARGE + 1], ids=["small", "large"])
def test_I11_the_base_moves_to_a_snapshot_that_has_arrived_whole(
    inline: bool, size: int, tmp_path: Path
) -> None:
    stored = moving(tmp_path / "a", inline=inline)
    for batch in range(4):
        stored.take(batch)
    stored.copy.write("state/0/0/3.snapshot", SNAPSHOT.ljust(size, b"."))
    taken = stored.take(4)
    assert not taken.stored, "nothing was stored yet"
    look(stored)
    assert "state/0/0/3.snapshot" not in stored.capture.index.files
    taken = stored.take(5)
    assert set(taken.stored) == {"state/0/0/3.snapshot"}
    assert taken.removed == {f"state/0/0/{v}.delta" for v in (1, 2, 3)}
    assert state_paths(stored) == {
        "state/0/0/3.snapshot",
        *(f"state/0/0/{version}.delta" for version in (4, 5, 6)),
        *(f"state/0/1/{version}.delta" for version in range(1, 7)),
    }
    require_same(stored, tmp_path / "b")
    stored.take(6, full=True)
    require_same(stored, tmp_path / "c")
    assert stored.store.validate_checkpoint(len(stored.manifests)).valid


def test_a_snapshot_of_a_version_that_is_not_decided_is_not_taken(tmp_path: Path) -> None:
    stored = moving(tmp_path / "a")
    stored.take(0)
    stored.copy.write("state/0/0/2.snapshot", SNAPSHOT)  # of a batch that may be run again
    look(stored)
    assert not stored.take(1).stored


def test_only_the_newest_snapshot_is_stored(tmp_path: Path) -> None:
    stored = moving(tmp_path / "a")
    for batch in range(4):
        stored.take(batch)
    for version in (2, 3):
        stored.copy.write(f"state/0/0/{version}.snapshot", SNAPSHOT)
    look(stored)
    assert set(stored.take(4).stored) == {"state/0/0/3.snapshot"}
    look(stored)
    assert not stored.take(5).stored


def zipped(*ssts: str) -> bytes:
    listed = [{"localFileName": s, "dfsSstFileName": s, "sizeBytes": 1} for s in ssts]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": listed}))
    return buffer.getvalue()


def test_a_snapshot_whose_files_are_not_all_there_waits(tmp_path: Path) -> None:
    stored = moving(tmp_path / "a")
    for batch in range(3):
        stored.take(batch)
    stored.copy.write("state/0/0/2.zip", zipped("1.sst", "2.sst"))
    stored.copy.write("state/0/0/SSTs/1.sst", b"1")
    look(stored)
    assert not stored.take(3).stored
    stored.copy.write("state/0/0/SSTs/2.sst", b"2")
    look(stored)
    assert set(stored.take(4).stored) == {
        "state/0/0/2.zip",
        "state/0/0/SSTs/1.sst",
        "state/0/0/SSTs/2.sst",
    }
    require_same(stored, tmp_path / "b")


def test_I11_files_that_two_snapshots_share_are_stored_once(tmp_path: Path) -> None:
    stored = moving(tmp_path / "a")
    for batch in range(3):
        stored.take(batch)
    stored.copy.write("state/0/0/2.zip", zipped("1.sst", "2.sst"))
    for number in (1, 2, 3):
        stored.copy.write(f"state/0/0/SSTs/{number}.sst", b"%d" % number)
    look(stored)
    stored.take(3)
    stored.copy.write("state/0/0/4.zip", zipped("2.sst", "3.sst"))
    look(stored)
    taken = stored.take(4)
    assert set(taken.stored) == {"state/0/0/4.zip", "state/0/0/SSTs/3.sst"}
    assert "state/0/0/SSTs/1.sst" in taken.removed
    assert "state/0/0/SSTs/2.sst" not in taken.removed
    require_same(stored, tmp_path / "b")


def test_I6_a_snapshot_that_arrives_after_a_later_one_takes_nothing_away(tmp_path: Path) -> None:
    stored = moving(tmp_path / "a")
    for batch in range(3):
        stored.take(batch)
    stored.copy.write("state/0/0/2.zip", zipped("1.sst"))
    stored.copy.write("state/0/0/SSTs/1.sst", b"1")
    look(stored)
    moves = stored.capture._moves
    assert isinstance(moves, BackgroundMoves)
    [late] = moves._arrived.values()
    stored.take(3)
    stored.copy.write("state/0/0/4.zip", zipped("2.sst"))
    stored.copy.write("state/0/0/SSTs/2.sst", b"2")
    look(stored)
    stored.take(4)
    moves._arrived[late.folder] = late
    assert not stored.take(5).removed
    assert "state/0/0/SSTs/2.sst" in stored.capture.index.files
    require_same(stored, tmp_path / "b")


def test_a_snapshot_with_the_id_of_another_attempt_is_not_taken(tmp_path: Path) -> None:
    stored = moving(tmp_path / "a")
    for batch in range(2):
        stored.take(batch)
    stored.copy.write("state/0/0/2_0badf00d.zip", zipped())
    look(stored)
    assert not stored.take(2).stored


def test_what_was_stored_in_vain_is_removed_at_the_end(tmp_path: Path) -> None:
    stored = moving(tmp_path / "a")
    for batch in range(3):
        stored.take(batch)
    stored.copy.write("state/0/0/2.snapshot", SNAPSHOT)
    look(stored)
    assert len(stored.shared.entries()) == 1
    moves = stored.capture._moves
    assert isinstance(moves, BackgroundMoves)
    moves._thread = None
    moves.close()
    assert stored.shared.entries() == {}


def test_an_epoch_that_fails_does_not_lose_what_has_arrived(tmp_path: Path) -> None:
    stored = moving(tmp_path / "a")
    for batch in range(3):
        stored.take(batch)
    stored.copy.write("state/0/0/2.snapshot", SNAPSHOT)
    look(stored)
    make_copy(tmp_path / "a", 4)
    assert stored.capture.take(3, COMMIT, full=False).stored  # and it is never saved
    assert stored.take(3).stored
    require_same(stored, tmp_path / "b")


@pytest.mark.slow
def test_I11_a_run_without_snapshots_refers_to_a_bounded_number_of_packs(tmp_path: Path) -> None:
    stored = moving(tmp_path / "a", inline=False, full_every=10)
    for batch in range(MOST_PACKS + 30):
        stored.take(batch)
        look(stored)
    objects = stored.capture.index.shared_objects
    assert len(objects) <= MOST_PACKS + 1
    require_same(stored, tmp_path / "b")
    stored.store.prune(1)
    assert len(stored.shared.entries()) <= MOST_PACKS + 60
    assert stored.store.validate_checkpoint(len(stored.manifests)).valid


def test_I6_what_one_checkpoint_has_named_stays_although_the_next_does_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = moving(tmp_path / "a", inline=False, full_every=1000)
    moves = stored.capture._moves
    assert isinstance(moves, BackgroundMoves)
    batches = MOST_PACKS + 3
    for batch in range(batches):
        stored.take(batch)
    look(stored)  # packs are merged
    for partition in (0, 1):
        stored.copy.write(f"state/0/{partition}/{batches}.snapshot", SNAPSHOT)
    store_snapshots = moves._store_snapshots

    def while_an_epoch_is_decided(*args: Any) -> None:
        stored.take(batches)  # refers to the merged pack
        store_snapshots(*args)

    with monkeypatch.context() as patch:
        patch.setattr(moves, "_store_snapshots", while_an_epoch_is_decided)
        look(stored)
    stored.take(batches + 1)  # refers to the snapshots instead
    look(stored)
    for manifest in stored.manifests:
        assert stored.store.validate_checkpoint(manifest.checkpoint_id).valid
