"""An old ``owner.json`` that a backup brought back does not let a fenced writer go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seamark import CheckpointManifest, FencedError
from seamark.errors import DamageError, RefusedError
from seamark.store import CheckpointStore
from seamark.store.inspection import planned_rebuild
from seamark.store.layout import OWNER_KEY
from tests.store.support.interleaving import Kind, Place

KINDS: list[Kind] = ["object", "locked", "filesystem"]


class PutBack:
    """A first writer, a second one that took over, and the first one's owner.json put back."""

    def __init__(
        self, kind: Kind, root: Path, meanwhile: Callable[[CheckpointStore], None]
    ) -> None:
        place = Place(kind, str(root))
        seat = place.seat()
        self.first, self.second = place.store(seat), place.store(place.seat())
        self.first.claim()
        self.save(3)
        old = seat.base.read(OWNER_KEY, 1 << 20)
        assert old is not None
        self.second.claim()
        meanwhile(self.second)
        now = seat.base.read(OWNER_KEY, 1 << 20)
        assert now is not None
        seat.base.replace(OWNER_KEY, old.data, now.tag)
        self.first.check_claim()  # owner.json alone says that nothing happened

    def save(self, count: int) -> None:
        for _ in range(count):
            save(self.first, self.first.next_id())


def save(store: CheckpointStore, checkpoint_id: int) -> CheckpointManifest:
    return store.save(CheckpointManifest.new(checkpoint_id, epoch=checkpoint_id))


def save_and_check(store: CheckpointStore, checkpoint_id: int) -> None:
    """As a pipeline does before its sinks commit."""
    save(store, checkpoint_id)
    store.check_claim()


def nothing(_: CheckpointStore) -> None:
    pass


def epochs(store: CheckpointStore) -> None:
    for checkpoint_id in range(4, 9):
        save(store, checkpoint_id)


def epochs_and_a_prune(store: CheckpointStore) -> None:
    epochs(store)
    store.prune(2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("meanwhile", [nothing, epochs, epochs_and_a_prune])
def test_the_writer_that_asks_for_the_next_id_is_told(
    kind: Kind, meanwhile: Callable[[CheckpointStore], None], tmp_path: Path
) -> None:
    put_back = PutBack(kind, tmp_path, meanwhile)
    with pytest.raises(DamageError, match=r"owner\.json is gone or too old"):
        put_back.save(1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("meanwhile", [nothing, epochs, epochs_and_a_prune])
def test_the_writer_that_counts_itself_is_told_before_it_commits_to_a_sink(
    kind: Kind, meanwhile: Callable[[CheckpointStore], None], tmp_path: Path
) -> None:
    put_back = PutBack(kind, tmp_path, meanwhile)
    with pytest.raises((FencedError, DamageError)):
        save_and_check(put_back.first, 4)  # where its successor has pruned there is room for it
    with pytest.raises((FencedError, DamageError)):
        save(put_back.first, 5)
    assert put_back.second.rebuild_owner().generation == 3
    newest = put_back.second.load_latest()
    assert newest is None or newest.checkpoint_id == (3 if meanwhile is nothing else 8)


@pytest.mark.parametrize("kind", KINDS)
def test_an_owner_is_not_called_too_old_because_a_writer_came_in_between(
    kind: Kind, tmp_path: Path
) -> None:
    for at in range(1, 20):
        place = Place(kind, str(tmp_path / str(at)))
        with place.store() as store:
            store.claim()
            save(store, 1)

        def visit(place: Place = place) -> None:
            with place.store(place.seat()) as other:
                other.claim()
                save(other, 2)

        seat = place.seat()
        reader = place.store(seat)
        seat.arm(at, visit)
        with pytest.raises(RefusedError, match=r"owner\.json is whole"):
            planned_rebuild(reader)
        if seat.disarm():
            assert at > 3
            return
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_owner_is_damage_also_to_a_handle_that_has_read_none(
    kind: Kind, tmp_path: Path
) -> None:
    place = Place(kind, str(tmp_path))
    with place.store(place.seat()) as store:
        for i in range(1, 4):
            store.save(CheckpointManifest.new(i, epoch=i))
        store.pin("release", 1)
    place.overwrite(OWNER_KEY, b"")
    acts: list[Callable[[CheckpointStore], object]] = [
        lambda s: s.next_id(),
        lambda s: s.save(CheckpointManifest.new(4, epoch=4)),
        lambda s: s.prune(1),
        lambda s: s.claim(),
    ]
    for act in acts:
        with pytest.raises(DamageError, match=r"owner\.json is damaged"):
            act(place.store(place.seat()))
