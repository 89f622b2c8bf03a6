"""Which table is meant, and that no secret of its catalog is ever told."""

from __future__ import annotations

from pathlib import Path

import pytest

import seamark.sinks
from seamark.errors import InvalidInputError, RefusedError, SeamarkError, StoreUnavailableError
from seamark.sinks import IcebergSink
from seamark.sinks.iceberg.catalog import Place
from seamark.sinks.read_point import ReadPoint
from seamark.sinks.reader_calls import calls_for
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from tests.sinks.support import iceberg
from tests.sinks.support.iceberg import HandWritten

SECRET = "hunter2-and-more"


@pytest.mark.parametrize("table", ["", "rows", "db.", ".rows", "db..rows"])
def test_a_table_has_a_namespace(table: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is not the name of a table"):
        Place(iceberg.properties(tmp_path), table)


def test_a_table_that_does_not_exist_is_told_before_anything_is_written(tmp_path: Path) -> None:
    sink = IcebergSink(iceberg.properties(tmp_path), "db.nothing")
    with pytest.raises(RefusedError, match=r"there is no table db.nothing"):
        sink.open("trades", "bars", iceberg.SCHEMA)


def test_a_catalog_that_is_not_configured_is_told() -> None:
    with pytest.raises(InvalidInputError, match="'nowhere' cannot be opened"):
        Place("nowhere", "db.rows").load()


@pytest.mark.parametrize("name", ["s3.secret-access-key", "token", "credential", "password"])
def test_no_secret_of_a_catalog_is_told(name: str) -> None:
    given = {
        "type": "rest",
        "uri": f"http://somebody:{SECRET}@127.0.0.1:1/catalog",
        "oauth2-server-uri": "http://127.0.0.1:1/tokens",
        name: SECRET,
    }
    sink = IcebergSink(given, "db.rows")
    assert SECRET not in str(sink.describe())
    with pytest.raises(StoreUnavailableError) as told:
        sink.open("trades", "bars", iceberg.SCHEMA)
    assert SECRET not in f"{told.value} {told.value!r}"
    assert told.value.__cause__ is None
    place = Place(given, "db.rows")
    with pytest.raises(SeamarkError) as told_again, place.translated("trying"):
        raise KeyError(SECRET)
    assert SECRET not in str(told_again.value)


def test_modes_and_keys_go_together(tmp_path: Path) -> None:
    given = iceberg.properties(tmp_path)
    for options in (
        {"mode": "merge"},
        {"mode": "upsert"},
        {"keys": "n"},
        {"mode": "append", "delete_where": "gone"},
        {"schema": "loose"},
    ):
        with pytest.raises(InvalidInputError):
            IcebergSink(given, iceberg.TABLE, **options)  # type: ignore[arg-type]


def test_what_to_read_of_a_catalog_that_is_nowhere_configured_needs_only_the_table(
    tmp_path: Path,
) -> None:
    iceberg.make_table(tmp_path)
    sink = HandWritten(iceberg.properties(tmp_path), iceberg.TABLE)
    sink.open(PIPELINE, SINK, iceberg.SCHEMA)
    points = []
    for number in (1, 2):
        sink.stage(iceberg.frame([number]), epoch(number), f"a{number}")
        committable = sink.prepare()
        sink.commit(committable)
        points.append(sink.read_point(committable))
    assert points[0] is not None
    assert isinstance(points[0].at["snapshot_id"], str), "a number of 64 bits in JSON is not safe"
    rows = eval(calls_for(points[0])["pandas"], {"seamark": seamark})
    assert rows["n"].tolist() == [1]


def test_a_catalog_that_is_configured_is_opened_by_its_name() -> None:
    at = {"table": "db.rows", "catalog": "prod", "snapshot_id": "7", "metadata_location": "/m.json"}
    for point in (at, {**at, "catalog_is_configured": True}):
        call = calls_for(ReadPoint("iceberg", "prod.db.rows", point))["pandas"]
        assert call.startswith("seamark.sinks.iceberg_table('db.rows', 'prod').scan(")
