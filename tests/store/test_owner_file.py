"""``owner.json`` is read again whenever it may have changed, and a large one only then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamark import open_store
from seamark.blobs.contract import Blob, Blobs, Entry
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.store.inspection import scan
from seamark.store.layout import OWNER_KEY, FilesystemLayout
from seamark.store.owner import Owner, encode_owner
from seamark.store.owner_file import OwnerFile


@pytest.fixture(params=["memory", "disk"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Blobs]:
    if request.param == "memory":
        yield MemoryBlobs()
    else:
        with open_store(tmp_path / "store") as store:
            yield store.backend


def owner_of(generation: int, size: int) -> bytes:
    return encode_owner(Owner(generation=generation, writer="w" * size))


def write(blobs: Blobs, generation: int, size: int) -> None:
    there = blobs.read(OWNER_KEY, 1 << 24)
    data = owner_of(generation, size)
    if there is None:
        blobs.create(OWNER_KEY, data)
    else:
        blobs.replace(OWNER_KEY, data, there.tag)


@pytest.mark.parametrize("size", [0, 200_000])
def test_every_change_is_seen_also_one_of_the_same_length(blobs: Blobs, size: int) -> None:
    file = OwnerFile(blobs)
    assert file.read() is None
    for generation in range(1, 40):
        write(blobs, generation, size)
        for _ in range(generation % 4):
            found = file.read()
            assert found is not None
            assert found[0].generation == generation
            there = blobs.read(OWNER_KEY, 1 << 24)
            assert there is not None
            assert found[1] == there.tag


def test_a_change_between_the_two_requests_of_a_reading_is_seen(blobs: Blobs) -> None:
    file = OwnerFile(blobs)
    write(blobs, 1, 200_000)
    file.read()
    real = blobs.stat

    def overtaken(key: str) -> Entry | None:
        entry = real(key)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(blobs, "stat", real)
            write(blobs, 2, 200_000)
        return entry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blobs, "stat", overtaken)
        file.read()
    for _ in range(3):
        found = file.read()
        assert found is not None
        assert found[0].generation == 2


def test_one_that_is_gone_is_gone(blobs: Blobs) -> None:
    file = OwnerFile(blobs)
    write(blobs, 1, 200_000)
    for _ in range(3):
        assert file.read() is not None
    blobs.delete([OWNER_KEY])
    assert file.read() is None


def test_a_large_owner_is_read_no_more_often_the_more_damaged_checkpoints_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: Counter[str] = Counter()
    real = FilesystemBlobs.read

    def counted(blobs: FilesystemBlobs, key: str, limit: int) -> Blob | None:
        reads[key] += 1
        return real(blobs, key, limit)

    monkeypatch.setattr(FilesystemBlobs, "read", counted)
    counts = []
    for damaged in (2, 40):
        with open_store(tmp_path / str(damaged)) as store:
            write(store.backend, 1, 200_000)
            for number in range(1, damaged + 1):
                store.backend.create(FilesystemLayout().manifest(number), b"x")
            reads.clear()
            assert len([*scan(store)]) == damaged
            counts.append(reads[OWNER_KEY])
    assert counts[0] == counts[1]
