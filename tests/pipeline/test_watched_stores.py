"""A store that is claimed for each checkpoint, as by 'seamark spark watch', is read meanwhile.

Reading state takes longer than such a store goes without a claim, which by itself changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from seamark._common.progress_bars import no_bar
from seamark.blobs.contract import Entry, Stream
from seamark.cli.list import _listed
from seamark.pipeline.recovery.rollback import plan_rollback, roll_back
from seamark.reports.verification import check_named
from seamark.store import CheckpointStore
from seamark.store.consistent_read import until_settled
from tests.pipeline.support.forks import filled
from tests.store.support.interleaving import ObjectSeat, Place


class Watched(ObjectSeat):
    """Somebody else comes before each look at state."""

    def __init__(self, place: Place, meanwhile: Callable[[CheckpointStore], object]) -> None:
        super().__init__(place.blobs)
        self.other, self.meanwhile = place.store(), meanwhile
        self.visits = 0

    def _visited(self) -> None:
        self.visits += 1
        self.meanwhile(self.other)

    def stream(self, key: str, piece: int) -> Stream | None:
        self._visited()
        return super().stream(key, piece)

    def stat(self, key: str) -> Entry | None:
        self._visited()
        return super().stat(key)


def claim_and_release(store: CheckpointStore) -> None:
    store.claim(pipeline="trades")
    store.release()


def listed(store: CheckpointStore) -> object:
    _, rows, _ = until_settled(partial(_listed, store, verify=True), store.url)
    return [(i, each.status) for i, each in rows.items()]


def verified(store: CheckpointStore) -> object:
    return [each.status for each in check_named(store, None, 1.0, 0, no_bar)]


def prune_planned(store: CheckpointStore) -> object:
    return [(each.checkpoint_id, each.keep) for each in store.plan_prune(2)]


def rollback_planned(store: CheckpointStore) -> object:
    return plan_rollback(store, 3).given_up


READS = [listed, verified, prune_planned, rollback_planned]


def store_of_five() -> Place:
    place = Place("object")
    filled(place.store(), 5).store.release()
    return place


@pytest.mark.parametrize("read", READS)
def test_a_claim_alone_is_no_reason_to_read_all_state_again(
    read: Callable[[CheckpointStore], object],
) -> None:
    place = store_of_five()
    alone = Watched(place, lambda _: None)
    found = read(place.store(alone))
    seat = Watched(place, claim_and_release)
    assert read(place.store(seat)) == found
    assert 2 < seat.visits == alone.visits


@pytest.mark.parametrize("read", [listed, prune_planned])
def test_a_rollback_is_one(read: Callable[[CheckpointStore], object]) -> None:
    place = store_of_five()
    before = read(place.store())

    def roll_back_once(store: CheckpointStore) -> None:
        if seat.visits == 1:
            roll_back(store, 4, "trades")

    seat = Watched(place, roll_back_once)
    found = read(place.store(seat))
    assert found == read(place.store()) != before
