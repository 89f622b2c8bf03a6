"""What arrives of each value in a table of PostgreSQL, and which rows are refused in time."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from seamark.errors import RefusedError
from seamark.sinks import PostgresSink
from seamark.sinks.postgres.copying import copy_rows
from seamark.testing.conformance.sink_examples import OLD, PIPELINE, SINK, epoch
from tests.pipeline.support.workloads import settings_of
from tests.sinks.support.postgres import rows_of, run, with_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.databases import PostgresServer

pytestmark = pytest.mark.spark

Make = Callable[[str], str]
AT = dt.datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=dt.UTC)


@pytest.fixture
def make(empty_database: str) -> Make:
    """A database with one table."""

    def made(statement: str) -> str:
        run(empty_database, statement)
        return empty_database

    return made


def show(sink: PostgresSink, df: DataFrame, number: int = 1) -> None:
    sink.open(PIPELINE, SINK, df.schema)
    sink.stage(df, epoch(number), f"attempt-{number}")
    sink.commit(sink.prepare())


def refusal(sink: PostgresSink, df: DataFrame, number: int = 1) -> str:
    """What is said against the rows, before they are decided."""
    with pytest.raises(RefusedError) as caught:
        show(sink, df, number)
    assert sink.committed(OLD, number) is None
    sink.abort(f"attempt-{number}")
    assert sink.leftovers() == []
    return str(caught.value)


@contextmanager
def session_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    """Times are shown, and sent to Python, as clocks of that zone have them."""
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_every_type_arrives_as_it_was(spark: SparkSession, make: Make, zone: str) -> None:
    dsn = make(
        "CREATE TABLE t (a bool, b smallint, c int, d bigint, e real, f double precision,"
        " g numeric(20,4), h text, i bytea, j date, k timestamptz, l timestamp, m int[], n text[],"
        " o jsonb, p json, q varchar(9), u uuid, nested int[], times timestamptz[], days date[],"
        " blobs bytea[], objects jsonb[])"
    )
    values: dict[str, Any] = {
        "a": True,
        "b": -7,
        "c": 2**31 - 1,
        "d": -(2**63),
        "e": 1.5,
        "f": 0.1,
        "g": Decimal("1234567890123456.7890"),
        "h": 'a "quoted", \\ comma\n\\.\nnew line, \r\t ümläut 列 😀',
        "i": b"\x00\x01\\\xff",
        "j": dt.date(1, 1, 1),
        "k": AT,
        "l": AT.replace(tzinfo=None),
        "m": [1, None, 3],
        "n": ['a"b', "c\\d", "NULL", "", None, "{x,y}", "line\nbreak"],
        "o": {"x": 1, 'k"ey': None},
        "p": (1, None, AT),
        "q": "",
        "u": "9a0c2f36-7a50-4d3c-9c51-2a3f0d7f6e01",
        "nested": [[1, 2], [3, None]],
        "times": [AT, None],
        "days": [dt.date(2026, 2, 28)],
        "blobs": [b"\x00\\", b""],
        "objects": [("z",), None],
    }
    schema = (
        "a boolean, b smallint, c int, d bigint, e float, f double, g decimal(20,4), h string,"
        " i binary, j date, k timestamp, l timestamp_ntz, m array<int>, n array<string>,"
        " o map<string,int>, p struct<y:int,z:string,at:timestamp>, q string, u string,"
        " nested array<array<int>>, times array<timestamp>, days array<date>, blobs array<binary>,"
        " objects array<struct<z:string>>"
    )
    nothing = dict.fromkeys(values)
    df = spark.createDataFrame([tuple(values.values()), tuple(nothing.values())], schema)
    with session_zone(spark, zone):
        show(PostgresSink(dsn, "t"), df)
    arrived = rows_of(dsn, f"SELECT {', '.join(values)} FROM t ORDER BY a")
    expected = values | {
        "p": {"y": 1, "z": None, "at": "2026-03-29T01:30:00.123456Z"},
        "objects": [{"z": "z"}, None],
    }
    got = dict(zip(values, arrived[0], strict=True))
    got["u"] = str(got["u"])
    assert got == expected
    assert arrived[1] == tuple(nothing.values())


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Africa/Monrovia"])
def test_times_of_long_ago_arrive_to_the_microsecond(
    spark: SparkSession, make: Make, zone: str
) -> None:
    """Before there were time zones the offset from UTC had seconds: -4:56:02 in New York."""
    dsn = make("CREATE TABLE t (k timestamptz, list timestamptz[], deep timestamptz[], o jsonb)")
    old = [
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(1800, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC),
        dt.datetime(1892, 12, 31, 12, tzinfo=dt.UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    ]
    micros = [(at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(0, 0, 1) for at in old]
    df = spark.createDataFrame([(one,) for one in micros], "us long").selectExpr(
        "timestamp_micros(us) AS k",
        "array(timestamp_micros(us), null) AS list",
        "array(array(timestamp_micros(us))) AS deep",
        "named_struct('at', timestamp_micros(us)) AS o",
    )
    with session_zone(spark, zone):
        show(PostgresSink(dsn, "t"), df)
    arrived = rows_of(
        dsn,
        "SELECT * FROM (SELECT "
        + ", ".join(
            f"(extract(epoch FROM {one}) * 1000000)::bigint"
            for one in ("k", "list[1]", "deep[1][1]", "(o->>'at')::timestamptz")
        )
        + ", list[2] FROM t) AS micros ORDER BY 1",
    )
    assert arrived == [(one, one, one, one, None) for one in micros]


def test_infinity_and_nan_arrive(spark: SparkSession, make: Make) -> None:
    dsn = make("CREATE TABLE t (x double precision, y real[])")
    odd = [float("inf"), float("-inf"), float("nan")]
    df = spark.createDataFrame([(x, [x]) for x in odd], "x double, y array<float>")
    show(PostgresSink(dsn, "t"), df)
    found = rows_of(dsn, "SELECT x::text, y::text FROM t ORDER BY x")
    expected = [("-Infinity", "{-Infinity}"), ("Infinity", "{Infinity}"), ("NaN", "{NaN}")]
    assert found == expected


def test_a_database_of_another_encoding_gets_the_same_letters(
    spark: SparkSession, postgres: PostgresServer
) -> None:
    run(postgres.dsn, "DROP DATABASE IF EXISTS latin")
    run(postgres.dsn, "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    dsn = postgres.dsn.removesuffix("/postgres") + "/latin"
    run(dsn, "CREATE TABLE t (x text)")
    sink = PostgresSink(dsn, "t")
    show(sink, spark.createDataFrame([("Übermäßig",)], "x string"))
    assert rows_of(dsn, "SELECT x, length(x) FROM t") == [("Übermäßig", 9)]
    assert "no equivalent" in refusal(sink, spark.createDataFrame([("列",)], "x string"), 2)
    run(postgres.dsn, "DROP DATABASE latin")


def test_arrays_have_the_old_days_that_they_had_whatever_the_parser_policy_is(
    spark: SparkSession, make: Make
) -> None:
    dsn = make("CREATE TABLE t (d date[], x timestamptz[])")
    df = spark.sql(
        "SELECT array(date'1582-10-10') d, array(timestamp_micros(-12219900000000001)) x"
    )
    with settings_of(spark, {"spark.sql.legacy.timeParserPolicy": "LEGACY"}):
        show(PostgresSink(dsn, "t"), df)
    query = "SELECT d[1]::text, (extract(epoch FROM x[1]) * 1000000)::bigint FROM t"
    assert rows_of(dsn, query) == [("1582-10-10", -12219900000000001)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_array", [False, True])
@pytest.mark.parametrize("kind", ["interval", "time"])
def test_a_text_that_a_column_of_times_would_round_is_refused(
    spark: SparkSession, make: Make, kind: str, *, is_array: bool
) -> None:
    end, of = ("[]", "array<string>") if is_array else ("", "string")
    dsn = make(f"CREATE TABLE t (x {kind}{end})")
    exact, rounded = {
        "time": (
            ("12:00", "04:05:06.789012", "24:00:00", "040506.7", "4:05 pm", "12:00:00.1234560"),
            ("12:00:00.1234567", "12:00:00+02", "2026-01-01 12:00:00", "12:00:00Z"),
        ),
        "interval": (
            *(("1 day", "1.5 days", "0.000001 seconds", "1 mon 2 days 03:04:05.678901", "P1Y2M"),),
            *(("0.0000001 s", "1.05 years", "12:00:00.1234567", "P0.3Y", "1e-7 s", "0.5 us"),),
        ),
    }[kind]
    sink = PostgresSink(dsn, "t")
    values = [[each] if is_array else each for each in exact]
    show(sink, spark.createDataFrame([(each,) for each in [*values, None]], f"x {of}"))
    for each in rounded:
        df = spark.createDataFrame([([each] if is_array else each,)], f"x {of}")
        assert "column 'x' has a text" in refusal(sink, df, 2)
    shown = [x[0] if is_array else x for (x,) in rows_of(dsn, f"SELECT x::text{end} FROM t") if x]
    same = (rows_of(dsn, f"SELECT '{each}'::{kind}::text")[0][0] for each in exact)
    assert sorted(shown) == sorted(same)
    assert rows_of(dsn, "SELECT count(*) FROM t") == [(len(exact) + 1,)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("table", "row", "why"),
    [
        ("x text, y text", ("string", "a\0b"), "column 'y' has a text with a zero byte"),
        ("x text, y varchar(2)", ("string", "é  "), "column 'y' has a text of more than 2 char"),
        ("x text, y jsonb", ("string", '{"a": "\\u0000"}'), "(column 'y')"),
        (
            "x text, y json",
            ("string", "no json"),
            "invalid input syntax for type json (column 'y')",
        ),
        ("x text, y uuid", ("string", "no uuid"), "(column 'y')"),
        ("x text, y varchar(2)", ("string", "abc"), "more than 2 characters"),
        ("x text, y text[]", ("array<string>", ["a\0b"]), "column 'y' has a text with a zero byte"),
        ("x text, y int[]", ("array<array<int>>", [[1], None]), "(column 'y')"),
        ("x text, y int[]", ("array<array<int>>", [[1], [2, 3]]), "(column 'y')"),
        ("x text, y int CHECK (y > 0)", ("int", -1), "violates check constraint"),
        ("x text, y int NOT NULL", ("int", None), 'column "y"'),
        ("x text, y int, z int DEFAULT 5 CHECK (z > y)", ("int", 6), "violates check constraint"),
        ("x text, y int, z int GENERATED ALWAYS AS (1 / y) STORED", ("int", 0), "division by zero"),
        ("x text, y bigint, e bigint CHECK (e < 1)", ("bigint", 0), "violates check constraint"),
    ],
)
def test_a_row_that_the_table_refuses_is_refused_before_it_is_decided(
    spark: SparkSession, make: Make, table: str, row: tuple[str, Any], why: str
) -> None:
    kind, value = row
    dsn = make(f"CREATE TABLE t ({table})")
    df = spark.createDataFrame([("x", value)], f"x string, y {kind}")
    sink = PostgresSink(dsn, "t", epoch_column="e" if "e bigint" in table else None)
    assert why in refusal(sink, df)
    assert rows_of(dsn, "SELECT * FROM t") == []


@pytest.mark.parametrize(
    "micros", [2**63 - 1, 2_070_000_000 * 10**9, -(2**63), -62_135_596_800_000_001]
)
def test_a_time_of_the_far_future_or_past_does_not_arrive_in_another_year(
    spark: SparkSession, make: Make, micros: int
) -> None:
    dsn = make("CREATE TABLE t (n bigint, x timestamptz)")
    sink = PostgresSink(dsn, "t")
    df = spark.createDataFrame([(1, 0), (2, micros)], "n long, m long")
    df = df.selectExpr("n", "timestamp_micros(m) AS x")
    assert "column 'x' has a time that is not in the years 1 to 32767" in refusal(sink, df)


def test_the_first_and_the_last_time_that_arrive(spark: SparkSession, make: Make) -> None:
    dsn = make("CREATE TABLE t (x timestamptz)")
    micros = [-62_135_596_800_000_000, 971_890_963_199_999_999]
    df = spark.createDataFrame([(m,) for m in micros], "m long")
    show(PostgresSink(dsn, "t"), df.selectExpr("timestamp_micros(m) AS x"))
    arrived = "SELECT (extract(epoch FROM x) * 1000000)::bigint AS m FROM t ORDER BY m"
    assert rows_of(dsn, arrived) == [(m,) for m in micros]


@pytest.mark.parametrize("array", ["array({})", "array(array(NULL, 'a'), array('b', {}))"])
def test_a_text_in_an_array_that_is_not_utf8_is_refused_not_mended(
    spark: SparkSession, make: Make, array: str
) -> None:
    dsn = make("CREATE TABLE t (x text[])")
    sink = PostgresSink(dsn, "t")
    broken = spark.sql("SELECT " + array.format("CAST(X'61FF' AS string)") + " AS x")
    assert "column 'x' has a text that is not UTF-8" in refusal(sink, broken)
    assert rows_of(dsn, "SELECT x FROM t") == []


def test_blanks_beyond_the_length_of_a_text_in_an_array_are_refused_not_cut(
    spark: SparkSession, make: Make
) -> None:
    dsn = make("CREATE TABLE t (x varchar(2)[])")
    sink = PostgresSink(dsn, "t")

    def rows(text: str) -> DataFrame:
        return spark.createDataFrame(
            [([["a", None], [text, ""]],), (None,)], "x array<array<string>>"
        )

    assert "column 'x' has a text of more than 2 characters" in refusal(sink, rows("é  "))
    show(sink, rows("é "), 2)
    assert rows_of(dsn, "SELECT x FROM t ORDER BY x NULLS LAST") == [
        ([["a", None], ["é ", ""]],),
        (None,),
    ]


def test_a_value_that_an_index_refuses_is_refused_before_it_is_decided(
    spark: SparkSession, make: Make
) -> None:
    noise = "sha2(cast(id AS string), 512)"
    long = spark.range(1).selectExpr(
        f"array_join(transform(sequence(1, 40), i -> {noise.replace('id', 'i')}), '') AS x"
    )
    dsn = make("CREATE TABLE t (x text, id serial PRIMARY KEY)")
    sink = PostgresSink(dsn, "t")
    show(sink, long)
    run(dsn, "TRUNCATE t", "CREATE INDEX i ON t (x)")
    assert "index" in refusal(sink, long, 2)
    show(sink, spark.createDataFrame([("short",)], "x string"), 3)
    run(dsn, "DROP INDEX i", "CREATE INDEX i ON t ((1 / length(x)))")
    assert "division by zero" in refusal(sink, spark.createDataFrame([("",)], "x string"), 4)
    show(sink, spark.createDataFrame([("short",)], "x string"), 5)
    assert rows_of(dsn, "SELECT x FROM t") == [("short",), ("short",)]


def test_columns_that_the_output_lacks_get_their_default(spark: SparkSession, make: Make) -> None:
    dsn = make(
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, x bigint,"
        " y int DEFAULT 7, s serial, z bigint GENERATED ALWAYS AS (x * 2) STORED)"
    )
    df = spark.createDataFrame([(5,), (6,)], "x long").coalesce(1)
    show(PostgresSink(dsn, "t"), df)
    found = sorted(rows_of(dsn, "SELECT x, y, z FROM t"))
    assert found == [(5, 7, 10), (6, 7, 12)]
    assert sorted(rows_of(dsn, "SELECT id, s FROM t")) == [(1, 1), (2, 2)]


def test_two_rows_for_one_key_and_a_key_that_is_null_are_refused_before_the_decision(
    spark: SparkSession, make: Make
) -> None:
    dsn = make("CREATE TABLE t (k int UNIQUE, v text)")
    sink = PostgresSink(dsn, "t", mode="upsert", keys=["k"])
    schema = "k int, v string"
    different = spark.createDataFrame([(1, "a"), (1, "b"), (2, "c")], schema)
    assert "different rows for the key k=1" in refusal(sink, different)
    assert "null" in refusal(sink, spark.createDataFrame([(None, "a")], schema), 2)
    show(sink, spark.createDataFrame([(1, "a"), (1, "a"), (2, None), (2, None)], schema), 3)
    assert sorted(rows_of(dsn, "SELECT k, v FROM t")) == [(1, "a"), (2, None)]


def test_an_upsert_replaces_and_deletes_rows(spark: SparkSession, make: Make) -> None:
    dsn = make("CREATE TABLE t (k int PRIMARY KEY, v text NOT NULL, kept int DEFAULT 5)")
    sink = PostgresSink(dsn, "t", mode="upsert", keys="k", delete_where="gone")
    schema = "k int, v string, gone boolean"
    first = [(1, "a", False), (2, "b", None), (3, "c", False)]
    show(sink, spark.createDataFrame(first, schema))
    run(dsn, "UPDATE t SET kept = 6 WHERE k = 2")
    second = [(2, "B", False), (3, None, True), (4, None, True)]
    show(sink, spark.createDataFrame(second, schema), 2)
    assert rows_of(dsn, "SELECT * FROM t ORDER BY k") == [(1, "a", 5), (2, "B", 6)]
    kept_without_a_value = spark.createDataFrame([(1, None, False)], schema)
    assert "violates check constraint" in refusal(sink, kept_without_a_value, 3)
    both = spark.createDataFrame([(1, "a", False), (1, "a", True)], schema)
    assert "different rows" in refusal(sink, both, 4)


def test_a_table_of_keys_alone_can_be_upserted(spark: SparkSession, make: Make) -> None:
    dsn = make("CREATE TABLE t (k int PRIMARY KEY)")
    sink = PostgresSink(dsn, "t", mode="upsert", keys="k", connections=1)
    for number, keys in enumerate([[1, 2], [2, 3]], 1):
        show(sink, spark.createDataFrame([(k,) for k in keys], "k int"), number)
    assert sorted(rows_of(dsn, "SELECT k FROM t")) == [(1,), (2,), (3,)]


def test_psql_reads_the_rows_and_the_ledger(spark: SparkSession, make: Make) -> None:
    psql = shutil.which("psql")
    if psql is None:
        pytest.skip("psql is not installed (Debian: postgresql-client)")
    dsn = make('CREATE TABLE t (n bigint, word text, at timestamptz, "E" bigint)')
    df = spark.createDataFrame([(1, "a,b", AT), (2, None, AT)], "n long, word string, at timestamp")
    show(PostgresSink(dsn, "t", epoch_column="E"), df, 7)

    def answer(query: str) -> list[str]:
        done = subprocess.run(
            [psql, dsn, "--csv", "--tuples-only", "--no-psqlrc", "-c", query],
            capture_output=True,
            text=True,
            check=True,
            env={"PGTZ": "UTC", "PATH": "/usr/bin:/bin"},
        )
        return done.stdout.splitlines()

    at = "2026-03-29 01:30:00.123456+00"
    assert answer("SELECT * FROM t ORDER BY n") == [f'1,"a,b",{at},7', f"2,,{at},7"]
    ledger = "SELECT pipeline, sink, target, epoch, rows FROM seamark_ledger"
    assert answer(ledger) == ["trades,bars,t,7,2"]


def test_an_error_of_a_task_does_not_show_the_password(spark: SparkSession, make: Make) -> None:
    dsn = make("CREATE TABLE t (n bigint)")
    address = with_options(dsn, port=1, password="hunter2")
    df = spark.createDataFrame([(1,)], "n long")
    with pytest.raises(Exception, match="connection failed") as caught:
        copy_rows(df, address, "COPY t (n) FROM STDIN (FORMAT csv)", "here")
    assert "hunter2" not in str(caught.value)
