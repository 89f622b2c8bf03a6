"""A table is opened to be read, and never chooses the code that reads it or where keys go."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.catalog
import pytest

import seamark.sinks
from seamark import limits
from seamark.errors import InvalidInputError, RefusedError
from seamark.sinks import ReadPoint, iceberg_table
from seamark.sinks.reader_calls import calls_for
from tests.sinks.support import iceberg

called: list[Mapping[str, str]] = []


class Spy:
    """Code that a table's property names."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        called.append(properties)


@pytest.fixture(autouse=True)
def nobody_called() -> None:
    called.clear()


@pytest.fixture
def snapshot(tmp_path: Path) -> int:
    """Of a table with the rows 1 and 2, and then another one."""
    table = iceberg.make_table(tmp_path)
    rows = {"n": [1, 2], "word": ["a", "b"]}
    table.append(pa.table(rows, schema=iceberg.COLUMNS))
    shown = table.refresh().current_snapshot()
    assert shown is not None
    table.append(pa.table({"n": [3], "word": ["c"]}, schema=iceberg.COLUMNS))
    return shown.snapshot_id


def metadata_of(folder: Path, **properties: str) -> str:
    """Where the newest metadata is, after somebody who can write there has added properties."""
    location = iceberg.table_at(folder).metadata_location
    place = Path(location.removeprefix("file://"))
    metadata = json.loads(place.read_text())
    metadata["properties"].update({name.replace("_", "-"): v for name, v in properties.items()})
    place.write_text(json.dumps(metadata))
    return location


def call_for(snapshot: int, location: str, *, is_configured: bool) -> str:
    at = {
        "catalog": "test",
        "catalog_is_configured": is_configured,
        "table": iceberg.TABLE,
        "snapshot_id": str(snapshot),
        "metadata_location": location,
    }
    return calls_for(ReadPoint("iceberg", f"test.{iceberg.TABLE}", at))["pandas"]


def configure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have pyiceberg know the catalog by its name."""
    given = iceberg.properties(folder)
    name = given.pop("name")
    monkeypatch.setattr(pyiceberg.catalog._ENV_CONFIG, "config", {"catalog": {name: given}})


@pytest.mark.parametrize("is_configured", [False, True])
def test_the_call_for_pandas_reads_the_snapshot(
    tmp_path: Path, snapshot: int, is_configured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, monkeypatch)
    call = call_for(snapshot, metadata_of(tmp_path), is_configured=is_configured)
    assert eval(call, {"seamark": seamark})["n"].tolist() == [1, 2]


@pytest.mark.parametrize("is_configured", [False, True])
def test_the_call_for_pandas_runs_no_code_that_the_table_names(
    tmp_path: Path, snapshot: int, is_configured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, monkeypatch)
    location = metadata_of(tmp_path, py_io_impl=f"{__name__}.Spy")
    call = call_for(snapshot, location, is_configured=is_configured)
    if is_configured:
        with pytest.raises(RefusedError, match="py-io-impl"):
            eval(call, {"seamark": seamark})
    else:
        assert eval(call, {"seamark": seamark})["n"].tolist() == [1, 2]
    assert called == []


def test_a_metadata_file_at_another_server_is_read_only_if_it_is_trusted(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="neither at a path nor in a bucket") as refused:
        iceberg_table("https://u:hunter2@evil.invalid/v1.metadata.json")
    assert "is_trusted" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_metadata_file_beyond_the_limits_is_read_only_if_it_is_trusted(
    tmp_path: Path, snapshot: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = metadata_of(tmp_path)
    monkeypatch.setattr(limits, "LARGEST_TABLE_FILE", 10)
    with pytest.raises(RefusedError, match="more than 10"):
        iceberg_table(location)
    assert iceberg_table(location, is_trusted=True).scan(snapshot_id=snapshot).to_arrow().num_rows


def test_a_catalog_has_its_own_properties(tmp_path: Path, snapshot: int) -> None:
    given: dict[str, Any] = iceberg.properties(tmp_path)
    assert iceberg_table(iceberg.TABLE, given).scan(snapshot_id=snapshot).to_arrow().num_rows == 2
    with pytest.raises(InvalidInputError, match="properties"):
        iceberg_table(iceberg.TABLE, given, properties={"s3.region": "x"})
