"""What an epoch that fails has stored is removed again, and nothing that anybody may need."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark import open_store
from seamark.capture.checkpoint_contents import place
from seamark.capture.movers import LARGE
from seamark.capture.state_moves import BackgroundMoves
from seamark.errors import FencedError
from tests.capture.test_capture_and_restore import COMMIT, Stored
from tests.capture.test_state_moves import look, moving, require_same, state_paths
from tests.checkpoint_dir.support.directories import make_copy

BIG = b"." * (LARGE + 1)


def test_objects_of_an_epoch_that_was_not_saved_are_removed(tmp_path: Path) -> None:
    stored = Stored(tmp_path / "a", inline=False)
    stored.take(0)
    before = set(stored.shared.entries())
    make_copy(tmp_path / "a", 2)
    stored.copy.write("state/0/0/2.delta", BIG)
    taken = stored.capture.take(1, COMMIT, full=False)
    place(taken, stored.sizes, stored.uploads, stored.capture.index)
    assert len(stored.shared.entries()) == len(before) + 2
    stored.capture.undone()
    assert set(stored.shared.entries()) == before
    stored.take(1)
    require_same(stored, tmp_path / "b")


def test_I4_a_fenced_writer_removes_what_it_stored_and_nothing_of_its_successor(
    tmp_path: Path,
) -> None:
    url = f"memory://{tmp_path.name}-fenced"
    stored = Stored(tmp_path / "a", inline=False, store=open_store(url))
    stored.store.claim()
    stored.take(0)
    with open_store(url) as other:
        other.claim()
        theirs = other.shared_objects.write([b"of the successor"])
        named = {each.name for each in stored.capture.index.shared_objects}
        with pytest.raises(FencedError):
            stored.take(1)
        stored.capture.undone()
        assert set(other.shared_objects.entries()) == named | {theirs.name}
        assert other.validate_checkpoint(1).valid


def test_what_an_epoch_has_saved_stays_when_the_next_one_fails(tmp_path: Path) -> None:
    stored = Stored(tmp_path / "a", inline=False)
    stored.take(0)
    stored.take(1)
    stored.capture.undone()
    assert stored.store.validate_checkpoint(2).valid


@pytest.mark.parametrize("size", [100, LARGE + 1], ids=["small", "large"])
def test_I11_the_end_of_a_run_refers_to_snapshots_that_no_epoch_came_after(
    size: int, tmp_path: Path
) -> None:
    stored = moving(tmp_path / "a", inline=False)
    for batch in range(4):
        stored.take(batch)
    stored.copy.write("state/0/0/3.snapshot", b"s" * size)
    moves = stored.capture._moves
    assert isinstance(moves, BackgroundMoves)
    moves._thread = None
    moves.decided(stored.capture.index, 4)  # starts the thread, which looks after a while
    moved = stored.capture.moved(60.0)
    assert moved is not None
    stored.save(3, moved)
    moves.close()
    assert state_paths(stored) == {
        "state/0/0/3.snapshot",
        "state/0/0/4.delta",
        *(f"state/0/1/{version}.delta" for version in range(1, 5)),
    }
    assert stored.manifests[-1].is_incremental
    require_same(stored, tmp_path / "b")
    assert stored.store.recover_latest_validated().chosen_id == 5
    chain = stored.chain()
    assert chain.index is not None
    assert chain.index.operators == ["0-stateStoreSave"]
    # and the next run goes on from there
    stored.take(4)
    require_same(stored, tmp_path / "c")


def test_a_run_that_ends_without_new_snapshots_saves_nothing_more(tmp_path: Path) -> None:
    stored = moving(tmp_path / "a", inline=False)
    for batch in range(2):
        stored.take(batch)
    look(stored)
    assert stored.capture.moved(0) is None


def test_an_upload_that_takes_too_long_at_the_end_is_given_up(tmp_path: Path) -> None:
    stored = moving(tmp_path / "a", inline=False)
    for batch in range(4):
        stored.take(batch)
    before = set(stored.shared.entries())
    stored.copy.write("state/0/0/3.snapshot", BIG)
    assert stored.capture.moved(0) is None
    moves = stored.capture._moves
    moves._thread = None  # type: ignore[attr-defined]
    moves.close()
    assert set(stored.shared.entries()) == before
