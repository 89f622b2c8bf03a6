"""A table of PostgreSQL stays exact when processes hang, answers are lost and servers restart."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pytest

from seamark.errors import DamageError, LineageError, StoreUnavailableError
from seamark.sinks import Committable
from seamark.sinks.postgres.copying import Copied
from seamark.sinks.postgres.ledger import Ledger
from seamark.sinks.postgres.staging import TOKEN
from seamark.testing.conformance.sink_examples import OLD, epoch
from tests.progress.support.children import running
from tests.sinks.support.postgres import (
    KEYED,
    ROWS,
    batches_of,
    copy,
    numbers,
    opened,
    rows_of,
    run,
    show,
    stage,
    with_options,
)
from tests.support.cutting_proxy import CuttingProxy, cutting_proxy
from tests.support.databases import PostgresServer, postgres_server
from tests.support.processes import ServerUnavailable

if TYPE_CHECKING:
    from seamark.sinks import PostgresSink

COMMIT = b"COMMIT\0"


@pytest.fixture
def dsn(empty_database: str) -> str:
    run(empty_database, ROWS)
    return empty_database


@pytest.fixture
def proxy(dsn: str) -> Iterator[CuttingProxy]:
    with cutting_proxy("127.0.0.1", urlsplit(dsn).port or 0) as made:
        yield made


def through(proxy: CuttingProxy, dsn: str) -> str:
    return with_options(dsn, port=proxy.port)


def test_a_commit_whose_answer_is_lost_is_looked_up_and_not_repeated(
    dsn: str, proxy: CuttingProxy
) -> None:
    sink = opened(through(proxy, dsn))
    committable = stage(sink, [1, 2], epoch(1), "a1")
    proxy.lose_answer_to(COMMIT)
    sink.commit(committable)
    assert proxy.cuts == 1
    assert numbers(dsn) == [1, 2]
    assert sink.leftovers() == []


def test_a_commit_that_never_arrived_is_repeated(dsn: str, proxy: CuttingProxy) -> None:
    sink = opened(through(proxy, dsn))
    committable = stage(sink, [1, 2], epoch(1), "a1")
    proxy.lose(COMMIT)
    sink.commit(committable)
    assert proxy.cuts == 1
    assert numbers(dsn) == [1, 2]


def test_answers_that_are_lost_for_long_leave_one_copy_of_the_rows(
    dsn: str, proxy: CuttingProxy
) -> None:
    sink = opened(through(proxy, dsn))
    committable = stage(sink, [1, 2], epoch(1), "a1")
    proxy.lose_answer_to(COMMIT, times=1000)
    with pytest.raises(StoreUnavailableError):
        sink.commit(committable)
    assert numbers(dsn) == [1, 2]
    proxy.lose_answer_to(COMMIT, times=0)
    sink.commit(committable)
    assert numbers(dsn) == [1, 2]


def test_a_task_whose_answer_is_lost_is_run_again_and_its_rows_count_once(
    dsn: str, proxy: CuttingProxy
) -> None:
    sink = opened(through(proxy, dsn))
    sink._begin(epoch(1), "a1")
    proxy.lose_answer_to(COMMIT)
    with pytest.raises(psycopg.OperationalError):
        copy(sink, "a1", batches_of([1, 2]))
    copied = copy(sink, "a1", batches_of([1, 2]))
    staged = rows_of(dsn, f'SELECT n FROM "{sink._staging.name("a1")}"')
    assert len(staged) == 4, "the first try did arrive"
    sink._staged = sink._prepared(epoch(1), "a1", copied)
    sink.commit(sink.prepare())
    assert numbers(dsn) == [1, 2]


def commit_and_hang(reports: Connection, dsn: str, committable: Committable) -> None:
    """Stop this process when the epoch is in the ledger and nothing is committed."""
    enter = Ledger.enter

    def entered_and_stopped(*arguments: Any) -> bool:
        entered = enter(*arguments)
        Ledger.enter = enter  # type: ignore[method-assign]
        reports.send("entered")
        os.kill(os.getpid(), signal.SIGSTOP)
        return entered

    Ledger.enter = entered_and_stopped  # type: ignore[method-assign,assignment]
    try:
        opened(dsn).commit(committable)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test wants to know
        reports.send(f"{type(error).__name__}: {error}")
    else:
        reports.send("committed")


@pytest.mark.slow
def test_a_driver_that_hangs_inside_its_commit_neither_blocks_its_successor_nor_adds_a_row(
    dsn: str,
) -> None:
    committable = stage(opened(dsn), [1, 2], epoch(1), "a1")
    patient = with_options(dsn, options="-c idle_in_transaction_session_timeout=1s")
    with running(commit_and_hang, patient, committable) as hanging:
        hanging.hear()
        opened(dsn).commit(committable)  # waits until the server has ended the other session
        assert numbers(dsn) == [1, 2]
        show(opened(dsn), [3], 2)
        hanging.send_signal(signal.SIGCONT)
        assert hanging.hear() == "committed", "it was cut off, and finds the epoch in the ledger"
    assert numbers(dsn) == [1, 2, 3]
    assert opened(dsn).leftovers() == []


def copy_and_hang(reports: Connection, dsn: str) -> None:
    """Stop this process in the middle of a COPY."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from batches_of(range(50_000))
        reports.send("copying")
        os.kill(os.getpid(), signal.SIGSTOP)
        yield from batches_of(range(10))

    try:
        copy(opened(dsn), "a1", batches())
    except psycopg.Error as error:
        reports.send(type(error).__name__)
    else:
        reports.send("copied")


