"""PostgreSQL transactions that overlap: no row is lost, and none waits longer than it must."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from seamark.errors import RefusedError
from tests.sources.support.sessions import CREATE, INSERT, Connect, keys, ready, run

if TYPE_CHECKING:
    import psycopg

    from tests.sources.support.tables import TableStream


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
        ("CREATE TABLE u (id bigserial, v text); CREATE VIEW t AS SELECT * FROM u", "not a table"),
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


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("ALTER TABLE t ALTER id SET CACHE 50", "keeps 50 keys for later"),
        ("ALTER TABLE t ALTER id SET CYCLE", "does not grow"),
        ("ALTER TABLE t ALTER id DROP IDENTITY", "no sequence of its own"),
    ],
)
def test_keys_that_can_no_longer_be_foreseen_are_not_read(
    connect: Connect, streams: Callable[..., TableStream], change: str, why: str
) -> None:
    session, other = connect(), connect()
    ready(session, CREATE, INSERT)
    stream = streams()
    assert keys(stream) == [1]
    ready(session, change)
    insert = "INSERT INTO t VALUES (60, 'x')" if "DROP" in change else INSERT
    ready(other, insert)  # with a cache, 2 to 51 are the other session's, 52 is this one's …
    if "DROP" not in change:
        ready(session, INSERT)
    with pytest.raises(RefusedError, match=why):
        keys(stream)  # … and 3, which comes later, would be lost


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
