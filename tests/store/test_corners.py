"""Small histories of two handles that once ended badly; found by the state machine."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from seamark.blobs.memory import MemoryBlobs
from seamark.errors import CheckpointNotFoundError, FencedError, SeamarkError
from seamark.manifest import CheckpointManifest, OperatorCheckpoint
from seamark.store import CheckpointStore
from tests.store.support.interleaving import Kind, Place, Seat


def manifest(checkpoint_id: int, state: bytes | None = None) -> CheckpointManifest:
    operators = {}
    if state is not None:
        operators["op"] = OperatorCheckpoint.in_sidecar(0, len(state))
    return CheckpointManifest.new(checkpoint_id, epoch=checkpoint_id, operator_states=operators)


class Pair:
    """Two handles on one place; the first one's seat can let the second one in."""

    def __init__(self, kind: Kind = "object", root: str = "") -> None:
        self.place = Place(kind, root)
        self.seat: Seat = self.place.seat()
        self.one: CheckpointStore = self.place.store(self.seat)
        self.two: CheckpointStore = self.place.store(self.place.seat())


def test_I3_an_id_that_was_given_up_cannot_be_saved_and_lost() -> None:
    pair = Pair()
    pair.one.claim()
    pair.one.save(manifest(5))
    pair.two.claim()  # the tombstone under 1 is void from here on
    with pytest.raises(FencedError):
        pair.two.save(manifest(1))


@pytest.mark.parametrize("kind", ["locked", "filesystem"])
def test_I1_state_that_another_writer_has_replaced_is_not_taken_for_ones_own(
    kind: Kind, tmp_path: Path
) -> None:
    pair = Pair(kind, str(tmp_path))
    pair.one.save(manifest(1))
    pair.one.save_state_data(2, [b"AAAA"])
    pair.two.claim()
    pair.two.save_state_data(2, [b"BBBB"])
    pair.two.close()
    with pytest.raises(SeamarkError):
        pair.one.save(manifest(2, b"AAAA"))
    assert pair.place.store().list_ids() == [1]


def test_I8_an_unreadable_pointer_beside_a_lost_manifest_is_no_fresh_start() -> None:
    pair = Pair()
    pair.one.save(manifest(1))
    pair.place.overwrite(pair.place.layout.manifest(1), None)
    pair.place.overwrite(pair.place.layout.pointer, b"{")
    assert not pair.place.store().recover_latest_validated().fresh_start


def test_what_came_too_late_cannot_be_updated_by_the_one_who_remembers_it() -> None:
    pair = Pair()
    pair.one.save(manifest(1))

    def visit() -> None:
        pair.two.claim()
        pair.two.close()

    pair.seat.arm(2, visit)
    late = pair.one.save(manifest(5))
    assert pair.one.load_by_id(5) is None
    for store in (pair.one, pair.place.store()):
        with pytest.raises(CheckpointNotFoundError):
            store.update_manifest(late)


def test_a_lost_newest_manifest_below_a_tombstone_is_reported() -> None:
    pair = Pair()
    pair.one.claim()
    pair.one.save(manifest(1))
    pair.one.claim()
    pair.place.overwrite(pair.place.layout.manifest(1), None)
    report = pair.place.store().recover_latest_validated()
    assert [skipped for skipped, _ in report.skipped] == [1]


def test_an_update_from_the_newest_version_is_good_whatever_the_handle_remembers() -> None:
    pair = Pair()
    pair.one.save(manifest(1))
    first = pair.two.load_by_id(1)
    assert first is not None
    newest = pair.two.update_manifest(first.with_extra(note=1))
    assert pair.one.update_manifest(newest.with_extra(note=2)).extra["note"] == 2


def test_a_folder_that_a_clean_up_removed_is_made_again(tmp_path: Path) -> None:
    pair = Pair("filesystem", str(tmp_path))
    pair.one.save_state_data(1, [b"AAAA"])
    assert pair.two.cleanup_orphans(min_age=0) == 1
    pair.one.save_state_data(1, [b"AAAA"])
    pair.one.save(manifest(1, b"AAAA"))
    assert pair.place.store().validate_checkpoint(1).valid


def test_next_id_can_be_saved_also_when_a_superseded_newest_one_is_lost() -> None:
    pair = Pair()
    pair.one.claim()
    pair.one.save(manifest(1))
    pair.one.supersede(1, 1)
    pair.place.overwrite(pair.place.layout.manifest(1), None)
    pair.place.overwrite(pair.place.layout.pointer, None)
    checkpoint_id = pair.one.next_id()
    assert checkpoint_id > 1
    pair.one.save(manifest(checkpoint_id))


def test_an_owner_replaces_the_tombstone_of_a_claim_that_it_overtook() -> None:
    for at in range(1, 16):
        pair = Pair()
        pair.one.claim()
        pair.one.save(manifest(1))

        def take_over(pair: Pair = pair) -> None:
            pair.two.claim()
            pair.two.save(manifest(2))

        pair.seat.arm(at, take_over)
        try:
            pair.one.claim()
        except FencedError:
            pair.two.save(manifest(3))
            assert pair.two.list_ids() == [1, 2, 3]


def test_the_clock_of_a_memory_store_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = MemoryBlobs()
    blobs.create("a", b"")
    monkeypatch.setattr(time, "time", lambda: 0.0)
    blobs.create("b", b"")
    first, second = blobs.entries("")
    assert 0 < first.modified <= second.modified <= blobs.clock()
