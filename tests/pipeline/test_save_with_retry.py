"""I8: saving a checkpoint in a store that does not answer never undoes what may have happened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from seamark.errors import (
    DamageError,
    FencedError,
    OutcomeUnknownError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.manifest import CheckpointManifest
from seamark.pipeline.epoch.save_with_retry import save_with_retry
from seamark.store import CheckpointStore, open_store

UNAVAILABLE = StoreUnavailableError("503 Slow Down")
UNKNOWN = OutcomeUnknownError("time-out")
FENCED = FencedError("this store belongs to another writer")


class Trouble:
    """Makes the calls of a store fail in turn, before or after they take effect."""

    def __init__(
        self, store: CheckpointStore, method: str, *fates: tuple[str, SeamarkError]
    ) -> None:
        self._real = getattr(store, method)
        self._fates: Iterator[tuple[str, SeamarkError]] = iter(fates)
        self.calls = 0
        setattr(store, method, self)

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        when, error = next(self._fates, ("", None))
        if error is None:
            return self._real(*args)
        if when == "after":
            self._real(*args)
        raise error


@pytest.fixture
def store() -> CheckpointStore:
    opened = open_store("memory://")
    opened.claim(pipeline="p")
    return opened


def manifest() -> CheckpointManifest:
    return CheckpointManifest.new(1, epoch=1, extra={"attempt": "g0001-a"})


def test_a_store_that_is_away_for_a_while_only_delays_the_epoch(store: CheckpointStore) -> None:
    trouble = Trouble(store, "save_with_state", ("before", UNAVAILABLE), ("before", UNAVAILABLE))
    assert save_with_retry(store, manifest(), [], 10).checkpoint_id == 1
    assert trouble.calls == 3


def test_a_store_that_stays_away_is_an_error_that_says_that_nothing_was_decided(
    store: CheckpointStore,
) -> None:
    Trouble(store, "save_with_state", *[("before", UNAVAILABLE)] * 100)
    with pytest.raises(StoreUnavailableError) as told:
        save_with_retry(store, manifest(), [], 0.2)
    assert not isinstance(told.value, OutcomeUnknownError)
    assert store.list_ids() == []


def test_a_save_that_worked_and_said_time_out_is_found_by_reading_back(
    store: CheckpointStore,
) -> None:
    trouble = Trouble(store, "save_with_state", ("after", UNKNOWN))
    assert save_with_retry(store, manifest(), [], 10).extra["attempt"] == "g0001-a"
    assert trouble.calls == 1


def test_a_save_that_did_not_work_and_said_time_out_is_repeated(store: CheckpointStore) -> None:
    trouble = Trouble(store, "save_with_state", ("before", UNKNOWN))
    save_with_retry(store, manifest(), [], 10)
    assert trouble.calls == 2
    assert store.list_ids() == [1]


def test_when_it_stays_unknown_the_error_says_so(store: CheckpointStore) -> None:
    Trouble(store, "save_with_state", ("after", UNKNOWN))
    Trouble(store, "load_by_id", *[("before", UNAVAILABLE)] * 100)
    with pytest.raises(OutcomeUnknownError, match="Nothing was undone"):
        save_with_retry(store, manifest(), [], 0.2)


def test_fenced_after_an_unknown_try_is_still_unknown(store: CheckpointStore) -> None:
    """The first try may have arrived before the other writer did, and been rolled forward."""
    Trouble(store, "save_with_state", ("before", UNKNOWN), ("before", FENCED))
    with pytest.raises(OutcomeUnknownError, match="not known"):
        save_with_retry(store, manifest(), [], 10)


def test_fenced_at_once_is_fenced(store: CheckpointStore) -> None:
    Trouble(store, "save_with_state", ("before", FENCED))
    with pytest.raises(FencedError):
        save_with_retry(store, manifest(), [], 10)


def test_state_is_saved_with_the_manifest_also_on_a_second_try(store: CheckpointStore) -> None:
    Trouble(store, "save_with_state", ("before", UNAVAILABLE))
    chunks = [b"state of an operator"]
    save_with_retry(store, manifest(), chunks, 10)
    assert store.load_state_data(1) == chunks[0]


def test_a_store_that_only_ever_says_time_out_is_given_up_in_time(store: CheckpointStore) -> None:
    trouble = Trouble(store, "save_with_state", *[("before", UNKNOWN)] * 10_000)
    with pytest.raises(OutcomeUnknownError):
        save_with_retry(store, manifest(), [], 0.3)
    assert trouble.calls < 20


def test_damage_found_after_an_unknown_try_does_not_say_that_nothing_was_decided(
    store: CheckpointStore,
) -> None:
    damage = DamageError("owner.json cannot be read")
    Trouble(store, "save_with_state", ("before", UNKNOWN), ("before", damage))
    with pytest.raises(OutcomeUnknownError):
        save_with_retry(store, manifest(), [], 10)
