"""Every backend that ships here passes the suites that ship with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.blobs.object_store import ObjectBlobs
from seamark.store import Blobs, CheckpointStore
from seamark.store.layout import FilesystemLayout, Layout
from seamark.testing import BlobsConformance
from tests.store.support.conformance.suite import StoreConformance
from tests.store.support.examples import OpenHandle
from tests.support.servers import ObjectServer


class OnMemory:
    @pytest.fixture
    def blobs(self) -> Blobs:
        return MemoryBlobs()


class OnDisk:
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> Blobs:
        return FilesystemBlobs(str(tmp_path / "store"))

    @pytest.fixture
    def second_handle(self, tmp_path: Path) -> Blobs:
        return FilesystemBlobs(str(tmp_path / "store"))

    @pytest.fixture
    def layout(self) -> Layout:
        return FilesystemLayout()

    @pytest.fixture
    def open_handle(self, tmp_path: Path) -> Iterator[OpenHandle]:
        opened: list[CheckpointStore] = []

        def open_one(*, keep: int | None = None, vnode_count: int | None = None) -> CheckpointStore:
            blobs = FilesystemBlobs(str(tmp_path / "store"))
            store = CheckpointStore(blobs, FilesystemLayout(), keep=keep, vnode_count=vnode_count)
            opened.append(store)
            return store

        yield open_one
        for store in opened:
            store.close()


class OnS3:
    @pytest.fixture
    def url(self, s3: ObjectServer) -> str:
        return s3.new_url("team/pipeline")

    @pytest.fixture
    def blobs(self, s3: ObjectServer, url: str) -> Blobs:
        return ObjectBlobs.open(url, s3.storage_options, conditional=True)

    @pytest.fixture
    def second_handle(self, s3: ObjectServer, url: str) -> Blobs:
        return ObjectBlobs.open(url, s3.storage_options, conditional=True)


class OnAzure:
    many_keys = 300  # its batches are of 256, and the emulator is slow

    @pytest.fixture
    def url(self, azurite: ObjectServer) -> str:
        return azurite.new_url("team/pipeline")

    @pytest.fixture
    def blobs(self, azurite: ObjectServer, url: str) -> Blobs:
        return ObjectBlobs.open(url, azurite.storage_options, conditional=True)

    @pytest.fixture
    def second_handle(self, azurite: ObjectServer, url: str) -> Blobs:
        return ObjectBlobs.open(url, azurite.storage_options, conditional=True)


class TestMemoryBlobs(OnMemory, BlobsConformance):
    pass


class TestFilesystemBlobs(OnDisk, BlobsConformance):
    pass


class TestS3Blobs(OnS3, BlobsConformance):
    pass


class TestAzureBlobs(OnAzure, BlobsConformance):
    pass


class TestStoreInMemory(OnMemory, StoreConformance):
    pass


class TestStoreOnDisk(OnDisk, StoreConformance):
    pass


class TestStoreOnS3(OnS3, StoreConformance):
    pass


@pytest.mark.spark  # what the store asks of Azure is asked by TestAzureBlobs in a tenth of the time
class TestStoreOnAzure(OnAzure, StoreConformance):
    pass
