"""Objects come to another store by the shortest way, verified, and each store stays whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import obstore
import pytest

from seamark import open_store
from seamark.blobs import object_store
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.errors import DamageError, StoreUnavailableError
from seamark.manifest.facts import SharedObject
from seamark.store import CheckpointStore
from seamark.store.object_transfer import take_object
from seamark.store.shared_objects import SharedObjects
from tests.support.servers import ObjectServer

BYTES = b"state" * 1000


def with_object(store: CheckpointStore) -> tuple[SharedObjects, SharedObject]:
    store.claim(pipeline="trades")
    return store.shared_objects, store.shared_objects.write([BYTES])


def read(shared: SharedObjects, named: SharedObject) -> bytes:
    return b"".join(map(bytes, shared.read(named)))


def test_on_one_disk_a_file_gets_a_second_name_and_each_goes_by_itself(tmp_path: Path) -> None:
    source, named = with_object(open_store(tmp_path / "a"))
    target = open_store(tmp_path / "b").shared_objects
    assert not take_object(named, source, target)
    paths = [tmp_path / folder / "shared" / named.name for folder in "ab"]
    assert paths[0].samefile(paths[1])
    source.discard([named])
    assert read(target, named) == BYTES


@pytest.mark.parametrize("why", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EACCES])
def test_where_no_second_name_can_be_given_the_bytes_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: int
) -> None:
    source, named = with_object(open_store(tmp_path / "a"))
    target = open_store(tmp_path / "b").shared_objects

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(why, os.strerror(why))

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        assert not target.blobs.take_from(source.blobs, f"shared/{named.name}", named.size)
    monkeypatch.setattr(FilesystemBlobs, "take_from", lambda *_: False)
    assert take_object(named, source, target)
    paths = [tmp_path / folder / "shared" / named.name for folder in "ab"]
    assert not paths[0].samefile(paths[1])
    assert read(target, named) == BYTES


def test_a_link_in_the_place_of_an_object_is_not_followed(tmp_path: Path) -> None:
    source, named = with_object(open_store(tmp_path / "a"))
    path = tmp_path / "a" / "shared" / named.name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    target = open_store(tmp_path / "b").shared_objects
    with pytest.raises(StoreUnavailableError, match="link"):
        take_object(named, source, target)
    assert not (tmp_path / "b" / "shared" / named.name).exists()


def test_a_damaged_object_is_found_in_the_source_and_not_left_in_the_target(
    tmp_path: Path,
) -> None:
    source, named = with_object(open_store(tmp_path / "a"))
    path = tmp_path / "a" / "shared" / named.name
    path.write_bytes(BYTES[:-1] + b"!")
    target = open_store(tmp_path / "b").shared_objects
    with pytest.raises(DamageError, match="SHA-256 differs") as error:
        take_object(named, source, target)
    assert str(tmp_path / "a") in str(error.value)
    assert not (tmp_path / "b" / "shared" / named.name).exists()
    path.write_bytes(BYTES)
    take_object(named, source, target)
    assert read(target, named) == BYTES


def test_what_an_earlier_try_has_left_damaged_is_replaced(tmp_path: Path) -> None:
    source, named = with_object(open_store(tmp_path / "a"))
    target = open_store(tmp_path / "b").shared_objects
    target.blobs.create(f"shared/{named.name}", b"torn")
    take_object(named, source, target)
    assert read(target, named) == BYTES
    assert read(source, named) == BYTES


def two_stores(s3: ObjectServer) -> tuple[CheckpointStore, CheckpointStore]:
    bucket, options = s3.new_url(), s3.storage_options
    return (
        open_store(f"{bucket}/team/a", storage_options=options),
        open_store(f"{bucket}/b", storage_options=options),
    )


def test_in_one_bucket_the_service_copies_and_no_byte_is_sent(
    s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = two_stores(s3)
    source, named = with_object(here)
    sent: list[str] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            if name in ("put", "open_writer"):
                sent.append(name)
            return getattr(obstore, name)

    monkeypatch.setattr(object_store, "obstore", Watched())
    assert not take_object(named, source, there.shared_objects)
    assert sent == []
    monkeypatch.setattr(object_store, "obstore", obstore)
    source.discard([named])
    assert read(there.shared_objects, named) == BYTES


def test_an_object_that_is_too_large_for_one_request_passes_through_here(
    s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = two_stores(s3)
    source, named = with_object(here)
    monkeypatch.setattr(object_store, "_MOST_COPIED", 10)
    assert take_object(named, source, there.shared_objects)
    assert read(there.shared_objects, named) == BYTES


def test_from_another_kind_of_place_bytes_pass_through_here(
    s3: ObjectServer, tmp_path: Path
) -> None:
    here, _ = two_stores(s3)
    source, named = with_object(here)
    for target in (open_store(tmp_path / "b"), open_store("memory://")):
        assert take_object(named, source, target.shared_objects)
        assert read(target.shared_objects, named) == BYTES
