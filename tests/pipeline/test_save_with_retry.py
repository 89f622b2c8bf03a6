"""I8: saving a checkpoint in a store that does not answer never undoes what may have happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from seamark.blobs.contract import Blob, KeyExists, Tag
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import (
    DamageError,
    FencedError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from seamark.manifest import CheckpointManifest, SinkCommitStatus
from seamark.pipeline.epoch.save_with_retry import save_with_retry
from seamark.store import CheckpointStore, open_store
from seamark.store.layout import ObjectLayout

UNAVAILABLE = StoreUnavailableError("503 Slow Down")
UNKNOWN = OutcomeUnknownError("time-out")
FENCED = FencedError("this store belongs to another writer")


class Trouble:
    """Makes the calls of a store fail in turn, before or after they take effect."""

    def __init__(self, store: CheckpointStore, method: str, *fates: tuple[str, Exception]) -> None:
        self._real = getattr(store, method)
        self._fates: Iterator[tuple[str, Exception]] = iter(fates)
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


@pytest.mark.parametrize("first", [[], [("before", UNKNOWN)], [("after", UNKNOWN)]])
def test_an_exception_that_is_not_ours_never_says_that_nothing_was_decided(
    store: CheckpointStore, first: list[tuple[str, Exception]]
) -> None:
    if first and first[0][0] == "after":
        Trouble(store, "load_by_id", ("before", RuntimeError("out of threads")))
    Trouble(store, "save_with_state", *first, ("after", RuntimeError("out of threads")))
    with pytest.raises(OutcomeUnknownError, match="not known") as told:
        save_with_retry(store, manifest(), [], 10)
    assert "out of threads" in str(told.value)


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


class Bucket(MemoryBlobs):
    """An object store whose answers to a manifest's write can be lost, and what follows fail."""

    max_put = 32 << 20

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self.then = then
        self.armed = False
        self.reads = list[Any]()

    def exclusive(self) -> AbstractContextManager[None]:
        return nullcontext()

    def create(self, key: str, data: bytes) -> Tag:
        tag = super().create(key, data)
        self._lose_the_answer(key)
        return tag

    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        new = super().replace(key, data, tag, durable=durable)
        self._lose_the_answer(key)
        return new

    def read(self, key: str, limit: int) -> Blob | None:
        fate = self.reads.pop(0) if self.reads and key.startswith("manifests/manifest") else None
        if isinstance(fate, Exception):
            raise fate
        blob = super().read(key, limit)
        if fate == "garbled" and blob is not None:
            return Blob(blob.data[:-9] + b"x" + blob.data[-8:], blob.tag)
        return blob

    def _lose_the_answer(self, key: str) -> None:
        if self.armed and key.startswith("manifests/manifest"):
            self.armed = False
            self.then()


def lost_save(bucket: Bucket) -> CheckpointManifest:
    """Save a checkpoint that names an object, with all that happens on the way."""
    store = CheckpointStore(bucket, ObjectLayout())
    store.claim(pipeline="p")
    store.save(CheckpointManifest.new(1, epoch=1))
    named = store.shared_objects.write([b"state"])
    bucket.armed = True
    return save_with_retry(
        store,
        CheckpointManifest.new(2, epoch=2, shared_objects=[list(named)], attempt="g0001-a"),
        [],
        1.0,
    )


def test_I3_a_save_that_a_successor_has_gone_on_from_is_a_save() -> None:
    def taken_over() -> None:
        successor = CheckpointStore(bucket, ObjectLayout())
        successor.claim(pipeline="p")
        chosen = successor.load_by_id(2)
        assert chosen is not None
        successor.update_manifest(
            chosen.replace(sink_commit_statuses={"s": SinkCommitStatus.committed()})
        )
        bucket.reads = [UNAVAILABLE]
        raise UNKNOWN

    bucket = Bucket(taken_over)
    assert lost_save(bucket).checkpoint_id == 2


@pytest.mark.parametrize("fates", [[UNAVAILABLE] * 1000, ["garbled"] * 1000], ids=["away", "torn"])
def test_I3_a_key_that_is_taken_and_cannot_be_read_may_be_ours(fates: list[Any]) -> None:
    def repeated_by_the_client() -> None:
        bucket.reads = fates
        raise KeyExists("manifests/manifest-2")

    bucket = Bucket(repeated_by_the_client)
    with pytest.raises(OutcomeUnknownError):
        lost_save(bucket)


class Unproven(Bucket):
    """Reading it back proves nothing."""

    read_back_proves = False


def test_I3_an_answer_that_cannot_be_read_back_is_not_a_no() -> None:
    def lost() -> None:
        bucket.reads = ["garbled"] * 1000
        raise UNKNOWN

    bucket = Unproven(lost)
    with pytest.raises(OutcomeUnknownError):
        lost_save(bucket)
