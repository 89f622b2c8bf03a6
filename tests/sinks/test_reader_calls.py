"""The ready-made calls read exactly the epochs that they should, and no name becomes code."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pandas
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

import seamark.progress
from seamark.sinks import PostgresSink, ReadPoint
from seamark.sinks.epoch_folder import folder_name
from seamark.sinks.reader_calls import calls_for, sql_literal, summary_of

HOSTILE = [
    "plain",
    "it's",
    'a"b',
    "a b%20c",
    "star*",
    "who?",
    "[abc]",
    "{x,y}",
    "new\nline",
    "back\\slash",
    "'); DROP TABLE x; --",
    "\u202eright",
]
NAMES = {"pandas": pandas, "pyarrow": pa, "json": json, "seamark": seamark}


def table(epoch: int) -> pa.Table:
    return pa.table({"n": [epoch * 10, epoch * 10 + 1], "word": [f"it's {epoch}", 'a,"b"']})


def write_epochs(root: Path, epochs: int, *, partitions: tuple[str, ...] = ()) -> Path:
    """Folders as a FileSink has them, with things beside them that nobody may read."""
    for number in [*range(1, epochs + 1), 999_999, 1_000_000]:
        hidden = number > epochs
        base = root / "_seamark/staging/a1" if hidden and number == 999_999 else root
        folder = base / folder_name(number)
        for name in partitions:
            folder /= f"{name}=1"
        folder.mkdir(parents=True)
        pyarrow.parquet.write_table(table(number), folder / "part-00000-x.parquet")
        (base / folder_name(number) / "_seamark.json").write_text("{}")
    return root


def rows_of(call: str, **names: Any) -> list[int]:
    frame = eval(call, {**NAMES, **names})
    return sorted(frame["n"].tolist())


def duckdb_rows(query: str) -> list[int]:
    return sorted(row[0] for row in duckdb.sql(f"SELECT n FROM ({query})").fetchall())


@pytest.mark.parametrize(
    ("name", "partitions"),
    [*((name, ()) for name in HOSTILE), ("plain", ("day",)), ("[abc]", ("day", "hour"))],
)
def test_files_are_read_up_to_the_epoch_whatever_their_folder_is_called(
    tmp_path: Path, name: str, partitions: tuple[str, ...]
) -> None:
    root = write_epochs(tmp_path / name, 4, partitions=partitions)
    write_epochs(tmp_path / "starfish", 2), write_epochs(tmp_path / "a", 2)
    at = {"epoch": 2, "format": "parquet", "partition_by": list(partitions)}
    calls = calls_for(ReadPoint("files", str(root), at))
    expected = [10, 11, 20, 21]
    assert rows_of(calls["pandas"]) == expected
    if "\\" in name:
        assert "duckdb" not in calls, "it takes that for a folder"
    else:
        assert duckdb_rows(calls["duckdb"]) == expected


def test_text_formats_are_read_as_spark_wrote_them(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        folder = tmp_path / "json" / folder_name(number)
        folder.mkdir(parents=True)
        (folder / "part-0.json").write_text(f'{{"n":{number}}}\n{{"n":{number + 10}}}\n')
        folder = tmp_path / "csv" / folder_name(number)
        folder.mkdir(parents=True)
        (folder / "part-0.csv").write_text("n;word\n")
        (folder / "part-1.csv").write_text(f'n;word\n{number};"a \\"b\\"; c"\n')
    for name, options in (("json", {}), ("csv", {"header": "true", "sep": ";"})):
        at = {"epoch": 2, "format": name, "options": options}
        calls = calls_for(ReadPoint("files", str(tmp_path / name), at))
        assert duckdb_rows(calls["duckdb"]) == ([1, 2, 11, 12] if name == "json" else [1, 2]), name
        assert "pandas" not in calls, "it would take the columns from the first file alone"


def test_csv_without_a_header_loses_no_row(tmp_path: Path) -> None:
    folder = tmp_path / folder_name(1)
    folder.mkdir()
    (folder / "part-0.csv").write_text("1,a\n2,b\n")
    calls = calls_for(ReadPoint("files", str(tmp_path), {"epoch": 1, "format": "csv"}))
    assert len(duckdb.sql(calls["duckdb"]).fetchall()) == 2


def test_orc_is_read_up_to_the_epoch(tmp_path: Path) -> None:
    import pyarrow.orc

    for number in (1, 2, 3):
        folder = tmp_path / folder_name(number)
        folder.mkdir()
        pyarrow.orc.write_table(table(number), folder / "part-0.orc")
    calls = calls_for(ReadPoint("files", str(tmp_path), {"epoch": 2, "format": "orc"}))
    assert rows_of(calls["pandas"]) == [10, 11, 20, 21]


def test_a_delta_table_is_read_at_its_version(tmp_path: Path) -> None:
    root = tmp_path / "it's a table"
    for number in (1, 2, 3):
        deltalake.write_deltalake(str(root), table(number), mode="append")
    calls = calls_for(ReadPoint("delta", str(root), {"version": 1}))
    assert rows_of(calls["pandas"], deltalake=deltalake) == [10, 11, 20, 21]


def test_a_view_is_read_whole(tmp_path: Path) -> None:
    url = seamark.progress.rocksdb_url(tmp_path / "it's a view")
    with seamark.progress.open_progress(url) as store, store.session() as session:
        for number in (1, 2):
            session.put("view", str(number).encode(), json.dumps({"n": number}).encode())
    calls = calls_for(ReadPoint("key-value", url, {"epoch": 2}, only_newest=True))
    names: dict[str, Any] = dict(NAMES)
    exec(calls["pandas"], names)
    assert sorted(names["rows"]["n"].tolist()) == [1, 2]
    names["view"].close()


KINDS: dict[str, dict[str, Any]] = {
    "files": {"epoch": 7, "format": "parquet"},
    "delta": {"version": 7},
    "iceberg": {"snapshot_id": "7", "table": "NAME.NAME", "catalog": "NAME"},
    "postgres": {"table": '"NAME"."NAME"', "condition": '"NAME" <= 7', "epoch": 7},
    "kafka": {"bootstrap": "NAME", "topic": "NAME", "end_offsets": {"0": 7}},
    "kafka-topics": {"bootstrap": "NAME", "end_offsets": {"x": {"10": 9, "2": 8}, "y": {"0": 7}}},
    "key-value": {"namespace": "NAME", "epoch": 7},
}


def named(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: named(each, name) for key, each in value.items()}
    return value.replace("NAME", name) if isinstance(value, str) else value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_becomes_code(kind: str, name: str) -> None:
    """A call is the same code as the harmless one, with other texts in it."""
    harmless = calls_for(ReadPoint(kind, "/data/x", named(KINDS[kind], "x")))
    calls = calls_for(ReadPoint(kind, f"/data/{name}", named(KINDS[kind], name)))
    assert harmless
    for reader, call in calls.items():
        assert call.isprintable(), call
        if reader != "duckdb":
            assert code_of(call) == code_of(harmless[reader])
        else:
            assert without_literals(call) == without_literals(harmless[reader])


@pytest.mark.parametrize("name", HOSTILE)
def test_a_query_for_postgresql_has_its_names_as_they_were_quoted(name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    at = {"table": f'"public".{quoted}', "condition": f"{quoted} <= 7", "epoch": 7}
    calls = calls_for(ReadPoint("postgres", "db", at))
    if not name.isprintable():
        assert calls == {}
        return
    query = ast.literal_eval(
        calls["pandas"].removeprefix("pandas.read_sql").replace("connection", "0")
    )
    assert query[0] == f'SELECT * FROM "public".{quoted} WHERE {quoted} <= 7'


@pytest.mark.parametrize("column", [None, 'ep"och'])
def test_what_a_postgres_sink_says_is_understood(column: str | None) -> None:
    sink = PostgresSink(
        "postgresql://u:hunter2hunter2@h/db", ("s", 'odd "name'), epoch_column=column
    )
    identity = {"timeline": "t", "epoch": 7, "fingerprint": "f", "attempt": "a"}
    point = sink.read_point(identity)
    calls = calls_for(point)
    assert set(calls) == {"spark", "duckdb", "pandas"}
    assert "hunter2" not in str(calls) + str(point)
    assert point.only_newest is (column is None)
    assert ('"ep""och" <= 7' in calls["pandas"]) is (column is not None)


@pytest.mark.parametrize(
    "changes",
    [
        {"table": "bars"},
        {"table": '"bars"; DROP TABLE x'},
        {"table": '"a" "b"'},
        {"condition": "true OR 1 = 1"},
        {"condition": '"epoch" <= 7 OR true'},
        {"condition": '"epoch" <= 7; DROP TABLE x'},
        {"table": 7},
    ],
)
def test_sql_that_a_checkpoint_brings_along_is_not_taken_over(changes: dict[str, Any]) -> None:
    at = {"table": '"bars"', "condition": '"epoch" <= 7', "epoch": 7}
    assert calls_for(ReadPoint("postgres", "db", at))
    assert calls_for(ReadPoint("postgres", "db", at | changes)) == {}


def code_of(call: str) -> str:
    """The expression without the texts in it."""
    tree = ast.parse(call)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


def without_literals(query: str) -> str:
    """The query with each text in it, put together of pieces or not, as one empty text."""
    bare = re.sub(r"'(?:[^']|'')*'|chr\(\d+\)", "''", query)
    return re.sub(r"''(?: \|\| '')+", "''", bare)


@pytest.mark.parametrize(
    "point",
    [
        ReadPoint("of my own", "/data/x", {"epoch": 1}),
        ReadPoint("delta", "/data/x", {}),
        ReadPoint("delta", "/data/x", {"version": "1; DROP"}),
        ReadPoint("files", "/data/x", {"epoch": None, "format": "parquet"}),
        ReadPoint("files", "/data/x", {"epoch": 1, "format": "parquet", "options": 7}),
        ReadPoint("files", "/data/x", {"epoch": 1, "format": "org.evil.Source"}),
        ReadPoint("kafka", "", {"bootstrap": "b", "topic": "t", "end_offsets": [1]}),
        ReadPoint("kafka", "", {"bootstrap": "b", "topic": "t,u", "end_offsets": {"0": 1}}),
        ReadPoint("kafka-topics", "", {"bootstrap": "b", "end_offsets": {}}),
        ReadPoint("postgres", "", {"table": {"a": 1}}),
    ],
)
def test_what_no_sink_of_ours_has_written_gets_no_calls(point: ReadPoint) -> None:
    assert calls_for(point) == {}
    assert summary_of(point)


@pytest.mark.parametrize(
    "place",
    [
        "https://evil.invalid/x",
        "HTTP://evil.invalid/x",
        "simplecache::https://evil.invalid/x",
        "ssh://evil.invalid/x",
        "https:/",
        "hdfs://evil.invalid/x?fs.hdfs.impl=org.evil.Files",
        "s3://bucket/x?s3_endpoint=evil.invalid",
        "s3a://bucket/x#y",
        "\thttps://evil.invalid/x",
        "jdbc:evil",
    ],
)
@pytest.mark.parametrize("kind", ["files", "delta", "iceberg"])
def test_no_call_goes_to_a_place_that_is_more_than_a_path_or_a_bucket(
    kind: str, place: str
) -> None:
    at = KINDS[kind] | {"metadata_location": place, "catalog_is_configured": False}
    calls = calls_for(ReadPoint(kind, place, at))
    assert "evil" not in str(calls)
    assert set(calls) <= {"spark"}, "a table of Iceberg is known to Spark by its catalog"
    assert kind == "iceberg" or not calls


@pytest.mark.parametrize(
    ("catalog", "table"),
    [
        ("text", "/etc/hostname"),
        ("json", "webhdfs://evil"),
        ("json", "webhdfs://evil.invalid/x"),
        ("parquet", "x"),
        ("org.evil.Source", "db.t"),
        ("com", "evil.Source`.`x"),
        ("prod", "t"),
        ("prod", "db..t"),
        ("prod", ".t"),
        ("prod", "db."),
        ("prod", "db.t\n"),
        ("prod", "db.t/x"),
        ("prod", "db." + "t" * 10_000),
        ("", "db.t"),
        (None, "text.x"),
        (None, "prod.db.t"),
        (7, 7),
    ],
)
def test_a_table_of_iceberg_that_could_be_a_format_and_a_path_gets_no_call(
    catalog: Any, table: Any
) -> None:
    at = {"snapshot_id": "7", "catalog": catalog, "table": table}
    assert calls_for(ReadPoint("iceberg", "db.t", at)) == {}
    at["metadata_location"] = "/data/v1.metadata.json"
    assert "spark" not in calls_for(ReadPoint("iceberg", "db.t", at))


@pytest.mark.parametrize("table", ["db.t", "a.b-c.d_1"])
def test_a_table_of_iceberg_is_named_with_its_catalog(table: str) -> None:
    at = {"snapshot_id": "7", "catalog": "prod", "table": table}
    calls = calls_for(ReadPoint("iceberg", "db.t", at))
    quoted = table.replace(".", "`.`")
    assert calls["spark"] == f"spark.read.option('snapshot-id', 7).table('`prod`.`{quoted}`')"
    assert calls["pandas"].startswith(f"seamark.sinks.iceberg_table('{table}', 'prod')")


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("files", "/data/x"),
        ("files", "/data/who?"),
        ("files", "hdfs://name/x"),
        ("delta", "/data/x"),
        ("delta", "s3://bucket/x"),
        ("delta", "abfss://c@account.dfs.core.windows.net/x"),
        ("iceberg", "file:///data/v1.metadata.json"),
        ("iceberg", "gs://bucket/v1.metadata.json"),
    ],
)
def test_a_path_or_a_bucket_has_its_calls(kind: str, place: str) -> None:
    at = KINDS[kind] | {"metadata_location": place, "catalog_is_configured": False}
    calls = calls_for(ReadPoint(kind, place, at))
    assert {"spark", "pandas"} <= set(calls)
    assert place in calls["pandas"]


def test_settings_in_the_url_of_a_view_are_not_taken_over() -> None:
    point = ReadPoint("key-value", "redis://host/0?ssl_keyfile=/k", {"epoch": 1})
    assert "ssl_keyfile" not in calls_for(point)["pandas"]


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("", "''"),
        ("it's", "'it''s'"),
        ("a\nb", "'a' || chr(10) || 'b'"),
        ("\r\n", "chr(13) || chr(10)"),
    ],
)
def test_a_text_in_sql_holds_nothing_that_cannot_be_seen(text: str, literal: str) -> None:
    assert sql_literal(text) == literal


def test_the_summary_says_what_is_selected() -> None:
    points = {kind: ReadPoint(kind, "x", at, kind == "key-value") for kind, at in KINDS.items()}
    assert {kind: summary_of(point) for kind, point in points.items()} == {
        "files": "epoch <= 7",
        "delta": "version 7",
        "iceberg": "snapshot 7",
        "postgres": "epoch <= 7",
        "kafka": "before 0:7",
        "kafka-topics": "before x-2:8, x-10:9, y-0:7",
        "key-value": "epoch 7",
    }


def test_no_call_has_an_option_that_no_sink_of_ours_records() -> None:
    options = {"password": "hunter2", "access_key": "AKIA", "credentialFile": "/k", "sep": ";"}
    at = {"epoch": 1, "format": "csv", "options": options}
    calls = calls_for(ReadPoint("files", "/data/x", at))
    assert ".option('sep', ';')" in calls["spark"]
    told = " ".join(calls.values())
    assert not [word for word in ("password", "hunter2", "AKIA", "/k") if word in told]


def test_a_text_that_nobody_could_type_makes_no_call() -> None:
    at = {"epoch": 1, "format": "csv", "options": {"sep": "\x00" * 1_000_000}}
    assert calls_for(ReadPoint("files", "/data/x", at)) == {}
    assert calls_for(ReadPoint("delta", "/" + "\x00" * 1_000_000, {"version": 1})) == {}
