"""Checkpoints on a real S3 server, which decides between two writers itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest

from seamark.blobs.contract import KeyExists
from seamark.blobs.object_store import ObjectBlobs
from seamark.blobs.unfinished_uploads import Bucket
from seamark.store import Blobs
from seamark.testing import BlobsConformance
from tests.integration.support.object_server import versitygw_server
from tests.store.support.conformance.suite import StoreConformance
from tests.support.servers import ObjectServer
from tests.support.skipped import or_skip

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with or_skip("versitygw", versitygw_server()) as started:
        yield started


class OnVersitygw:
    @pytest.fixture
    def url(self, server: ObjectServer) -> str:
        return server.new_url("team/pipeline")

    @pytest.fixture
    def blobs(self, server: ObjectServer, url: str) -> Blobs:
        return ObjectBlobs.open(url, server.storage_options, conditional=True)

    @pytest.fixture
    def second_handle(self, server: ObjectServer, url: str) -> Blobs:
        return ObjectBlobs.open(url, server.storage_options, conditional=True)


class TestBlobs(OnVersitygw, BlobsConformance):
    pass


class TestStore(OnVersitygw, StoreConformance):
    pass


def test_of_many_that_create_a_key_at_once_one_wins(server: ObjectServer) -> None:
    blobs = ObjectBlobs.open(server.new_url("race"), server.storage_options, conditional=True)

    def create(round_: int, writer: int) -> int | None:
        try:
            blobs.create(f"manifest-{round_}", str(writer).encode())
        except KeyExists:
            return None
        return writer

    with ThreadPoolExecutor(8) as writers:
        for round_ in range(50):
            outcomes = list(writers.map(create, [round_] * 8, range(8)))
            winners = [writer for writer in outcomes if writer is not None]
            assert len(winners) == 1
            there = blobs.read(f"manifest-{round_}", 100)
            assert there is not None
            assert there.data == str(winners[0]).encode()


def test_an_unfinished_upload_is_found_where_signatures_are_checked(server: ObjectServer) -> None:
    """doctor asks by an address that it has signed itself."""
    blobs = ObjectBlobs.open(server.new_url("a team/b+c"), server.storage_options, conditional=True)
    bucket = Bucket.of(blobs)
    assert bucket is not None
    assert bucket.unfinished_uploads() == []
    options = server.storage_options
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint_url,
        region_name=options["region"],
        aws_access_key_id=options["access_key_id"],
        aws_secret_access_key=options["secret_access_key"],
    )
    begun = client.create_multipart_upload(Bucket=bucket.name, Key="a team/b+c/shared/1-ab")
    client.create_multipart_upload(Bucket=bucket.name, Key="another/object")
    client.close()
    (upload,) = bucket.unfinished_uploads()
    assert (upload.key, upload.upload_id) == ("a team/b+c/shared/1-ab", begun["UploadId"])
    assert abs(upload.started - time.time()) < 3600