@pytest.mark.slow
def test_what_a_hanging_task_has_staged_is_removed_at_the_next_start(dsn: str) -> None:
    opened(dsn)._begin(epoch(1), "a1")
    with running(copy_and_hang, dsn) as hanging:
        hanging.hear()
        successor = opened(dsn)
        assert successor.leftovers() == ["a1"]
        successor.abort("a1")
        assert successor.leftovers() == []
        show(successor, [1], 1)
        hanging.send_signal(signal.SIGCONT)
        assert hanging.hear() in ("AdminShutdown", "OperationalError")
    assert numbers(dsn) == [1]
    assert opened(dsn).leftovers() == []


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    try:
        with postgres_server() as started:
            run(started.dsn, ROWS)
            yield started
    except ServerUnavailable as error:
        pytest.skip(f"PostgreSQL: {error}")


def test_a_server_that_crashes_between_the_decision_and_the_commit_has_kept_the_rows(
    server: PostgresServer,
) -> None:
    sink = opened(server.dsn)
    show(sink, [1], 1)
    committable = stage(sink, [2, 3], epoch(2), "a2")
    server.process.kill()
    for call in (lambda: sink.commit(committable), sink.leftovers, lambda: opened(server.dsn)):
        with pytest.raises(StoreUnavailableError):
            call()
    server.process.start()
    sink.commit(committable)
    sink.commit(committable)
    assert numbers(server.dsn) == [1, 2, 3]
    assert opened(server.dsn).leftovers() == []


