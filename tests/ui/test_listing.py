"""The list of checkpoints as a document is that of one moment, whatever a writer does meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from seamark.errors import DamageError
from seamark.store import CheckpointStore
from seamark.ui import views
from seamark.ui.places import Place
from tests.ui.support.serving import CountedBlobs
from tests.ui.test_store_watch import add, after_the_first_call, filled


def looked_at(blobs: CountedBlobs) -> Place:
    place = blobs.place()
    asyncio.run(place.look())
    return place


def listed(place: Place, before: int | None = None) -> dict[str, Any]:
    return asyncio.run(views.listing(place, before))


def ids(document: dict[str, Any]) -> list[int]:
    return [row["id"] for row in document["checkpoints"]]


def go_on(store: CheckpointStore) -> None:
    """Save more, and prune all that was there."""
    for number in range(6, 12):
        add(store, number)
    store.prune(2)


def test_a_list_is_never_empty_when_all_of_the_last_look_is_pruned() -> None:
    blobs, store = filled(5)
    place = looked_at(blobs)
    go_on(store)
    document = listed(place)
    assert ids(document) == [11, 10]
    assert (document["newest_valid"], document["total"]) == (11, 2)
    assert asyncio.run(place.look()), "viewers are told, although the list has looked before"
    assert not asyncio.run(place.look())


def test_a_list_that_is_overtaken_by_a_prune_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    blobs, store = filled(5)
    place = looked_at(blobs)
    after_the_first_call(monkeypatch, views, "bisect_left", lambda: go_on(store))
    assert ids(listed(place, before=12)) == [11, 10]


def test_a_list_without_what_vanished_before_the_owner_says_so() -> None:
    blobs, store = filled(5)
    place = looked_at(blobs)
    blobs.delete([store._parts.layout.manifest(2)])
    document = listed(place)
    assert ids(document) == [5, 4, 3, 1]
    assert document["total"] == 4


def test_a_list_beside_a_rollback_has_the_pins_and_statuses_of_one_history() -> None:
    blobs, store = filled(5)
    store.pin("before", 3)
    place = looked_at(blobs)
    store.supersede(4, 5)
    store.pin("after", 3)
    document = listed(place)
    assert {row["id"]: row["status"] for row in document["checkpoints"]} == {
        5: "superseded",
        4: "superseded",
        3: "valid",
        2: "valid",
        1: "valid",
    }
    assert document["newest_valid"] == 3
    assert document["checkpoints"][2]["pins"] == ["after", "before"]


def test_a_list_of_a_store_whose_owner_is_damaged_is_an_error_and_not_empty() -> None:
    blobs, _ = filled(3)
    whole = blobs._values["owner.json"]
    blobs._values["owner.json"] = (whole[0].replace(b"generation", b"Generation"), 99_999, whole[2])
    with pytest.raises(DamageError):
        listed(looked_at(blobs))
