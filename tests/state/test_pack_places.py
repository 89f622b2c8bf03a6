"""A block's place as a manifest names it: in a pack that was cut off, or one that cannot be."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from seamark.blobs.contract import Blobs
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.blobs.object_store import ObjectBlobs
from seamark.errors import DamageError, InvalidInputError
from seamark.state import CheckpointId, CheckpointPaths, PartitionSnapshotEntry
from seamark.state.chains import Link
from seamark.state.reader import read_link
from tests.state.support.packs import packed

ID = CheckpointId.now()
PATHS = CheckpointPaths()
DATA = b"12"


@pytest.fixture(params=["memory", "files", "objects"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    made: dict[str, Blobs] = {
        "memory": MemoryBlobs(),
        "files": FilesystemBlobs(str(tmp_path)),
        "objects": ObjectBlobs(MemoryStore(), "test"),
    }
    return made[request.param]


def read(blobs: Blobs, pack: bytes, place: tuple[int, int, int], size: int = 2) -> bytes:
    blobs.create(f"{PATHS.checkpoint_dir(ID)}packs/x.lcb", pack)
    digest = sha256(DATA).hexdigest()
    entry = PartitionSnapshotEntry(0, False, "packs/x.lcb", size, digest, pack=place)
    return read_link(blobs, PATHS, Link(ID, entry))


def test_a_block_is_read_where_it_is(blobs: Blobs) -> None:
    assert read(blobs, packed([("k", DATA)]), (8, 2, 0)) == DATA


@pytest.mark.parametrize("size", [0, 7, 8, 9])
def test_a_pack_that_was_cut_off_is_damage_and_not_an_io_error(blobs: Blobs, size: int) -> None:
    with pytest.raises(DamageError):
        read(blobs, packed([("k", DATA)])[:size], (8, 2, 0))


@pytest.mark.parametrize(
    ("place", "size"),
    [
        ((8, 2, 9), 2),
        ((2**70, 2, 0), 2),
        ((8, 2**62, 0), 2),
        ((8, 2**62, 0), 2**62),
        ((8, 2**70, 0), 2),
        ((8, 0, 0), 2),
    ],
)
def test_a_place_that_cannot_be_is_damage_and_nothing_else(
    blobs: Blobs, place: tuple[int, int, int], size: int
) -> None:
    with pytest.raises(DamageError):
        read(blobs, packed([("k", DATA)]), place, size)


@pytest.mark.parametrize("place", [(-1, 2, 0), (8, -1, 0), (8, 2, -1)])
def test_a_place_before_the_beginning_is_no_entry_at_all(place: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidInputError):
        PartitionSnapshotEntry(0, False, "packs/a.lcb", 2, "00" * 32, pack=place)
