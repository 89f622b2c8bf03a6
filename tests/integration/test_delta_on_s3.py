"""Delta tables on a real S3 server, which checks signatures and decides between two writers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sinks import test_delta_on_s3
from tests.sinks.support.http_proxy import Proxy, proxy_before
from tests.sinks.test_delta_on_s3 import Bucket
from tests.support.servers import ObjectServer

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def proxy(objects: ObjectServer) -> Iterator[Proxy]:
    with proxy_before(objects.endpoint_url) as started:
        yield started


@pytest.fixture
def bucket(objects: ObjectServer, proxy: Proxy) -> Bucket:
    return Bucket(objects, proxy.url)


def test_a_lost_answer_of_the_log_is_looked_up_there_too(bucket: Bucket, proxy: Proxy) -> None:
    test_delta_on_s3.test_a_lost_answer_of_the_log_is_looked_up(bucket, proxy, {})


def test_everything_can_be_done_there_too(bucket: Bucket) -> None:
    everything = "everything_that_can_be_done_on_a_disk_can_be_done_on_an_object_store"
    getattr(test_delta_on_s3, f"test_{everything}")(bucket)
