"""What a store does when its backend fails or lies: nothing is taken for damage that is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from seamark.blobs.contract import Blob, Entry, Stream, Tag
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import RefusedError, StoreUnavailableError
from seamark.store import CheckpointStore
from seamark.store.layout import ObjectLayout
from tests.store.support.examples import example, flip


class Failing(MemoryBlobs):
    """Answers with an I/O error to whatever concerns one key."""

    broken = ""

    def _check(self, key: str) -> None:
        if self.broken and key.startswith(self.broken):
            raise StoreUnavailableError("the disk does not answer", where=key)

    def read(self, key: str, limit: int) -> Blob | None:
        self._check(key)
        return super().read(key, limit)

    def stat(self, key: str) -> Entry | None:
        self._check(key)
        return super().stat(key)

    def stream(self, key: str, piece: int) -> Stream | None:
        self._check(key)
        return super().stream(key, piece)

    def entries(self, prefix: str) -> list[Entry]:
        self._check(prefix)
        return super().entries(prefix)


class Unconditional(MemoryBlobs):
    """Takes conditions and ignores them, as some object stores do."""

    needs_probe = True

    def create(self, key: str, data: bytes) -> Tag:
        return self._set(key, data)

    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        return self._set(key, data)


class UnconditionalReplace(MemoryBlobs):
    """Honours the one condition and ignores the other."""

    needs_probe = True

    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        return self._set(key, data)


def store_with(blobs: MemoryBlobs, *ids: int) -> CheckpointStore:
    store = CheckpointStore(blobs, ObjectLayout())
    for number in ids:
        store.save_with_state(example(number), [b"state"])
    return store


@pytest.mark.parametrize(
    "broken",
    [
        "manifests/manifest-000002.json",
        "checkpoints/state-000002.bin",
        "manifests/latest.json",
        "owner.json",
        "manifests/",
    ],
)
def test_an_io_error_is_not_damage(broken: str) -> None:
    blobs = Failing()
    store_with(blobs, 1, 2)
    blobs.broken = broken
    with pytest.raises(StoreUnavailableError, match="does not answer"):
        CheckpointStore(blobs, ObjectLayout()).recover_latest_validated()
    blobs.broken = ""
    assert CheckpointStore(blobs, ObjectLayout()).recover_latest_validated().chosen_id == 2


def test_an_io_error_below_a_damaged_one_is_not_damage_either() -> None:
    blobs = Failing()
    store_with(blobs, 1, 2, 3)
    flip(blobs, "manifests/manifest-000003.json", 40)
    blobs.broken = "manifests/manifest-000002.json"
    with pytest.raises(StoreUnavailableError):
        CheckpointStore(blobs, ObjectLayout()).recover_latest_validated()


def test_an_io_error_does_not_make_prune_remove_more() -> None:
    blobs = Failing()
    store = store_with(blobs, 1, 2, 3)
    blobs.broken = "manifests/manifest-000003.json"
    with pytest.raises(StoreUnavailableError):
        CheckpointStore(blobs, ObjectLayout()).prune(1)
    blobs.broken = ""
    assert store.list_ids() == [1, 2, 3]


def test_an_io_error_does_not_make_clean_up_remove_state() -> None:
    blobs = Failing()
    store_with(blobs, 1)
    blobs.broken = "manifests/manifest-000001.json"
    with pytest.raises(StoreUnavailableError):
        CheckpointStore(blobs, ObjectLayout()).cleanup_orphans(min_age=0)
    blobs.broken = ""
    assert CheckpointStore(blobs, ObjectLayout()).load_state_data(1) == b"state"


def test_a_checkpoint_is_saved_even_when_its_pointer_is_not() -> None:
    blobs = Failing()
    store_with(blobs, 1)
    blobs.broken = "manifests/latest.json"
    store_with(blobs, 2)
    blobs.broken = ""
    assert CheckpointStore(blobs, ObjectLayout()).recover_latest_validated().chosen_id == 2


@pytest.mark.parametrize("backend", [Unconditional, UnconditionalReplace])
@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.save(example(1)),
        lambda store: store.save_with_state(example(1), [b"state"]),
        lambda store: store.save_state_data(1, [b"state"]),
        lambda store: store.claim(),
    ],
)
def test_silent_overwriting_is_found_out_and_refused(
    backend: type[MemoryBlobs], write: Callable[[CheckpointStore], object]
) -> None:
    blobs = backend()
    store = CheckpointStore(blobs, ObjectLayout())
    with pytest.raises(RefusedError, match="ignores the condition"):
        write(store)
    assert blobs.entries("") == [], "nothing was written, and the probe was cleaned up"


def test_reading_does_not_probe() -> None:
    blobs = Unconditional()
    store = CheckpointStore(blobs, ObjectLayout())
    assert store.load_latest() is None
    assert store.recover_latest_validated().fresh_start
    assert blobs.entries("") == []
