"""A table in PostgreSQL: types, names, restarts, and a past that is gone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal

import psycopg
import pytest

from seamark.errors import InvalidInputError, PositionUnavailable, RefusedError, SeamarkError
from seamark.sources import TableSource
from tests.sources.support.sessions import CREATE, INSERT, Connect, keys, ready, run
from tests.sources.support.tables import TableStream, options_of
from tests.support.databases import PostgresServer

# restarts


def test_an_epoch_is_read_again_without_waiting_for_those_who_write_now(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    session = connect()
    ready(session, CREATE, INSERT, INSERT)
    stream = streams()
    beginning = stream.offset
    assert keys(stream) == [1, 2]
    run(session, INSERT)
    assert [row[0] for row in streams().reader.rows_between(beginning, stream.offset)] == [1, 2]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ("DELETE FROM t WHERE id = 1", PositionUnavailable, "1 of 2 rows"),
        ("UPDATE t SET v = 'y' WHERE id = 1", RefusedError, "SHA-256"),
        ("TRUNCATE t", PositionUnavailable, "2 of 2 rows"),
    ],
)
def test_a_changed_past_is_told(
    connect: Connect,
    streams: Callable[..., TableStream],
    change: str,
    error: type[SeamarkError],
    words: str,
) -> None:
    session = connect()
    ready(session, CREATE, INSERT, INSERT)
    stream = streams()
    beginning = stream.offset
    stream.drain()
    ready(session, change)
    with pytest.raises(error, match=words):
        streams().reader.rows_between(beginning, stream.offset)


def test_a_table_that_was_emptied_is_told(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    session = connect()
    ready(session, CREATE, INSERT, INSERT)
    stream = streams()
    stream.drain()
    ready(session, "TRUNCATE t RESTART IDENTITY", INSERT)
    with pytest.raises(PositionUnavailable, match="read up to key 2, and its newest is 1"):
        stream.drain()


def test_a_connection_that_the_server_ended_is_opened_again(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    session = connect()
    ready(session, CREATE, INSERT)
    stream = streams()
    stream.drain()
    others = "datname = current_database() AND pid != pg_backend_pid()"
    ready(session, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}", INSERT)
    assert keys(stream) == [2]


# keys


@pytest.mark.parametrize("key", ["NaN", "Infinity", "-Infinity", "1.5"])
def test_a_numeric_key_that_is_no_whole_number_is_refused(
    connect: Connect, streams: Callable[..., TableStream], key: str
) -> None:
    session = connect()
    if "Infinity" in key and session.info.server_version < 14_00_00:
        pytest.skip("numbers are finite before PostgreSQL 14")
    ready(session, "CREATE TABLE t (id numeric, v text)", f"INSERT INTO t VALUES ('{key}', 'x')")
    with pytest.raises(InvalidInputError, match=f"'id' .* is not a whole number but {key}"):
        streams(settle_seconds="0").drain()


def test_a_row_without_a_key_is_refused(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    ready(
        connect(),
        "CREATE TABLE t (id bigserial UNIQUE, v text)",
        "ALTER TABLE t ALTER id DROP NOT NULL",
        "INSERT INTO t VALUES (NULL, 'x')",
    )
    with pytest.raises(RefusedError, match="key is NULL"):
        streams().drain()


# types and names


@pytest.mark.parametrize("name", ["w", "to_json"])  # t.to_json would be to_json(t)
def test_a_column_that_was_renamed_meanwhile_is_told(
    connect: Connect, streams: Callable[..., TableStream], name: str
) -> None:
    session = connect()
    ready(session, f"CREATE TABLE t (id bigserial, {name} text)")
    stream = streams()
    assert stream.drain() == []
    ready(session, f"ALTER TABLE t RENAME {name} TO other", "INSERT INTO t (other) VALUES ('x')")
    with pytest.raises(SeamarkError, match=f'column "{name}" does not exist'):
        stream.drain()


def test_values_of_all_types_and_null(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    ready(
        connect(),
        "SET TimeZone = 'Asia/Tokyo'",
        "CREATE TYPE mood AS ENUM ('fine')",
        "CREATE TABLE t (id serial, i2 smallint, r real, f double precision, n numeric(10,2), "
        "s varchar(9), b boolean, x bytea, day date, at timestamp, moment timestamptz, u uuid, "
        "j jsonb, m mood)",
        "INSERT INTO t VALUES (DEFAULT, 2, 0.5, 2.5, 1.50, 'ä', true, '\\x00ff', '2026-01-02', "
        "'2026-01-02 03:04:05.000006', '2026-01-02 03:04:05+00', "
        "'00000000-0000-0000-0000-000000000001', '{\"b\": 1, \"a\": [null]}', 'fine')",
        "INSERT INTO t (id) VALUES (DEFAULT)",
    )
    stream = streams()
    assert stream.schema.simpleString() == (
        "struct<id:int,i2:smallint,r:float,f:double,n:decimal(10,2),s:string,b:boolean,x:binary,"
        "day:date,at:timestamp_ntz,moment:timestamp,u:string,j:string,m:string>"
    )
    at = datetime(2026, 1, 2, 3, 4, 5, 6)  # noqa: DTZ001 - a wall clock
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    uuid = "00000000-0000-0000-0000-000000000001"
    rows = stream.drain()
    assert rows[0] == (
        *(1, 2, 0.5, 2.5, Decimal("1.50"), "ä", True, b"\x00\xff", date(2026, 1, 2), at, moment),
        *(uuid, '{"a": [null], "b": 1}', "fine"),
    )
    assert rows[1] == (2, *[None] * 13)


def test_a_column_without_an_obvious_type_can_be_left_out(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    ready(connect(), "CREATE TABLE t (id serial, p point)", "INSERT INTO t (p) VALUES ('(1,2)')")
    with pytest.raises(InvalidInputError, match=r"'p' is 'point'.*no obvious type"):
        streams()
    assert streams(columns="id").drain() == [(1,)]


@pytest.mark.parametrize("name", ['a"; DROP TABLE x; --', "%s %(v1)s", "{}", "Mixed Case", "a.b"])
def test_any_name_of_a_table_and_a_column(
    connect: Connect, streams: Callable[..., TableStream], name: str
) -> None:
    session = connect()
    quoted = '"' + name.replace('"', '""') + '"'
    ready(
        session,
        f"CREATE SCHEMA {quoted}",
        f"CREATE TABLE {quoted}.{quoted} ({quoted} bigserial, v text)",
        f"INSERT INTO {quoted}.{quoted} (v) VALUES ('x')",
    )
    writer = connect()
    run(writer, f"INSERT INTO {quoted}.{quoted} (v) VALUES ('late')")
    ready(session, f"INSERT INTO {quoted}.{quoted} (v) VALUES ('y')")
    stream = streams(table=f"{quoted}.{quoted}", key=name)
    assert stream.drain() == []
    writer.commit()
    assert stream.drain() == [(1, "x"), (2, "late"), (3, "y")]


def test_no_password_is_in_an_error(dsn: str) -> None:
    secret = dsn.replace("postgres@", "postgres:hunter2-is-a-secret@") + "_not_there"
    with pytest.raises(SeamarkError, match="cannot be reached") as it:
        TableStream(options_of("psycopg", secret))
    assert "does not exist" in str(it.value)
    assert "hunter2" not in str(it.value)
    with pytest.raises(SeamarkError) as malformed:
        TableStream(options_of("psycopg", "password=hunter2 hunter3"))
    assert "hunter" not in str(malformed.value)


# which table it is


def test_a_table_keeps_its_id_and_another_one_of_its_name_has_another(
    connect: Connect, postgres: PostgresServer, dsn: str
) -> None:
    ready(connect(), CREATE)
    first = TableSource(options_of("psycopg", dsn)).place_id()
    assert first is not None
    ready(connect(), INSERT, "ALTER TABLE t ADD COLUMN w text", "ANALYZE t")
    assert TableSource(options_of("psycopg", dsn)).place_id() == first
    ready(connect(), "DROP TABLE t", CREATE)
    assert TableSource(options_of("psycopg", dsn)).place_id() not in (None, first)
    other = postgres.new_database()
    run_in(other, CREATE)
    assert TableSource(options_of("psycopg", other)).place_id() not in (None, first)


def run_in(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn) as session:
        session.execute(statement.encode())
