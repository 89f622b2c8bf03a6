"""What cannot work in a table of PostgreSQL is refused by name before the first epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from seamark.errors import (
    CheckpointNotFoundError,
    InvalidInputError,
    RefusedError,
    SeamarkError,
)
from seamark.sinks import PostgresSink
from seamark.sinks.postgres.columns import TableColumn, check_columns
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from tests.sinks.support.postgres import NUMBERS, ROWS, empty, opened, run, schema_of, show

if TYPE_CHECKING:
    from tests.support.databases import PostgresServer

Make = Callable[..., str]
LONG, INT, TEXT = LongType(), IntegerType(), StringType()


@pytest.fixture
def make(empty_database: str) -> Make:
    """A database with these tables alone."""

    def made(*statements: str) -> str:
        empty(empty_database)
        run(empty_database, *statements)
        return empty_database

    return made


def refusal(dsn: str, schema: StructType, table: str = "t", **options: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        PostgresSink(dsn, table, **options).open(PIPELINE, SINK, schema)
    assert table in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("table", "kind", "why"),
    [
        ("x int", LONG, "'x': bigint does not fit int4"),
        ("x real", DoubleType(), "'x': double does not fit float4"),
        ("x timestamp", TimestampType(), "'x': timestamp does not fit timestamp, only timestamptz"),
        ("x timestamptz", TimestampNTZType(), "'x': timestamp_ntz does not fit timestamptz"),
        ("x numeric(10,2)", DecimalType(12, 2), "digits that numeric(10,2) cannot hold"),
        ("x numeric(10,2)", DecimalType(10, 3), "digits that numeric(10,2) cannot hold"),
        ("x numeric(12,2)", LONG, "bigint has digits that numeric(12,2) cannot hold"),
        ("x timestamptz(0)", TimestampType(), "'x': timestamptz(0) rounds times"),
        ("x timestamp(3)", TimestampNTZType(), "'x': timestamp(3) rounds times"),
        ("x timestamptz(5)[]", ArrayType(TimestampType()), "'x': timestamptz(5)[] rounds"),
        ("x time(0)", TEXT, "'x': time(0) rounds times"),
        ("x interval(2)", TEXT, "'x': interval(2) rounds times"),
        ("x interval year to month", TEXT, "'x': interval(0) rounds times"),
        ("x text", ArrayType(TEXT), "the output has array<string>, and the table text"),
        ("x int[]", INT, "the output has int, and the table int4[]"),
        ("x int[]", ArrayType(LONG), "'x': bigint does not fit int4[]"),
        ("x text", DayTimeIntervalType(), "'x': PostgreSQL has no type for interval"),
        ("x jsonb", VariantType(), "'x': PostgreSQL has no type for variant"),
        ("x point", TEXT, "'x': string does not fit point"),
        ("y int", INT, "no column 'x'"),
        ('"X" int', INT, "no column 'x'"),
        ("x int, y int NOT NULL", INT, "'y' may not be null"),
        ("x int GENERATED ALWAYS AS IDENTITY", INT, "computes the column 'x'"),
        ("y int, x int GENERATED ALWAYS AS (y * 2) STORED", INT, "computes the column 'x'"),
        ("x int PRIMARY KEY", INT, "mode='upsert'"),
        ("x text, UNIQUE (x)", TEXT, "mode='upsert'"),
        ("x int, EXCLUDE (x WITH =)", INT, "t_x_excl"),
        ("x int, _seamark_try int", INT, "_seamark_try"),
    ],
)
def test_a_column_that_does_not_fit_is_named(
    make: Make, table: str, kind: DataType, why: str
) -> None:
    assert why in refusal(make(f"CREATE TABLE t ({table})"), schema_of(x=kind))


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ("x bigint, id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY", LONG),
        ("x bigint, id serial PRIMARY KEY, y int NOT NULL DEFAULT 7", LONG),
        ("x bigint CHECK (x > 0), y bigint GENERATED ALWAYS AS (x * 2) STORED NOT NULL", LONG),
        ("x numeric", LONG),
        ("x numeric(30,5)", DecimalType(20, 5)),
        ("x varchar(3)[]", ArrayType(ArrayType(TEXT))),
        ("x inet", TEXT),
        ("x timestamptz(6)", TimestampType()),
        ("x interval", TEXT),
        ("x interval(6)", TEXT),
    ],
)
def test_what_fits_is_accepted(make: Make, table: str, kind: DataType) -> None:
    PostgresSink(make(f"CREATE TABLE t ({table})"), "t").open(PIPELINE, SINK, schema_of(x=kind))


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (["CREATE VIEW t AS SELECT 1 AS x"], "not an ordinary table"),
        (
            ["CREATE TABLE t (x int)", "CREATE RULE r AS ON INSERT TO t DO INSTEAD NOTHING"],
            "rules",
        ),
        (["CREATE TABLE t (x int) PARTITION BY LIST (x)"], "no partition"),
        (
            [
                "CREATE TABLE all_t (x int) PARTITION BY LIST (x)",
                "CREATE TABLE t PARTITION OF all_t FOR VALUES IN (1)",
            ],
            "this is a partition",
        ),
        (["CREATE UNLOGGED TABLE t (x int)"], "unlogged: a crash of the server empties it"),
        (
            [
                "CREATE TABLE t (x int) PARTITION BY LIST (x)",
                "CREATE TABLE half (x int) PARTITION BY LIST (x)",
                "CREATE UNLOGGED TABLE rest PARTITION OF half DEFAULT",
                "ALTER TABLE t ATTACH PARTITION half DEFAULT",
            ],
            "a partition of it, is unlogged",
        ),
        (["CREATE TABLE t (x int)", "CREATE UNIQUE INDEX odd ON t ((x % 2))"], "index odd"),
        (
            ["CREATE TABLE o (x int PRIMARY KEY)", "CREATE TABLE t (x int REFERENCES o)"],
            "foreign key t_x_fkey",
        ),
    ],
)
def test_what_could_fail_or_be_lost_after_the_decision_is_refused(
    make: Make, statements: list[str], why: str
) -> None:
    assert why in refusal(make(*statements), schema_of(x=INT))


def test_a_partitioned_table_with_a_default_partition_is_accepted(make: Make) -> None:
    dsn = make(
        "CREATE TABLE rows (n bigint, word text) PARTITION BY LIST (n)",
        "CREATE TABLE ones PARTITION OF rows FOR VALUES IN (1)",
        "CREATE TABLE rest PARTITION OF rows DEFAULT",
    )
    show(opened(dsn), [1, 2], 1)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT n FROM ones").fetchall() == [(1,)]
        assert connection.execute("SELECT n FROM rest").fetchall() == [(2,)]


def test_keys_must_be_those_of_a_unique_index(make: Make) -> None:
    schema = schema_of(k=INT, v=TEXT)
    for index in ("(k) WHERE k > 0", "(k, v)", "((k + 1))"):
        dsn = make("CREATE TABLE t (k int, v text)", f"CREATE UNIQUE INDEX i ON t {index}")
        assert "unique index" in refusal(dsn, schema, mode="upsert", keys="k")
    dsn = make("CREATE TABLE t (k int, v text, UNIQUE (k) DEFERRABLE)")
    assert "unique index" in refusal(dsn, schema, mode="upsert", keys="k")
    dsn = make("CREATE TABLE t (k int, v text)", "CREATE UNIQUE INDEX i ON t (k) INCLUDE (v)")
    PostgresSink(dsn, "t", mode="upsert", keys="k").open(PIPELINE, SINK, schema)


def test_a_row_that_others_refer_to_cannot_be_deleted(make: Make) -> None:
    schema = schema_of(k=INT, gone=BooleanType())
    options: dict[str, Any] = {"mode": "upsert", "keys": "k", "delete_where": "gone"}
    dsn = make("CREATE TABLE t (k int PRIMARY KEY)", "CREATE TABLE o (k int REFERENCES t)")
    assert "o_k_fkey" in refusal(dsn, schema, **options)
    dsn = make(
        "CREATE TABLE t (k int PRIMARY KEY)",
        "CREATE TABLE o (k int REFERENCES t ON DELETE CASCADE)",
    )
    PostgresSink(dsn, "t", **options).open(PIPELINE, SINK, schema)


def test_options_that_name_the_wrong_column_are_refused(make: Make) -> None:
    dsn = make("CREATE TABLE t (k int PRIMARY KEY, v text, e int)")
    schema = schema_of(k=INT, v=TEXT)
    assert "'x' is not a column" in refusal(dsn, schema, mode="upsert", keys="x")
    wrong = refusal(dsn, schema, mode="upsert", keys="k", delete_where="v")
    assert "not a boolean column" in wrong
    dsn = make("CREATE TABLE t (k int, v text, e int, f bigint UNIQUE, g bigint)")
    assert "not a bigint column" in refusal(dsn, schema, epoch_column="e")
    assert "not a bigint column" in refusal(dsn, schema, epoch_column="missing")
    assert "mode='upsert'" in refusal(dsn, schema, epoch_column="f")
    both = refusal(dsn, schema_of(k=INT, g=LONG), epoch_column="g")
    assert "column of the output too" in both


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "replace"},
        {"mode": "upsert"},
        {"keys": "k"},
        {"mode": "upsert", "keys": ["k", "k"]},
        {"delete_where": "gone"},
        {"mode": "upsert", "keys": "k", "epoch_column": "e"},
        {"mode": "upsert", "keys": "k", "delete_where": "k"},
        {"connections": 0},
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        PostgresSink("postgresql://localhost/db", "t", **options)


def test_row_security_that_applies_is_refused(make: Make, postgres: PostgresServer) -> None:
    dsn = make(
        "DROP ROLE IF EXISTS seamark_writer",
        "CREATE ROLE seamark_writer LOGIN",
        "CREATE TABLE t (x int)",
        "GRANT ALL ON t TO seamark_writer",
        "GRANT CREATE ON SCHEMA public TO seamark_writer",
    )
    theirs = urlunsplit(
        urlsplit(dsn)._replace(netloc=f"seamark_writer@127.0.0.1:{postgres.process.port}")
    )
    sink = PostgresSink(theirs, "t")
    sink.open(PIPELINE, SINK, schema_of(x=INT))
    run(dsn, "ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    assert "row-level security" in refusal(theirs, schema_of(x=INT))
    run(
        dsn,
        "ALTER TABLE t DISABLE ROW LEVEL SECURITY",
        "REVOKE CREATE ON SCHEMA public FROM seamark_writer",
    )
    with pytest.raises(RefusedError, match="CREATE in its schema"):
        sink._begin(epoch(1), "a1")
    run(dsn, "DROP OWNED BY seamark_writer", "DROP ROLE seamark_writer")


def test_a_table_that_changes_between_runs_is_refused_by_name_or_accepted(make: Make) -> None:
    dsn = make(ROWS)
    show(opened(dsn), [1], 1)
    run(dsn, "ALTER TABLE rows ADD COLUMN more int")
    show(opened(dsn), [2], 2)
    run(dsn, "ALTER TABLE rows ADD COLUMN needed int NOT NULL DEFAULT 5")
    show(opened(dsn), [3], 3)
    run(dsn, "ALTER TABLE rows ALTER COLUMN needed DROP DEFAULT")
    assert "'needed' may not be null" in refusal(dsn, NUMBERS, "rows")
    run(dsn, "ALTER TABLE rows DROP COLUMN needed", "ALTER TABLE rows ALTER COLUMN n TYPE int")
    assert "'n': bigint does not fit int4" in refusal(dsn, NUMBERS, "rows")
    run(dsn, "ALTER TABLE rows ALTER COLUMN n TYPE numeric")
    show(opened(dsn), [4], 4)
    run(dsn, "ALTER TABLE rows DROP COLUMN word")
    assert "no column 'word'" in refusal(dsn, NUMBERS, "rows")
    assert opened(make(ROWS)).newest() is None


def test_a_missing_table_and_a_name_that_is_none_are_told(make: Make) -> None:
    dsn = make("CREATE TABLE t (n bigint, word text)")
    for table in ("T", ("other", "t"), "other.t"):
        with pytest.raises(CheckpointNotFoundError, match="no table"):
            opened(dsn, table)
    for wrong in ("", "a.b.c", ".t", "t.", ("", "t"), "a\0b"):
        with pytest.raises(InvalidInputError, match="name of a table"):
            PostgresSink(dsn, wrong)
    for wrong in ("x" * 64, "ü" * 32, ("s" * 64, "t")):
        with pytest.raises(InvalidInputError, match="63 bytes"):
            PostgresSink(dsn, wrong)


@pytest.mark.parametrize(
    ("schema", "name", "column"),
    [
        ("public", 'Sel"ect', 'Or"der'),
        ("My Schema", "from", "select"),
        ("a.b", "c.d", "e.f"),
        ("schéma", "таблица", "列"),
        ("%s", "{}", "100%"),
        ("s" * 63, "t" * 63, "c" * 63),
        ("ü" * 31, "'; DROP TABLE x; --", "a\nb"),
    ],
)
def test_hostile_names_are_quoted(make: Make, schema: str, name: str, column: str) -> None:
    def q(text: str) -> str:
        return '"' + text.replace('"', '""') + '"'

    table = f"{q(schema)}.{q(name)}"
    dsn = make(
        f"CREATE SCHEMA IF NOT EXISTS {q(schema)}",
        f"CREATE TABLE {table} (n bigint UNIQUE, word text, {q(column)} bigint)",
        f"CREATE TABLE {q(schema)}.appended (n bigint, word text, {q(column)} bigint)",
    )
    show(opened(dsn, (schema, name), mode="upsert", keys="n"), [1, 2], 1)
    sink = opened(dsn, (schema, "appended"), epoch_column=column)
    for number in (1, 2):
        show(sink, [number], number)
    assert sink.unpublish_after(1) == [2]
    with psycopg.connect(dsn) as connection:
        found = connection.execute(f"SELECT n FROM {table} ORDER BY n".encode()).fetchall()
        assert found == [(1,), (2,)]
        query = f"SELECT n, {q(column)} FROM {q(schema)}.appended".replace("%", "%%")
        assert connection.execute(query.encode(), ()).fetchall() == [(1, 1)]


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://[",
        "host=a nonsense",
        "postgresql://me:hunter2@more@127.0.0.1:1/db",
        "postgresql://me:hunter2/more@127.0.0.1:1/db",
        "postgresql://me:99/hunter2@127.0.0.1:1/db",
        "host=127.0.0.1 port=hunter2 dbname=db",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(InvalidInputError, match="address") as caught:
        PostgresSink(address, "t")
    assert "hunter2" not in str(caught.value)
    assert "more" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:hunter2@127.0.0.1:1/db",
        "host=127.0.0.1 port=1 user=me password=hunter2 dbname=db",
        "postgresql://127.0.0.1:1/db?user=me&password=hunter2",
    ],
)
def test_no_password_is_shown(address: str) -> None:
    sink = PostgresSink(address, "t")
    shown = [str(sink.describe()), repr(sink), repr(sink._address), repr(sink._ledger)]
    for call in (sink.leftovers, sink.newest):
        with pytest.raises(SeamarkError) as caught:
            call()
        shown += [str(caught.value), repr(caught.value)]
    assert not any("hunter2" in text for text in shown)


def test_two_outputs_cannot_share_a_column_for_the_epoch(make: Make) -> None:
    dsn = make(ROWS)
    first, second = (PostgresSink(dsn, "rows", epoch_column="at_epoch") for _ in range(2))
    first.open(PIPELINE, SINK, NUMBERS)
    second.open(PIPELINE, "other", NUMBERS)
    show(first, [1], 1)
    with pytest.raises(RefusedError, match="output 'bars' of pipeline 'trades'"):
        second.open(PIPELINE, "other", NUMBERS)
    with pytest.raises(RefusedError, match="output 'bars' of pipeline 'trades'"):
        second.unpublish_after(0)


def test_two_columns_of_one_name_are_refused() -> None:
    schema = StructType([*schema_of(x=INT).fields, *schema_of(x=INT).fields])
    with pytest.raises(RefusedError, match="named 'x'"):
        check_columns(schema, [TableColumn("x", "int4")], "here")
