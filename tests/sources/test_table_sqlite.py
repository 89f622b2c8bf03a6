"""A table in SQLite: types, names, restarts, and a past that is gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import DataType, DoubleType, StringType, StructType, TimestampType

from seamark.errors import InvalidInputError, PositionUnavailable, RefusedError, SeamarkError
from seamark.sources import TableSource
from seamark.sources.offsets import BEGINNING
from seamark.sources.recognition import other_origins
from seamark.sources.table.types import converter_to, from_postgres, from_sqlite
from tests.sources.support.tables import TableStream, options_of

CREATE = "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, v TEXT)"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table.db")


@pytest.fixture
def db(path: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what the streams of a test opened: elsewhere their process ends."""
    opened = []
    connect = sqlite3.connect

    def noted(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        opened.append(connection)
        return connection

    monkeypatch.setattr(sqlite3, "connect", noted)
    yield
    for connection in opened:
        connection.close()


def fill(db: sqlite3.Connection, count: int) -> None:
    db.executemany("INSERT INTO t (v) VALUES (?)", [(f"v{n}",) for n in range(count)])


def test_every_row_comes_once_in_the_order_of_the_key(db: sqlite3.Connection, path: str) -> None:
    db.execute(CREATE)
    fill(db, 25)
    stream = TableStream(options_of("sqlite3", path))
    assert [len(stream.epoch()) for _ in range(4)] == [10, 10, 5, 0]
    fill(db, 2)
    assert stream.drain() == [(26, "v0"), (27, "v1")]
    assert stream.offset.sequence == 27
    assert stream.offset.position == 27


def test_a_restart_goes_on_after_the_last_key(db: sqlite3.Connection, path: str) -> None:
    db.execute(CREATE)
    fill(db, 5)
    first = TableStream(options_of("sqlite3", path))
    first.drain()
    fill(db, 3)
    second = TableStream(options_of("sqlite3", path), first.offset)
    assert [row[0] for row in second.drain()] == [6, 7, 8]
    assert second.offset.sequence == 8


def test_values_of_all_types_and_null(db: sqlite3.Connection, path: str) -> None:
    db.execute(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, f REAL, s VARCHAR(9), b BOOLEAN, x BLOB, "
        "d DECIMAL(10,2), day DATE, at TIMESTAMP)"
    )
    db.execute(
        "INSERT INTO t VALUES (1, 2.5, 'ä', 1, x'00ff', '1.50', '2026-01-02', "
        "'2026-01-02 03:04:05.000006'), (9000000000, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    stream = TableStream(options_of("sqlite3", path))
    assert stream.schema.simpleString() == (
        "struct<id:bigint,f:double,s:string,b:boolean,x:binary,d:decimal(10,2),day:date,"
        "at:timestamp_ntz>"
    )
    at = datetime(2026, 1, 2, 3, 4, 5, 6)  # noqa: DTZ001 - a wall clock
    everything = (1, 2.5, "ä", True, b"\x00\xff", Decimal("1.50"), date(2026, 1, 2), at)
    assert stream.drain() == [everything, (9000000000, *[None] * 7)]


def test_some_columns_in_another_order(db: sqlite3.Connection, path: str) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b TEXT, odd)")
    db.execute("INSERT INTO t VALUES (1, 'a', 'b', 'c')")
    assert TableStream(options_of("sqlite3", path, columns="b, a")).drain() == [("b", "a")]
    with pytest.raises(InvalidInputError, match=r"'odd' is ''.*no obvious type"):
        TableStream(options_of("sqlite3", path))
    with pytest.raises(InvalidInputError, match="no column 'c'"):
        TableStream(options_of("sqlite3", path, columns="c"))
    given = StructType().add("odd", StringType())
    assert TableStream(options_of("sqlite3", path), schema=given).drain() == [("c",)]


HOSTILE = ['a"; DROP TABLE x; --', "a b", "%s", "{}", "?", ":v1", "Größe", "select", "a.b", "''"]


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_of_a_table_and_a_column(db: sqlite3.Connection, path: str, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    db.execute(f"CREATE TABLE {quoted} ({quoted} INTEGER PRIMARY KEY, v TEXT)")
    db.execute(f"INSERT INTO {quoted} VALUES (7, 'x')")
    stream = TableStream(options_of("sqlite3", path, table=f"main.{quoted}", key=name))
    assert stream.drain() == [(7, "x")]
    assert stream.schema.fieldNames() == [name, "v"]


def test_a_transaction_that_is_open_holds_nothing_back(db: sqlite3.Connection, path: str) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(CREATE)
    fill(db, 2)
    db.execute("BEGIN IMMEDIATE")
    fill(db, 1)
    stream = TableStream(options_of("sqlite3", path))
    assert [row[0] for row in stream.drain()] == [1, 2]
    db.execute("COMMIT")
    assert [row[0] for row in stream.drain()] == [3]


def test_available_now_reads_what_was_there_when_it_began(
    db: sqlite3.Connection, path: str
) -> None:
    db.execute(CREATE)
    fill(db, 15)
    stream = TableStream(options_of("sqlite3", path))
    stream.reader.stop_at_present()
    fill(db, 5)
    assert [row[0] for row in stream.drain()] == list(range(1, 16))


def test_a_delay_that_was_asked_for_is_kept_here_too(db: sqlite3.Connection, path: str) -> None:
    db.execute(CREATE)
    fill(db, 1)
    assert TableStream(options_of("sqlite3", path, settle_seconds="60")).drain() == []


# a past that is gone, or changed


def crashed(db: sqlite3.Connection, path: str) -> TableStream:
    """A process that planned its first epoch of ten rows and died."""
    db.execute(CREATE)
    fill(db, 15)
    stream = TableStream(options_of("sqlite3", path))
    assert len(stream.epoch()) == 10
    return stream


def again(stream: TableStream, path: str) -> list[Any]:
    """The same epoch in a new process."""
    reader = TableStream(options_of("sqlite3", path)).reader
    return reader.rows_between(BEGINNING, stream.offset)


def test_an_epoch_is_read_again_although_rows_were_added(db: sqlite3.Connection, path: str) -> None:
    stream = crashed(db, path)
    fill(db, 100)
    assert [row[0] for row in again(stream, path)] == list(range(1, 11))


def test_a_deleted_row_is_told(db: sqlite3.Connection, path: str) -> None:
    stream = crashed(db, path)
    db.execute("DELETE FROM t WHERE id = 10")
    with pytest.raises(PositionUnavailable, match="1 of 10 rows"):
        again(stream, path)


def test_an_updated_row_is_told(db: sqlite3.Connection, path: str) -> None:
    stream = crashed(db, path)
    db.execute("UPDATE t SET v = 'other' WHERE id = 4")
    with pytest.raises(RefusedError, match="SHA-256"):
        again(stream, path)


def test_a_row_that_appears_among_those_read_is_told(db: sqlite3.Connection, path: str) -> None:
    stream = crashed(db, path)
    db.execute("INSERT INTO t (id, v) VALUES (-1, 'late')")
    with pytest.raises(RefusedError, match="more rows now"):
        again(stream, path)


def test_a_table_that_was_emptied_is_told_before_new_rows_get_old_keys(
    db: sqlite3.Connection, path: str
) -> None:
    stream = crashed(db, path)
    db.execute("DELETE FROM t")
    with pytest.raises(
        PositionUnavailable, match="read up to key 10, and its newest is None"
    ) as it:
        stream.drain()
    assert it.value.requested == b"10"
    db.execute("INSERT INTO t (id, v) VALUES (3, 'reset')")
    with pytest.raises(PositionUnavailable, match="newest is 3"):
        TableStream(options_of("sqlite3", path), stream.offset).drain()


def test_old_rows_may_be_deleted_as_long_as_the_newest_stays(
    db: sqlite3.Connection, path: str
) -> None:
    db.execute(CREATE)
    fill(db, 8)
    stream = TableStream(options_of("sqlite3", path))
    stream.drain()
    db.execute("DELETE FROM t WHERE id < 8")
    assert stream.drain() == []
    fill(db, 1)
    assert [row[0] for row in stream.drain()] == [9]


# mistakes


def test_a_key_that_is_there_twice_is_refused_even_across_a_limit(
    db: sqlite3.Connection, path: str
) -> None:
    db.execute("CREATE TABLE t (id INTEGER, v TEXT)")
    db.executemany("INSERT INTO t VALUES (?, 'x')", [(n,) for n in [*range(1, 11), 10]])
    with pytest.raises(RefusedError, match="two rows with the key 10"):
        TableStream(options_of("sqlite3", path)).drain()


def test_a_column_that_was_renamed_meanwhile_is_told(db: sqlite3.Connection, path: str) -> None:
    db.execute(CREATE)
    fill(db, 1)
    stream = TableStream(options_of("sqlite3", path))
    stream.drain()
    db.execute("ALTER TABLE t RENAME COLUMN v TO w")
    db.execute("INSERT INTO t (w) VALUES ('two')")
    with pytest.raises(SeamarkError, match=r"no such column: t\.v"):
        stream.drain()  # SQLite would take "v" for the text 'v'


@pytest.mark.parametrize("table", ["t", "main.t"])
@pytest.mark.parametrize(("key", "column"), [("id", "vv"), ("idd", "v")])
def test_a_misspelt_column_is_told(
    db: sqlite3.Connection, path: str, table: str, key: str, column: str
) -> None:
    db.execute(CREATE)
    fill(db, 1)
    given = StructType().add(column, StringType())
    stream = TableStream(options_of("sqlite3", path, table=table, key=key), schema=given)
    with pytest.raises(SeamarkError, match=r"no such column: t\.(vv|idd)"):
        stream.drain()


@pytest.mark.parametrize("others", [[], [1, 2]])
@pytest.mark.parametrize("options", [{}, {"settle_seconds": "60"}])
def test_a_row_without_a_key_is_refused_at_the_start(
    db: sqlite3.Connection, path: str, others: list[int], options: dict[str, str]
) -> None:
    db.execute("CREATE TABLE t (id INT UNIQUE, v TEXT)")
    db.executemany("INSERT INTO t VALUES (?, 'x')", [(key,) for key in [*others, None]])
    with pytest.raises(RefusedError, match=r"key is NULL(.|\n)*NOT NULL"):
        TableStream(options_of("sqlite3", path, **options)).drain()
    with pytest.raises(RefusedError, match="key is NULL"):
        TableStream(options_of("sqlite3", path, **options)).reader.stop_at_present()


def test_a_row_without_a_key_is_told_with_the_next_that_has_one(
    db: sqlite3.Connection, path: str
) -> None:
    db.execute("CREATE TABLE t (id INT UNIQUE, v TEXT)")
    stream = TableStream(options_of("sqlite3", path))
    assert stream.drain() == []
    db.execute("INSERT INTO t VALUES (NULL, 'x'), (1, 'y')")
    with pytest.raises(RefusedError, match="key is NULL"):
        stream.drain()
    db.execute("UPDATE t SET id = 2 WHERE id IS NULL")
    assert stream.drain() == [(1, "y"), (2, "x")]


@pytest.mark.parametrize("key", ["'a'", "1.5", "x'00'"])
def test_a_key_that_is_not_a_whole_number_is_refused(
    db: sqlite3.Connection, path: str, key: str
) -> None:
    db.execute("CREATE TABLE t (id BLOB, v TEXT)")
    db.execute(f"INSERT INTO t VALUES ({key}, 'x')")
    with pytest.raises(InvalidInputError, match="not a whole number"):
        TableStream(options_of("sqlite3", path)).drain()


def test_a_value_that_is_not_what_the_column_says_is_refused(
    db: sqlite3.Connection, path: str
) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)")
    db.execute("INSERT INTO t VALUES (1, 'seven')")
    with pytest.raises(InvalidInputError, match=r"'n' has a value of the type str.*not bigint"):
        TableStream(options_of("sqlite3", path)).drain()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tabel": "t"}, "no option 'tabel'"),
        ({"driver": ""}, "needs the option 'driver'"),
        ({"table": ""}, "needs the option 'table'"),
        ({"key": ""}, "needs the option 'key'"),
        ({"dsn_env": "X"}, "one of the options dsn, dsn_env and connect"),
        ({"connect": "host=x"}, "must be a JSON object"),
        ({"settle_seconds": "soon"}, "number of seconds"),
        ({"settle_timeout": "-1"}, "number of seconds"),
        ({"max_rows_per_epoch": "0"}, "above 0"),
    ],
)
def test_wrong_options_are_told_at_once(changes: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        TableSource({**options_of("sqlite3", "x"), **changes})


@pytest.mark.parametrize("driver", ["no_such_driver", "json"])
def test_what_is_no_driver_is_told(driver: str) -> None:
    with pytest.raises(InvalidInputError, match=driver):
        TableStream(options_of(driver, "x"), schema=StructType().add("v", "string")).drain()


def test_a_table_that_is_not_there_is_told(db: sqlite3.Connection, path: str) -> None:
    db.execute(CREATE)
    with pytest.raises(InvalidInputError, match='no table "u"'):
        TableStream(options_of("sqlite3", path, table="u"))
    stream = TableStream(
        options_of("sqlite3", path, table="u"), schema=StructType().add("v", "string")
    )
    with pytest.raises(SeamarkError, match="refused a query") as it:
        stream.drain()
    assert "no such table: u" in str(it.value)


# connecting


def test_an_address_can_come_from_the_environment(
    db: sqlite3.Connection, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute(CREATE)
    fill(db, 1)
    options = {"driver": "sqlite3", "dsn_env": "SEAMARK_TEST_DSN", "table": "t", "key": "id"}
    with pytest.raises(InvalidInputError, match="'SEAMARK_TEST_DSN' is not set"):
        TableStream(options)
    monkeypatch.setenv("SEAMARK_TEST_DSN", path)
    assert len(TableStream(options).drain()) == 1
    monkeypatch.setenv("SEAMARK_TEST_DSN", f'{{"database": "{path}"}}')
    assert len(TableStream({**options, "connect": '{"timeout": 3}'}).drain()) == 1


def test_no_word_of_an_address_is_in_an_error() -> None:
    options = options_of("sqlite3", "file:/nowhere/hunter2?mode=ro&key=s3cret-one")
    with pytest.raises(SeamarkError, match="cannot be reached") as it:
        TableStream({**options, "connect": '{"uri": true, "sesame": "0pen"}'})
    assert it.value.__cause__ is None
    for secret in ("hunter2", "s3cret-one", "0pen", "sesame"):
        assert secret not in str(it.value)


def test_a_connection_that_was_cut_is_opened_again(db: sqlite3.Connection, path: str) -> None:
    db.execute(CREATE)
    fill(db, 1)
    stream = TableStream(options_of("sqlite3", path))
    stream.drain()
    stream.source._database._connection.close()
    fill(db, 1)
    assert [row[0] for row in stream.drain()] == [2]


# types


@pytest.mark.parametrize(
    ("declared", "category", "wanted"),
    [
        ("smallint", "b", "smallint"),
        ("numeric(12,3)", "b", "decimal(12,3)"),
        ("numeric(5)", "b", "decimal(5,0)"),
        ("numeric", "b", "decimal(38,18)"),
        ("character varying(20)", "b", "string"),
        ("timestamp(3) without time zone", "b", "timestamp_ntz"),
        ("timestamp with time zone", "b", "timestamp"),
        ("mood", "e", "string"),
        ("numeric(50,2)", "b", None),
        ("integer[]", "b", None),
        ("point", "b", None),
    ],
)
def test_types_of_postgresql(declared: str, category: str, wanted: str | None) -> None:
    found = from_postgres(declared, category)
    assert (found.simpleString() if found else None) == wanted


@pytest.mark.parametrize(
    ("declared", "wanted"),
    [
        ("UNSIGNED BIG INT", "bigint"),
        ("DATETIME", "timestamp_ntz"),
        ("NUMERIC", "decimal(38,18)"),
        ("DECIMAL(7, 3)", "decimal(7,3)"),
        ("", None),
        ("geometry", None),
    ],
)
def test_types_of_sqlite(declared: str, wanted: str | None) -> None:
    found = from_sqlite(declared)
    assert (found.simpleString() if found else None) == wanted


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (TimestampType(), datetime(2026, 1, 1)),  # noqa: DTZ001 - which moment would that be?
        (StringType(), 5),
        (DoubleType(), "5"),
    ],
)
def test_nothing_is_bent_to_fit(wanted: DataType, value: Any) -> None:
    with pytest.raises(InvalidInputError, match="'c' has a value"):
        converter_to(wanted, "c")(value)


