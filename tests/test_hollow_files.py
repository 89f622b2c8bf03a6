"""Files of a store, a checkpoint directory or a table that are mostly holes are not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seamark import open_store
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.capture import checkpoint_contents
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import DamageError, RefusedError
from seamark.limits import LARGEST_DOCUMENT, MIB
from seamark.native.snapshot import take_snapshot
from seamark.sinks.delta.log import read_entry
from seamark.sinks.delta.place import TablePlace
from seamark.sinks.delta.staging import Staging
from seamark.sinks.epoch_folder import read_record
from seamark.state import StateStore
from seamark.state.catalog import Catalog
from seamark.state.layout import CheckpointId, CheckpointPaths
from seamark.testing.conformance.sink_examples import receipt
from tests.native.support.growing import GrowingDirectory
from tests.store.support.copies import save


def hollow(path: Path, size: int = LARGEST_DOCUMENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.truncate(size)
    return path


def test_a_hollow_manifest_is_damage_and_an_older_checkpoint_is_chosen(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.claim(pipeline="orders")
        save(store, 1)
        save(store, 2)
        hollow(tmp_path / "checkpoints/checkpoint_000002/manifest.json")
        with pytest.raises(DamageError, match="most are a hole"):
            store.load_by_id(2)
        assert store.recover_latest_validated().chosen_id == 1


def test_a_range_that_is_a_hole_is_not_read(tmp_path: Path) -> None:
    blobs = FilesystemBlobs(str(tmp_path))
    with open(hollow(tmp_path / "objects/a", 64 * MIB), "r+b") as file:
        file.write(b"x" * (8 * MIB))
    assert blobs.read_range("objects/a", 0, 8 * MIB) == b"x" * (8 * MIB)
    assert blobs.read_range("objects/a", 10 * MIB, 100) == bytes(100)
    with pytest.raises(DamageError, match="most are a hole"):
        blobs.read_range("objects/a", 10 * MIB, 50 * MIB)


def test_hollow_manifests_of_states_are_damage_that_keeps_nothing_in_memory(tmp_path: Path) -> None:
    ids = [CheckpointId.now() for _ in range(3)]
    paths = CheckpointPaths()
    for checkpoint_id in ids:
        hollow(tmp_path / paths.manifest(checkpoint_id))
    with pytest.raises(DamageError, match="most are a hole"):
        StateStore(str(tmp_path)).latest()
    (tmp_path / paths.manifest(ids[0])).write_bytes(b"{" * 100)
    kept = Catalog(FilesystemBlobs(str(tmp_path)), paths).load_all(ids)
    for error in kept.values():
        assert isinstance(error, DamageError)
        assert error.__traceback__ is None
        assert error.__context__ is None


def test_damage_of_manifests_is_kept_without_what_was_read(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.claim(pipeline="orders")
        save(store, 1)
        (tmp_path / "checkpoints/checkpoint_000001/manifest.json").write_bytes(b"{" * 100)
        ((_, error),) = store._manifests.read_each([1])
    assert isinstance(error, DamageError)
    assert error.__traceback__ is None
    assert error.__context__ is None


@pytest.mark.parametrize(
    ("path", "largest"),
    [
        ("metadata", LARGEST_DOCUMENT),
        ("offsets/1", LARGEST_DOCUMENT),
        ("commits/1", LARGEST_DOCUMENT),
        ("state/0/_metadata/metadata", LARGEST_DOCUMENT),
        ("state/0/0/_metadata/schema", LARGEST_DOCUMENT),
        ("state/0/_stateSchema/default/1_a", LARGEST_DOCUMENT),
        ("sources/0/1", 1 << 30),
        ("sources/0/9.compact", 1 << 30),
        ("state/0/0/1.delta", 1 << 30),
    ],
)
def test_a_file_of_a_checkpoint_directory_has_the_limit_of_its_kind(
    tmp_path: Path, path: str, largest: int
) -> None:
    GrowingDirectory(tmp_path).run_batches(2)
    hollow(tmp_path / path, largest)
    with pytest.raises(RefusedError, match="a hole"):
        LocalDirectory(tmp_path).read(path)
    hollow(tmp_path / path, largest + 1)
    with pytest.raises(RefusedError, match=f"{largest} is the most"):
        LocalDirectory(tmp_path).read(path)


@pytest.mark.parametrize("size", [LARGEST_DOCUMENT, LARGEST_DOCUMENT + 1])
def test_a_hollow_record_beside_a_delta_table_is_damage(tmp_path: Path, size: int) -> None:
    place = TablePlace(str(tmp_path))
    staging = Staging(place, "p", "s", merges=False)
    staging.begin(receipt(1, "a1"))
    (record,) = tmp_path.rglob("epoch.json")
    hollow(record, size)
    with pytest.raises(DamageError, match=r"epoch\.json"):
        staging.record("a1")
    hollow(tmp_path / "_delta_log" / f"{1:020}.json", size)
    with pytest.raises(DamageError, match="most are a hole"):
        read_entry(place.log, 1)


def test_a_hollow_record_of_a_file_sink_is_refused(tmp_path: Path) -> None:
    hollow(tmp_path / "_seamark.json")
    with pytest.raises(RefusedError, match="a hole"):
        read_record(str(tmp_path))


def test_more_than_a_pack_holds_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "directory"
    GrowingDirectory(directory).run_batches(2)
    entry = json.dumps({"path": f"file:///{'x' * 20_000}", "timestamp": 1, "batchId": 1})
    size = (directory / "sources/0/1").write_text(f"v1\n{entry}")
    monkeypatch.setattr(checkpoint_contents, "BATCH_LIMIT", 10_000)
    with (
        open_store(tmp_path / "store") as store,
        pytest.raises(RefusedError, match="the most for a pack") as refused,
    ):
        take_snapshot(LocalDirectory(directory), store)
    assert f"sources/0/1 alone has {size}" in str(refused.value)
