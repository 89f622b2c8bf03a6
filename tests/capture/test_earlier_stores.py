"""Stores that were written before files were stored by reference: read, copied and continued.

The stores in ``tests/fixtures/stores`` hold three checkpoints each, of a pipeline or of a directory
that Spark keeps by itself, with state in the manifest, in its sidecar, or partitioned.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from seamark import open_store
from seamark.capture.checkpoint_contents import Chain, needed_files
from seamark.capture.restore import restore
from seamark.checkpoint_dir.places.directory import open_directory
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.native.restore import restore_directory
from seamark.native.snapshot import pipeline_name, take_snapshot
from seamark.store.copy.run import copy_checkpoints
from tests.capture.test_capture_and_restore import Stored, require_whole
from tests.checkpoint_dir.support.directories import QUERY, make_copy
from tests.store.support.conformance.names import resealed

STORES = Path(__file__).parents[1] / "fixtures" / "stores"
NAMES = sorted(path.name for path in STORES.iterdir())


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORES / request.param, tmp_path / "store"))


def restored(root: Path, target: Path) -> LocalCopy:
    with open_store(root) as store:
        newest = store.load_latest()
        assert newest is not None
        copy = LocalCopy(target)
        if newest.native is not None:
            restore_directory(store, newest.checkpoint_id, open_directory(str(target)))
            return copy
        chain = Chain.load(store, newest)
        assert chain.index is None
        restore(copy, chain.read(store), chain.batch, needed_files(store, chain.manifests))
        return copy


@pytest.mark.parametrize("root", NAMES, indirect=True)
def test_an_earlier_store_is_valid_and_gives_back_its_directory(root: Path, tmp_path: Path) -> None:
    with open_store(root) as store:
        assert all(store.validate_checkpoint(i).valid for i in store.list_ids())
        newest = store.load_latest()
        assert newest is not None
    require_whole(restored(root, tmp_path / "back"), newest.batch)


@pytest.mark.parametrize("root", NAMES, indirect=True)
def test_an_earlier_store_can_be_copied(root: Path, tmp_path: Path) -> None:
    with open_store(root) as store, open_store(f"memory://{uuid.uuid4().hex}") as target:
        results = copy_checkpoints(store, target)
        assert {result.outcome for result in results} == {"copied"}
        assert target.recover_latest_validated().chosen_id == 3


@pytest.mark.parametrize("root", NAMES, indirect=True)
def test_I7_every_flipped_bit_of_an_earlier_store_is_found(root: Path) -> None:
    files = [*root.rglob("manifest.json"), *root.rglob("state.bin"), *root.rglob("*.lcb")]
    assert len(files) >= 3
    for file in files:
        whole = file.read_bytes()
        for at in {0, len(whole) // 2, len(whole) - 2}:
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with open_store(root) as store:
                assert not all(store.validate_checkpoint(i).valid for i in store.list_ids()), file
        file.write_bytes(whole)


@pytest.mark.parametrize("root", [n for n in NAMES if n.startswith("snapshots")], indirect=True)
def test_a_snapshot_into_an_earlier_store_begins_an_index(root: Path, tmp_path: Path) -> None:
    with open_store(root) as store:  # it was made of a directory whose id was no UUID
        resealed(store.backend, "owner.json", pipeline=pipeline_name(QUERY))
    for batches in (5, 6):
        make_copy(tmp_path / "ck", batches)
        with open_store(root) as store:
            taken = take_snapshot(open_directory(str(tmp_path / "ck")), store)
            assert taken.is_new
            assert taken.is_full == (batches == 5)
            assert store.validate_checkpoint(taken.checkpoint_id).valid
    require_whole(restored(root, tmp_path / "back"), 5)


@pytest.mark.parametrize("root", [n for n in NAMES if n.startswith("pipeline")], indirect=True)
def test_a_pipeline_goes_on_from_an_earlier_store(root: Path, tmp_path: Path) -> None:
    copy = restored(root, tmp_path / "copy")
    stored = Stored(Path(copy.root))
    assert stored.take(3).is_full
    assert not stored.take(4, full=False).is_full
    require_whole(stored.restored(tmp_path / "back"), 4)
