"""A Delta table on an object store as a source: what is gone there, and an outage."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from seamark.errors import PositionUnavailable, SourceUnavailableError
from seamark.sinks.delta.place import TablePlace
from seamark.sources import DeltaSource
from seamark.sources.delta.log import DeltaLog
from tests.sinks.support.http_proxy import proxy_before
from tests.support.servers import ObjectServer

deltalake = pytest.importorskip("deltalake")
pytestmark = pytest.mark.slow


def options_through(server: ObjectServer, endpoint: str, url: str) -> dict[str, str]:
    options: dict[str, Any] = {**server.storage_options, "endpoint": endpoint}
    return {**TablePlace(url, options).storage_options, "max_retries": "0"}


def test_rows_are_read_what_is_gone_is_told_and_an_outage_is_no_loss(s3: ObjectServer) -> None:
    url = s3.new_url("lake/orders")
    with proxy_before(s3.endpoint_url) as proxy:
        options = options_through(s3, proxy.url, url)
        for number in range(3):
            rows = pa.table({"id": [number]})
            deltalake.write_deltalake(url, rows, mode="append", storage_options=options)
        storage = {f"storage.{name}": value for name, value in options.items()}
        source = DeltaSource({"path": url, **storage})
        placed = list(source.read_from(None, 10))
        assert [row[0] for row, _ in placed if row is not None] == [0, 1, 2]
        known = source.check(placed[0][1])
        assert (known.wanted, known.oldest, known.newest) == ("1", "0", "2")
        deltalake.DeltaTable(url, storage_options=options).create_checkpoint()
        log = DeltaLog(url, options)
        log.files.delete_file(f"_delta_log/{0:020}.json")
        with pytest.raises(PositionUnavailable, match="the oldest that the log has is 1"):
            list(source.read_from(None, 10))
    with pytest.raises(SourceUnavailableError, match="a file of the Delta table cannot be read"):
        log.entry(1)
    with pytest.raises(SourceUnavailableError, match="cannot be read"):
        source.check(placed[0][1])
