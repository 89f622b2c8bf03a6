"""A table in PostgreSQL and real transactions that overlap: no row is lost, none waits long."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from seamark.errors import InvalidInputError, PositionUnavailable, RefusedError, SeamarkError
from tests.sources.tables import TableStream, options_of

if TYPE_CHECKING:
    import psycopg

    from tests.databases import PostgresServer

Connect = Callable[[], "psycopg.Connection[Any]"]
CREATE = "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text)"
INSERT = "INSERT INTO t (v) VALUES ('x') RETURNING id"


@pytest.fixture
def dsn(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def connect(dsn: str) -> Iterator[Connect]:
    """Sessions, each with its own transactions; all are closed in the end."""
    import psycopg

    with ExitStack() as stack:
        yield lambda: stack.enter_context(psycopg.connect(dsn))


@pytest.fixture
def streams(dsn: str) -> Iterator[Callable[..., TableStream]]:
    """Processes that read the table."""
    opened: list[TableStream] = []

    def stream(*args: Any, **options: str) -> TableStream:
        opened.append(TableStream(options_of("psycopg", dsn, **options), *args))
        return opened[-1]

    yield stream
    for each in opened:
        each.source._database.close()


def run(session: psycopg.Connection[Any], *statements: str) -> Any:
    """Run statements in the session's transaction; the first value of the last one, if any."""
    cursor = session.cursor()
    for statement in statements:
        cursor.execute(statement.encode())
    row = cursor.fetchone() if cursor.description else None
    return row[0] if row else None


def ready(session: psycopg.Connection[Any], *statements: str) -> None:
    """Run statements and commit them."""
    run(session, *statements)
    session.commit()


def keys(stream: TableStream) -> list[int]:
    return [row[0] for row in stream.drain()]


def crossed(connect: Connect) -> tuple[psycopg.Connection[Any], psycopg.Connection[Any]]:
    """T1 takes key 1, T2 takes key 2 and commits; T1 is still open."""
    first, second = connect(), connect()
    assert run(first, INSERT) == 1
    assert run(second, INSERT) == 2
    second.commit()
    return first, second


# transactions that commit in reverse order


