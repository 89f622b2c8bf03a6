"""Delta tables on an object store: lost answers, races, the number of requests, and secrets."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from deltalake import DeltaTable

from seamark.errors import SeamarkError
from seamark.sinks.delta.place import TablePlace
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch, receipt, through_json
from seamark.testing.conformance.sink_visibility import together
from tests.sinks.support.deltas import HandWrittenDelta, numbers
from tests.sinks.support.http_proxy import Proxy, proxy_before
from tests.support.servers import ObjectServer

pytestmark = pytest.mark.slow

SECRET = "not-for-anybody-7f3a9c"


@pytest.fixture(scope="module")
def proxy(s3: ObjectServer) -> Iterator[Proxy]:
    with proxy_before(s3.endpoint_url) as started:
        yield started


class Bucket:
    """A table in a bucket of its own."""

    def __init__(self, server: ObjectServer, endpoint: str) -> None:
        self.url = server.new_url("lake/rows")
        self.options = {**server.storage_options, "endpoint": endpoint}

    def handle(self, **options: Any) -> HandWrittenDelta:
        sink = HandWrittenDelta(self.url, storage_options=self.options, **options)
        sink.open(PIPELINE, SINK, numbers([]).schema)
        return sink

    def rows(self) -> list[int]:
        options = TablePlace(self.url, self.options).storage_options
        table = DeltaTable(self.url, storage_options=options).to_pyarrow_table()
        return sorted(table["n"].to_pylist())


@pytest.fixture
def bucket(s3: ObjectServer, proxy: Proxy) -> Bucket:
    return Bucket(s3, proxy.url)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "options",
    [{}, {"partition_by": "word"}, {"mode": "upsert", "keys": "n"}, {"mode": "overwrite"}],
    ids=str,
)
def test_a_lost_answer_of_the_log_is_looked_up(
    bucket: Bucket, proxy: Proxy, options: dict[str, Any]
) -> None:
    sink, lost = bucket.handle(**options), len(proxy.kept_back)
    for number in (1, 2, 3):
        proxy.keep_back(r"^PUT .*/_delta_log/\d+\.json")
        sink.stage(numbers([number]), epoch(number), f"a{number}")
        sink.commit(sink.prepare())
    assert len(proxy.kept_back) - lost == 3
    assert bucket.rows() == ([3] if options.get("mode") == "overwrite" else [1, 2, 3])
    assert sink.newest() == receipt(3, "a3")


def test_everything_that_can_be_done_on_a_disk_can_be_done_on_an_object_store(
    bucket: Bucket,
) -> None:
    sink = bucket.handle()
    for number in (1, 2, 3):
        sink.stage(numbers([number]), epoch(number), f"a{number}")
        committable = through_json(sink.prepare())
        together([partial(bucket.handle().commit, committable) for _ in range(3)])
    sink.stage(numbers([9]), epoch(4), "dead")
    assert bucket.handle().leftovers() == ["dead"]
    bucket.handle().abort("dead")
    assert bucket.handle().leftovers() == []
    assert bucket.rows() == [1, 2, 3]
    sink.compact()
    point = sink.read_point(committable)
    assert point is not None
    assert point.at == {"version": 3}
    assert bucket.handle().unpublish_after(1) == [2, 3]
    assert bucket.rows() == [1]
    gone = bucket.handle().vacuum(0)
    assert gone, "what was taken back and compacted"
    assert bucket.rows() == [1]


def test_an_epoch_costs_a_few_requests_however_many_there_have_been(
    bucket: Bucket, proxy: Proxy
) -> None:
    sink = bucket.handle()
    costs = []
    for number in range(1, 11):
        proxy.take_requests()
        sink.stage(numbers([number]), epoch(number), f"a{number}")
        sink.commit(sink.prepare())
        costs.append(Counter(request.split()[0] for request in proxy.take_requests()))
    totals = [cost.total() for cost in costs]
    assert len({*totals[2:]}) == 1, totals
    assert totals[-1] <= 23, costs[-1]  # two of them look whether the epoch before is still there
    assert costs[-1]["PUT"] == 4, "the record, the file, the list, and the entry of the log"


def test_no_secret_is_in_what_is_kept_or_said(
    bucket: Bucket, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bucket.options["secret_access_key"] = SECRET  # moto takes any
    sink = bucket.handle()
    sink.stage(numbers([1]), epoch(1), "a1")
    committable = sink.prepare()
    sink.commit(committable)
    place = TablePlace(bucket.url, bucket.options)
    kept = [json.dumps(committable), str(sink.describe()), repr(sink.read_point(committable))]
    for blobs in (place.log, place.control):
        for entry in blobs.entries(""):
            blob = blobs.read(entry.key, 1 << 20)
            assert blob is not None
            kept.append(blob.data.decode(errors="replace"))
    broken = {**bucket.options, "endpoint": "http://127.0.0.1:9"}
    broken["retry_config"] = {"max_retries": 0}
    with pytest.raises(SeamarkError) as error:
        HandWrittenDelta(bucket.url, storage_options=broken).newest()
    kept += [str(error.value), repr(error.value), caplog.text]
    assert not [text for text in kept if SECRET in text]
