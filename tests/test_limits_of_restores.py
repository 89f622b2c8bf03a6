"""What a restore, a list or a question to a service may cost has a limit, and it is kept."""

from __future__ import annotations

import io
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seamark import limits, open_store
from seamark.blobs import unfinished_uploads
from seamark.blobs.contract import Buffer
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.object_store import ObjectBlobs
from seamark.blobs.unfinished_uploads import Bucket
from seamark.capture.file_index import FileIndex, StoredFile
from seamark.capture.movers import store_alone, store_packed
from seamark.capture.restore import restore_index
from seamark.capture.unpack_budget import UnpackBudget
from seamark.checkpoint_dir.formats.rocksdb_zip import zip_problems
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.checkpoint_dir.state_files import needed_ssts
from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest, OperatorCheckpoint
from seamark.manifest.facts import SharedObject
from seamark.reports import checkpoint_document
from seamark.state.pack import PackBuilder, PackInPlace, decode_pack, read_index
from seamark.store.shared_objects import SharedObjects


class _Watched:
    """Notes how many objects of each kind are in memory at the same time."""

    def __init__(self, shared: SharedObjects) -> None:
        self._shared = shared
        self._lock = threading.Lock()
        self._now = 0
        self.most_packs = 0

    def read(self, shared: SharedObject) -> Iterator[Buffer]:
        return self._shared.read(shared)

    def read_pack(self, shared: SharedObject) -> bytes:
        with self._lock:
            self._now += 1
            self.most_packs = max(self.most_packs, self._now)
        time.sleep(0.02)
        data = self._shared.read_pack(shared)
        with self._lock:
            self._now -= 1
        return data


@pytest.mark.parametrize("size", [2000, 20])
def test_large_packs_are_not_held_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(limits, "ONE_AT_A_TIME", 1000)
    store = open_store("memory://")
    files: dict[str, StoredFile] = {}
    for number in range(1, 9):
        data = bytes([number]) * size
        files |= store_packed(store.shared_objects, {f"state/0/0/{number}.delta": data})
        files[f"state/0/1/{number}.delta"] = store_alone(store.shared_objects, [data])
    packs = {file.shared for file in files.values() if file.is_packed and file.shared}
    if size > 1000:  # compressed, they are smaller
        monkeypatch.setattr(limits, "ONE_AT_A_TIME", min(pack.size for pack in packs) - 1)
    watched = _Watched(store.shared_objects)
    restore_index(LocalCopy(tmp_path / "copy"), FileIndex(files), {}, watched)
    assert len(packs) == 8
    assert watched.most_packs == 1 if size > 1000 else watched.most_packs > 1


def _zip(ssts: int) -> bytes:
    listed = ",".join(f'{{"dfsSstFileName":"{n}.sst","sizeBytes":1}}' for n in range(ssts))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("metadata", f'v1\n{{"sstFiles":[{listed}]}}')
    return out.getvalue()


def test_a_snapshot_whose_list_of_files_is_very_long_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(needed_ssts(_zip(10))) == 10
    monkeypatch.setattr(limits, "LARGEST_ZIP_METADATA", 50)
    with pytest.raises(DamageError, match="larger than any can be"):
        needed_ssts(_zip(11))  # what was read before is remembered


def test_a_snapshot_that_unpacks_to_very_much_is_not_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zipped = _zip(10)
    assert zip_problems(zipped) == []
    monkeypatch.setattr(limits, "LARGEST_ZIP_PLAIN", 50)
    assert "more than any snapshot does" in zip_problems(zipped)[0]


def test_the_packs_of_a_chain_unpack_to_so_much_together_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builder = PackBuilder()
    builder.add("state", bytes(1000))
    pack = b"".join(builder.finish())
    monkeypatch.setattr(limits, "CHAIN_FLOOR", 5000)
    monkeypatch.setattr(limits, "PACK_RATIO", 2)
    budget = UnpackBudget()
    for _ in range(5):
        budget.spend(read_index(pack, len(pack)), len(pack))
    with pytest.raises(DamageError, match="its packs claim 6000 bytes"):
        budget.spend(read_index(pack, len(pack)), len(pack))


def test_a_pack_whose_index_is_very_long_is_not_read_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builder = PackBuilder()
    for number in range(10):
        builder.add(f"state {number}", b"x")
    pack = b"".join(builder.finish())

    def read(offset: int, length: int) -> bytes:
        return pack[offset : offset + length]

    found = PackInPlace.find(read, len(pack))
    assert found is not None
    assert len(found.entries) == len(decode_pack(pack)) == 10
    monkeypatch.setattr(limits, "LARGEST_PACK_INDEX", 50)
    with pytest.raises(DamageError, match="pack has an index of"):
        PackInPlace.find(read, len(pack))


def test_what_lies_very_deep_in_the_folder_of_a_store_is_not_looked_at(tmp_path: Path) -> None:
    deepest = tmp_path.joinpath(*["d"] * limits.MOST_LEVELS)
    (deepest / "deeper").mkdir(parents=True)
    (deepest / "seen").write_bytes(b"x")
    (deepest / "deeper" / "unseen").write_bytes(b"x")
    entries = FilesystemBlobs(str(tmp_path)).entries("d/")
    assert [entry.key.rpartition("/")[2] for entry in entries] == ["seen"]


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_large_range_of_a_sidecar_is_not_read_only_to_list_its_files(
    monkeypatch: pytest.MonkeyPatch, is_shown: bool
) -> None:
    builder = PackBuilder()
    for number in range(100):
        builder.add(f"state/0/0/{number}.delta", b"x")
    pack = b"".join(builder.finish())
    monkeypatch.setattr(checkpoint_document, "_TAIL", 100)  # shorter than the index
    monkeypatch.setattr(checkpoint_document, "LARGEST_SHOWN", len(pack) if is_shown else 100)
    with open_store("memory://") as store:
        operator = OperatorCheckpoint.in_sidecar(0, len(pack))
        saved = store.save_with_state(
            CheckpointManifest.new(1, epoch=1, operator_states={"agg": operator}), [pack]
        )
        size, entries = checkpoint_document._packed(store, saved, operator)
    assert (size, len(entries)) == (len(pack), 100 if is_shown else 0)


def test_a_service_is_asked_so_often_for_so_long_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def endless(address: str, *, longest: int, seconds: float) -> bytes:
        asked.append((longest, seconds))
        return b"<A><IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker></A>"

    monkeypatch.setattr(unfinished_uploads, "get_answer", endless)
    options = {"access_key_id": "a", "secret_access_key": "b", "region": "r"}
    with open_store("s3://bucket/store", storage_options=options) as store:
        assert isinstance(store.backend, ObjectBlobs)
        bucket = Bucket.of(store.backend)
        assert bucket is not None
        assert bucket.unfinished_uploads() == []
    assert len(asked) == limits.MOST_ANSWERS
    assert {longest for longest, _ in asked} == {limits.LARGEST_ANSWER}
    assert max(seconds for _, seconds in asked) <= limits.ANSWER_SECONDS
