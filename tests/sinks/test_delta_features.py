"""Tables with features that this sink does not serve are refused by name, before any row."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from seamark.errors import RefusedError
from seamark.sinks import DeltaSink
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, Writer, epoch
from tests.sinks.support.deltas import NUMBERS, HandWrittenDelta, numbers, numbers_in

READERS = {"columnMapping", "deletionVectors", "v2Checkpoint", "timestampNtz", "typeWidening"}


def make_table(
    table: Path,
    *features: str,
    writer: int = 7,
    configuration: dict[str, str] | None = None,
    metadata: dict[str, Any] | None = None,
) -> Path:
    """A table as another engine would have made it: an entry of the log, by hand."""
    readers = [name for name in features if name in READERS]
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": writer}
    if writer == 7:
        protocol |= {"minReaderVersion": 3 if readers else 1, "writerFeatures": [*features]}
    if readers:
        protocol["readerFeatures"] = readers
    schema = NUMBERS.jsonValue()
    schema["fields"][0]["metadata"] = metadata or {}
    if metadata == MAPPED["metadata"]:
        schema["fields"][1]["metadata"] = {
            "delta.columnMapping.id": 2,
            "delta.columnMapping.physicalName": "c2",
        }
    about = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": [],
        "configuration": configuration or {},
        "createdTime": 1,
    }
    log = table / "_delta_log"
    log.mkdir(parents=True)
    lines = [{"protocol": protocol}, {"metaData": about}]
    (log / f"{0:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return table


MAPPED = {
    "configuration": {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"},
    "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c1"},
}


def numbers_by_query(table: Path) -> list[int]:
    """What DataFusion reads: the reader for pyarrow knows fewer features."""
    found = QueryBuilder().register("t", DeltaTable(str(table))).execute("SELECT n FROM t")
    return sorted(pa.table(found.read_all())["n"].to_pylist())


REFUSED: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("column mapping", MAPPED, ("columnMapping",)),
    (
        "the generated column 'n'",
        {"metadata": {"delta.generationExpression": "1"}, "writer": 4},
        (),
    ),
    ("the identity column 'n'", {"metadata": {"delta.identity.start": 1}}, ("identityColumns",)),
    ("the constraint 'positive'", {"configuration": {"delta.constraints.positive": "n > 0"}}, ()),
    ("an invariant on the column 'n'", {"metadata": {"delta.invariants": "{}"}, "writer": 2}, ()),
    ("varchar", {"metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}, "writer": 2}, ()),
    ("row tracking", {}, ("domainMetadata", "rowTracking")),
    ("identity columns", {}, ("identityColumns",)),
    ("in-commit timestamps", {}, ("inCommitTimestamp",)),
    ("liquid clustering", {}, ("clustering", "domainMetadata")),
    ("column defaults", {}, ("allowColumnDefaults",)),
    ("type widening", {}, ("typeWidening",)),
    ("Iceberg compatibility", {}, ("icebergCompatV1",)),
    ("a feature that is not known .collations", {}, ("collations",)),
    ("identity columns", {"writer": 6}, ()),
]


@pytest.mark.parametrize(("name", "table", "features"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_feature_is_refused_by_name_before_anything_is_written(
    tmp_path: Path, name: str, table: dict[str, Any], features: tuple[str, ...]
) -> None:
    place = make_table(tmp_path / "rows", *features, **table)
    with pytest.raises(RefusedError, match=name):
        DeltaSink(place).open(PIPELINE, SINK, NUMBERS)
    assert [path.name for path in place.iterdir()] == ["_delta_log"]
    assert len([*(place / "_delta_log").iterdir()]) == 1


def test_a_feature_that_no_reader_here_knows_is_refused_too(tmp_path: Path) -> None:
    place = make_table(tmp_path / "rows", "appendOnly")
    entry = place / "_delta_log" / f"{0:020}.json"
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {"readerFeatures": ["madeUp"], "writerFeatures": ["madeUp"]}
    lines = entry.read_text().splitlines()
    entry.write_text("\n".join([json.dumps({"protocol": protocol | features}), lines[1]]) + "\n")
    with pytest.raises(Exception, match="madeUp"):
        DeltaSink(place).open(PIPELINE, SINK, NUMBERS)


@pytest.mark.parametrize(
    "features",
    [
        ("appendOnly", "invariants", "checkConstraints", "generatedColumns"),
        ("deletionVectors",),
        ("changeDataFeed",),
        ("v2Checkpoint",),
        ("columnMapping",),
        ("timestampNtz",),
    ],
    ids=lambda features: features[0],
)
def test_a_feature_that_rows_need_not_know_of_is_no_obstacle(
    tmp_path: Path, features: tuple[str, ...]
) -> None:
    configuration = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
    place = make_table(tmp_path / "rows", *features, configuration=configuration)
    writer = Writer(lambda: HandWrittenDelta(place), numbers)
    writer.show([1, 2], epoch(1), "a1")
    assert numbers_by_query(place) == [1, 2]


@pytest.mark.parametrize("mode", ["upsert", "overwrite"])
def test_rows_that_may_not_go_are_not_replaced(tmp_path: Path, mode: Any) -> None:
    keys = "n" if mode == "upsert" else ()
    cases = {
        "delta.appendOnly": ("appendOnly", {"delta.appendOnly": "true"}),
        "deletion vectors": ("deletionVectors", {}),
    }
    if mode == "upsert":
        cases["change data feed"] = ("changeDataFeed", {"delta.enableChangeDataFeed": "true"})
    for name, (feature, configuration) in cases.items():
        place = make_table(tmp_path / feature, feature, configuration=configuration)
        with pytest.raises(RefusedError, match=name):
            DeltaSink(place, mode=mode, keys=keys).open(PIPELINE, SINK, NUMBERS)


@pytest.mark.parametrize("feature", ["appendOnly", "deletionVectors"])
def test_such_a_table_does_not_go_back(tmp_path: Path, feature: str) -> None:
    place = make_table(tmp_path / "rows", feature, configuration={"delta.appendOnly": "true"})
    writer = Writer(lambda: HandWrittenDelta(place), numbers)
    writer.show([1], epoch(1), "a1")
    for ask in (writer.new_handle().require_unpublish_after, writer.new_handle().unpublish_after):
        with pytest.raises(RefusedError, match=r"appendOnly|deletion vectors"):
            ask(0)
    assert numbers_by_query(place) == [1]


def test_a_table_that_changes_under_a_running_pipeline_is_noticed(tmp_path: Path) -> None:
    place = tmp_path / "rows"
    writer = Writer(lambda: HandWrittenDelta(place), numbers)
    sink = writer.stage([1], epoch(1), "a1")
    committable = sink.prepare()
    DeltaTable(str(place)).alter.add_constraint({"positive": "n > 5"})
    with pytest.raises(RefusedError, match="the constraint 'positive'"):
        sink.commit(committable)
    with pytest.raises(RefusedError, match="the constraint 'positive'"):
        sink.stage(numbers([2]), epoch(1), "a2")
    DeltaTable(str(place)).alter.drop_constraint("positive")
    sink.commit(committable)
    assert numbers_in(place) == [1]