def test_of_many_who_commit_the_same_epoch_at_once_one_does(dsn: str) -> None:
    committable = stage(opened(dsn), [1, 2], epoch(1), "a1")
    threads = [threading.Thread(target=opened(dsn).commit, args=(committable,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers(dsn) == [1, 2]


def test_the_slower_of_two_attempts_is_told_and_adds_nothing(dsn: str) -> None:
    first = stage(opened(dsn), [1], epoch(1), "a1")
    second = stage(opened(dsn), [1], epoch(1), "a2")
    opened(dsn).commit(first)
    with pytest.raises(LineageError, match="another attempt"):
        opened(dsn).commit(second)
    assert numbers(dsn) == [1]


def test_a_dropped_staging_table_is_damage_and_shows_nothing(dsn: str) -> None:
    sink = opened(dsn)
    committable = stage(sink, [1], epoch(1), "a1")
    run(dsn, f'DROP TABLE "{sink._staging.name("a1")}"')
    with pytest.raises(DamageError, match="neither shown nor staged"):
        sink.commit(committable)
    assert sink.committed(OLD, 1) is None


@pytest.mark.parametrize("table", [ROWS, KEYED])
def test_staged_rows_that_a_failover_has_lost_are_damage_and_nothing_is_shown(
    empty_database: str, table: str
) -> None:
    dsn = empty_database
    run(dsn, table)
    keys = {"mode": "upsert", "keys": "n"} if table is KEYED else {}
    sink = opened(dsn, **keys)
    sink._begin(epoch(1), "a1")
    tasks = [copy(sink, "a1", batches_of(values)) for values in ([1, 2], [3])]
    both = Copied([token for task in tasks for token in task.tokens], 3)
    sink._staged = sink._prepared(epoch(1), "a1", both)
    committable = sink.prepare()
    # the standby has the table, and the rows of one task of two
    lost = f"DELETE FROM \"{sink._staging.name('a1')}\" WHERE {TOKEN} = '{tasks[0].tokens[0]}'"
    run(dsn, lost)
    with pytest.raises(DamageError, match="1 of the 3 rows of epoch 1 are staged"):
        sink.commit(committable)
    assert numbers(dsn) == []
    assert sink.committed(OLD, 1) is None


def test_no_epoch_is_written_after_one_that_a_failover_has_lost(dsn: str) -> None:
    sink = opened(dsn)
    show(sink, [1], 1)
    show(sink, [2], 2)
    # the standby lacks the transaction that has shown epoch 2
    run(dsn, "DELETE FROM rows WHERE n = 2", "DELETE FROM seamark_ledger WHERE epoch = 2")
    with pytest.raises(LineageError, match="no longer shows epoch 2, which was committed"):
        stage(sink, [3], epoch(3), "a3")
    assert sink.leftovers() == []
    assert numbers(dsn) == [1]


def test_an_epoch_that_a_rollback_has_taken_back_is_not_missed(dsn: str) -> None:
    sink = opened(dsn, epoch_column="at_epoch")
    show(sink, [1], 1)
    show(sink, [2], 2)
    assert sink.unpublish_after(1) == [2]
    show(sink, [3], 2)
    assert numbers(dsn) == [1, 3]


def test_other_writers_of_the_same_rows_disturb_nothing(empty_database: str) -> None:
    dsn = empty_database
    run(dsn, KEYED, "INSERT INTO rows SELECT n, 'theirs' FROM generate_series(0, 199) n")
    ended = threading.Event()
    turns: list[int] = []

    def write() -> None:
        while not ended.is_set():
            # against the order in which an upsert takes its rows: each may wait for the other
            try:
                with psycopg.connect(dsn) as connection:
                    for n in (150, 100, 50):
                        connection.execute("UPDATE rows SET word = 'theirs' WHERE n = %s", (n,))
                    connection.execute("INSERT INTO rows VALUES (%s, 'new')", (1000 + len(turns),))
                turns.append(1)
            except psycopg.errors.DeadlockDetected:
                pass

    other = threading.Thread(target=write)
    other.start()
    sink: PostgresSink = opened(dsn, mode="upsert", keys="n")
    try:
        for number in range(1, 11):
            show(sink, range(200), number, word=f"epoch {number}")
    finally:
        ended.set()
        other.join()
    words = dict(rows_of(dsn, "SELECT n, word FROM rows"))
    assert {words[n] for n in range(200) if n not in (50, 100, 150)} == {"epoch 10"}
    assert [words[1000 + turn] for turn in range(len(turns))] == ["new"] * len(turns)
    assert turns


def test_settings_of_a_database_that_would_stop_a_commit_do_not_count(
    postgres: PostgresServer,
) -> None:
    dsn = postgres.new_database()
    run(dsn, ROWS)
    name = urlsplit(dsn).path.removeprefix("/")
    settings = {
        "default_transaction_read_only": "on",
        "default_transaction_isolation": "serializable",
        "synchronous_commit": "off",
        "statement_timeout": "100ms",
    }
    run(dsn, *(f"ALTER DATABASE \"{name}\" SET {key} = '{v}'" for key, v in settings.items()))
    sink = opened(dsn)
    with sink._address.transaction() as connection:
        connection.execute("SELECT pg_sleep(0.3)")
        for key, expected in {
            "transaction_read_only": "off",
            "transaction_isolation": "read committed",
            "synchronous_commit": "on",
            "idle_in_transaction_session_timeout": "15s",
        }.items():
            assert connection.execute(f"SHOW {key}".encode()).fetchone() == (expected,)
    show(sink, [1], 1)
    assert numbers(dsn) == [1]