def test_moments_are_the_same_in_every_zone() -> None:
    moment = converter_to(TimestampType(), "c")(datetime.fromisoformat("2026-01-01T02:00:00+02:00"))
    assert moment == datetime(2026, 1, 1, tzinfo=UTC)
    assert moment.tzinfo is UTC


# which table it is


def test_a_database_in_another_file_has_another_id(
    db: sqlite3.Connection, path: str, tmp_path: Path
) -> None:
    db.execute(CREATE)
    first = TableSource(options_of("sqlite3", path)).place_id()
    assert first is not None
    db.execute("INSERT INTO t (v) VALUES ('x')")
    db.execute("VACUUM")
    assert TableSource(options_of("sqlite3", path, table="main.t")).place_id() == first
    other = str(tmp_path / "other.db")
    assert TableSource(options_of("sqlite3", other)).place_id() not in (None, first)
    assert TableSource(options_of("sqlite3", ":memory:")).place_id() is None


def test_a_source_that_is_in_another_database_is_told_and_nothing_else_is() -> None:
    before = {"orders": {"origin": "table-1-2-3"}, "topic": {"t": "id"}, "old": "odd"}
    assert other_origins(before, {"orders": {"origin": "table-1-2-3"}}) == []
    assert other_origins(before, {"new": {"origin": "a"}, "old": {"origin": "b"}}) == []
    [told] = other_origins(before, {"orders": {"origin": "table-1-9-3"}})
    assert "source 'orders' reads another table than before" in told
