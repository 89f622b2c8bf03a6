"""Whether the writer of a store lives, asked beside one that claims it, gives it back or takes it.

On a disk a writer that lives holds a mark. It must never seem to have died without giving the store
back, whatever moment of its claim or release a reader meets.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from seamark import CheckpointManifest
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.errors import FencedError
from seamark.store import CheckpointStore
from seamark.store.content_health import check_contents
from seamark.store.copy.plan import plan_copy
from seamark.store.health import check_place
from seamark.store.inspection import writer_of
from seamark.ui.store_watch import StoreWatch
from tests.store.support.interleaving import Place

Look = Callable[[CheckpointStore], bool]


def told_by_the_store(store: CheckpointStore) -> bool:
    owner, alive = writer_of(store)
    return not owner.released and not alive


def told_by_doctor(store: CheckpointStore) -> bool:
    return any("has died" in check.found for check in check_contents(store))


def told_on_the_page(store: CheckpointStore) -> bool:
    watch = StoreWatch(lambda: store, store.url)
    watch.look()
    return not watch.state.owner.released and watch.state.writer_alive is False


SEEMS_DEAD: list[Look] = [told_by_the_store, told_by_doctor, told_on_the_page]


def place_at(root: Path) -> Place:
    """A store with a checkpoint, given back by its writer."""
    place = Place("filesystem", str(root))
    with place.store() as store:
        store.claim()
        store.save(CheckpointManifest.new(1, epoch=1))
    return place


def claim(writer: CheckpointStore) -> None:
    writer.claim(pipeline="trades")


def claim_and_give_back(writer: CheckpointStore) -> None:
    writer.claim()
    writer.release()


@pytest.mark.parametrize("seems_dead", SEEMS_DEAD)
def test_a_writer_that_claims_or_gives_back_never_seems_dead(
    seems_dead: Look, tmp_path: Path
) -> None:
    place = place_at(tmp_path)
    for at in range(1, 200):
        seat, seen = place.seat(waits=True), list[bool]()

        def look(seen: list[bool] = seen) -> None:
            seen.append(seems_dead(place.store()))

        seat.arm(at, look)
        claim_and_give_back(place.store(seat))
        if seat.disarm():
            assert at > 10, "it hardly did anything"
            return
        assert seen == [False], at
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("seems_dead", SEEMS_DEAD)
@pytest.mark.parametrize("ends", [True, False])
def test_a_writer_that_ends_or_is_followed_while_it_is_looked_for_never_seems_dead(
    seems_dead: Look, ends: bool, tmp_path: Path
) -> None:
    place = place_at(tmp_path)
    for at in range(1, 200):
        with place.store() as writer, place.store() as next_writer:
            writer.claim()
            seat = place.seat()
            seat.arm(at, writer.release if ends else partial(claim, next_writer))
            is_dead = seems_dead(place.store(seat))
            if seat.disarm():
                assert at > 1, "nothing was read"
                return
            assert not is_dead, at
    raise AssertionError("it never came to an end")


def test_a_writer_that_has_died_is_told(tmp_path: Path) -> None:
    place = place_at(tmp_path)
    writer = place.store()
    writer.claim()
    writer._ownership._held.close()  # as the system does when its process ends
    assert all(seems_dead(place.store()) for seems_dead in SEEMS_DEAD)


def test_a_target_whose_writer_is_followed_by_another_is_in_use(tmp_path: Path) -> None:
    source, place = place_at(tmp_path / "source"), place_at(tmp_path / "target")
    for at in range(1, 20):
        with place.store() as writer, place.store() as next_writer:
            writer.claim()

            def follow(
                writer: CheckpointStore = writer, other: CheckpointStore = next_writer
            ) -> None:
                writer.release()
                other.claim()

            seat = place.seat()
            seat.arm(at, follow)
            with pytest.raises(FencedError, match="in use by another writer"):
                plan_copy(source.store(), place.store(seat))
            if seat.disarm():
                assert at > 1, "nothing was read"
                return
    raise AssertionError("it never came to an end")


def test_a_claim_that_takes_nobody_over_leaves_a_writer_alone_that_comes_first() -> None:
    for at in range(1, 200):
        place = Place("object")  # on a disk nobody comes in between
        with place.store() as pipeline, place.store(seat := place.seat()) as cleaner:
            seat.arm(at, partial(claim, pipeline))
            with suppress(FencedError):
                cleaner.claim(take_over=False)
            if seat.disarm():
                assert at > 5, "it hardly did anything"
                return
            pipeline.save(CheckpointManifest.new(1, epoch=1))
    raise AssertionError("it never came to an end")


def test_a_claim_that_takes_nobody_over_is_refused_beside_a_writer_and_renews_its_own(
    tmp_path: Path,
) -> None:
    place = place_at(tmp_path)
    with place.store() as store:
        first = store.claim(take_over=False)
        with pytest.raises(FencedError, match="belongs to another writer"):
            place.store().claim(take_over=False)
        assert store.claim(take_over=False).generation == first.generation + 1


def test_a_claim_leaves_the_locks_that_a_check_of_the_disk_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, is_held = place_at(tmp_path), FilesystemBlobs.is_held

    def claimed_first(blobs: FilesystemBlobs, name: str) -> bool | None:
        if name.startswith("doctor"):
            claim_and_give_back(place.store())
        return is_held(blobs, name)

    monkeypatch.setattr(FilesystemBlobs, "is_held", claimed_first)
    checks = {check.name: check.verdict for check in check_place(place.blobs, write=True)}
    assert checks["locks"] == "ok"
    left = {entry.key for entry in place.blobs.entries("locks/")}
    assert left == {
        "locks/writers.lock",
        f"locks/generation-{place.store().owner().generation}.lock",
    }