def test_a_row_that_commits_after_a_later_key_is_not_lost(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    ready(connect(), CREATE)
    first, _ = crossed(connect)
    stream = streams()
    assert keys(stream) == []
    first.commit()
    assert keys(stream) == [1, 2]


def test_a_reader_that_does_not_wait_loses_it(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    # the same history: what the test above proves is not proven by chance
    ready(connect(), CREATE)
    first, _ = crossed(connect)
    stream = streams(settle_seconds="0")
    assert keys(stream) == [2]
    first.commit()
    assert keys(stream) == []


def test_an_old_transaction_that_takes_a_new_key_is_waited_for(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    # its xid is older than that of any visible row, so comparing xmin with the oldest running
    # transaction of a *later* look would let the reader pass it by
    ready(connect(), CREATE, "CREATE TABLE other (n int)")
    old, second, third = connect(), connect(), connect()
    run(old, "INSERT INTO other VALUES (1)")  # takes its xid now
    assert run(second, INSERT) == 1
    assert run(old, INSERT) == 2
    assert run(third, INSERT) == 3
    second.commit()
    third.commit()
    stream = streams()
    assert keys(stream) == []
    old.commit()
    assert keys(stream) == [1, 2, 3]


def test_a_transaction_that_rolls_back_is_not_waited_for_any_more(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    ready(connect(), CREATE)
    first, _ = crossed(connect)
    stream = streams()
    assert keys(stream) == []
    first.rollback()
    assert keys(stream) == [2]


def test_writers_that_never_rest_do_not_starve_the_reader(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    ready(connect(), CREATE)
    writers = [connect(), connect(), connect()]
    stream = streams()
    for writer in writers:
        run(writer, INSERT)
    read: list[int] = []
    for turn in range(30):
        writer = writers[turn % 3]  # the other two are in the middle of a transaction
        writer.commit()
        run(writer, INSERT)
        read += keys(stream)
    assert len(read) >= 20
    for writer in writers:
        writer.commit()
    read += keys(stream)
    assert read == list(range(1, 34))


def test_a_transaction_that_lasts_holds_back_only_what_came_after_it(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    ready(connect(), CREATE, INSERT, INSERT)
    stream = streams()
    assert keys(stream) == [1, 2]
    first, second = connect(), connect()
    run(first, INSERT)
    ready(second, INSERT)
    assert keys(stream) == []
    first.commit()
    assert keys(stream) == [3, 4]


@pytest.mark.parametrize(
    "harmless", ["SELECT * FROM t", "SELECT * FROM t FOR UPDATE", "INSERT INTO other VALUES (1)"]
)
def test_transactions_that_add_no_rows_hold_nothing_back(
    connect: Connect, streams: Callable[..., TableStream], harmless: str
) -> None:
    ready(connect(), CREATE, INSERT, "CREATE TABLE other (n int)")
    run(connect(), harmless)
    assert keys(streams()) == [1]


def test_the_reader_leaves_no_transaction_open(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    session = connect()
    ready(session, CREATE, INSERT)
    streams().drain()
    busy = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%' AND datname = "
    assert run(session, busy + "current_database()") == 0
    session.rollback()


def test_many_sessions_at_once_and_every_row_exactly_once(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    ready(connect(), CREATE)
    sessions = [connect() for _ in range(4)]

    def write(session: psycopg.Connection[Any], number: int) -> None:
        for turn in range(25):
            run(session, INSERT)
            time.sleep(0.001 * ((turn + number) % 4))
            session.rollback() if turn % 5 == number else session.commit()

    threads = [threading.Thread(target=write, args=(s, n)) for n, s in enumerate(sessions)]
    for thread in threads:
        thread.start()
    stream = streams()
    read: list[int] = []
    while any(thread.is_alive() for thread in threads):
        read += keys(stream)
    read += keys(stream)
    with connect().cursor() as cursor:
        cursor.execute("SELECT id FROM t ORDER BY id")
        assert read == [key for (key,) in cursor]
    assert len(read) == 4 * 25 - 4 * 5


# the table's family


@pytest.mark.parametrize("into", ["t", "t_low"])
def test_partitions_are_looked_at_too(
    connect: Connect, streams: Callable[..., TableStream], into: str
) -> None:
    ready(
        connect(),
        "CREATE TABLE t (id bigserial, v text, k int) PARTITION BY LIST (k)",
        "CREATE TABLE t_low PARTITION OF t FOR VALUES IN (1)",
        "CREATE TABLE t_high PARTITION OF t FOR VALUES IN (2)",
    )
    first, second = connect(), connect()
    assert run(first, f"INSERT INTO {into} (v, k) VALUES ('x', 1) RETURNING id") == 1
    ready(second, "INSERT INTO t (v, k) VALUES ('x', 2)")
    stream = streams()
    assert keys(stream) == []
    first.commit()
    assert keys(stream) == [1, 2]


# transactions that have another name after a while


def test_a_prepared_transaction_is_waited_for(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    session = connect()
    ready(session, CREATE)
    if run(session, "SHOW max_prepared_transactions") == "0":
        pytest.skip("this server has max_prepared_transactions = 0")
    session.rollback()
    first, _ = crossed(connect)
    stream = streams()
    assert keys(stream) == []
    ready(first, "PREPARE TRANSACTION 'later'")
    assert keys(stream) == []
    first.autocommit = True
    run(first, "COMMIT PREPARED 'later'")
    assert keys(stream) == [1, 2]


# where locks do not tell


@pytest.mark.parametrize(
    ("create", "why"),
    [
        ("CREATE TABLE t (id bigint PRIMARY KEY, v text)", "no sequence of its own"),
        ("CREATE TABLE u (id bigserial, v text); CREATE VIEW t AS SELECT * FROM u", "no table"),
        (CREATE + "; ALTER TABLE t ALTER id SET CACHE 20", "keeps 20 keys for later"),
        (CREATE + "; ALTER TABLE t ALTER id SET CYCLE", "does not grow"),
    ],
)
def test_a_table_whose_keys_cannot_be_foreseen_needs_a_delay(
    connect: Connect, streams: Callable[..., TableStream], create: str, why: str
) -> None:
    ready(connect(), *create.split("; "))
    with pytest.raises(RefusedError, match=why) as it:
        streams().drain()
    assert "settle_seconds" in str(it.value)
    assert streams(settle_seconds="0").drain() == []


# available now


def test_available_now_waits_for_transactions_in_flight(
    connect: Connect, streams: Callable[..., TableStream]
) -> None:
    ready(connect(), CREATE)
    first, _ = crossed(connect)
    stream = streams()
    timer = threading.Timer(0.3, first.commit)
    timer.start()
    stream.reader.stop_at_present()
    timer.join()
    ready(connect(), INSERT)
    assert keys(stream) == [1, 2]


def test_available_now_leaves_to_the_next_run_what_does_not_settle_in_time(
    connect: Connect,
    streams: Callable[..., TableStream],
    caplog: pytest.LogCaptureFixture,
) -> None:
    ready(connect(), CREATE)
    first, _ = crossed(connect)
    stream = streams(settle_timeout="0.2")
    with caplog.at_level(logging.WARNING):
        stream.reader.stop_at_present()
    assert "still writing after 0.2 s" in caplog.text
    assert keys(stream) == []
    first.commit()
    following = streams(stream.offset, settle_timeout="0.2")
    following.reader.stop_at_present()
    assert keys(following) == [1, 2]


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


# types and names


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
