"""Delta tables on Azure Blob Storage, by either kind of URL."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from seamark.sinks.delta.place import TablePlace
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch, receipt
from tests.sinks.support.deltas import HandWrittenDelta, numbers
from tests.support.servers import AZURITE_ACCOUNT, ObjectServer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scheme", ["az", "abfss"])
def test_epochs_are_shown_and_taken_back_on_azure(azurite: ObjectServer, scheme: str) -> None:
    container, options = azurite.new_bucket(), dict(azurite.storage_options)
    url = f"az://{container}/lake/rows"
    if scheme == "abfss":  # which names the account itself
        url = f"abfss://{container}@{options.pop('account_name')}.dfs.core.windows.net/lake/rows"
        assert AZURITE_ACCOUNT in url
    sink = HandWrittenDelta(url, storage_options=options)
    sink.open(PIPELINE, SINK, numbers([]).schema)
    for number in (1, 2, 3):
        sink.stage(numbers([number]), epoch(number), f"a{number}")
        committable = sink.prepare()
        sink.commit(committable)
        sink.commit(committable)
    assert sink.newest() == receipt(3, "a3")
    assert sink.unpublish_after(2) == [3]
    assert sink.leftovers() == []
    table = DeltaTable(url, storage_options=TablePlace(url, options).storage_options)
    assert sorted(table.to_pyarrow_table()["n"].to_pylist()) == [1, 2]
