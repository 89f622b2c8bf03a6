"""Every backend that ships here keeps partitioned state as the suite demands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.blobs.object_store import ObjectBlobs
from seamark.state import StateStore
from seamark.store import Blobs
from tests.state.support.conformance.suite import StateConformance
from tests.state.support.examples import OpenState
from tests.support.servers import ObjectServer


class TestStateInMemory(StateConformance):
    @pytest.fixture
    def blobs(self) -> Blobs:
        return MemoryBlobs()


class TestStateOnDisk(StateConformance):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> Blobs:
        return FilesystemBlobs(str(tmp_path / "store"))

    @pytest.fixture
    def other_blobs(self, tmp_path: Path) -> Blobs:
        return FilesystemBlobs(str(tmp_path / "other"))


class TestStateOnDiskByPath(StateConformance):
    """Each handle is a backend of its own, as in another process."""

    @pytest.fixture
    def blobs(self, tmp_path: Path) -> Blobs:
        return FilesystemBlobs(str(tmp_path / "store"))

    @pytest.fixture
    def open_state(self, tmp_path: Path) -> OpenState:
        def opened(**options: Any) -> StateStore:
            return StateStore(tmp_path / "store", **options)

        return opened

    # the writes of another backend object cannot be watched
    test_the_manifest_is_written_after_all_states_and_before_the_pointer = None  # type: ignore[assignment]


@pytest.mark.spark  # takes long; what it asks of S3 is asked by TestS3Blobs and TestStoreOnS3
class TestStateOnS3(StateConformance):
    @pytest.fixture
    def blobs(self, s3: ObjectServer) -> Blobs:
        return ObjectBlobs.open(s3.new_url("team/state"), s3.storage_options, conditional=True)

    @pytest.fixture
    def other_blobs(self, s3: ObjectServer) -> Blobs:
        return ObjectBlobs.open(s3.new_url("team/other"), s3.storage_options, conditional=True)
