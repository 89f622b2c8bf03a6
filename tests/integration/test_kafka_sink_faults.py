"""Whatever happens inside a commit to Kafka, readers see every row of the epoch once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seamark.errors import DamageError, LineageError, RefusedError
from seamark.sinks import Committable, KafkaSink
from seamark.sinks.kafka.epoch_writer import EpochWriter
from seamark.sinks.kafka.ledger import Entry, Ledger
from seamark.sinks.kafka.transactions import ShardOfEpoch, ShardWriter
from seamark.testing.conformance.sink_examples import NEW, epoch
from tests.integration.support.kafka import kafka_server
from tests.integration.support.kafka_children import commit_and_stop
from tests.progress.support.children import running
from tests.sinks.support.kafka_records import (
    END_TRANSACTION,
    INIT_PRODUCER,
    PRODUCE,
    Broker,
    HandWrittenRecords,
    opened,
    prepared,
    request_of,
)
from tests.support.cutting_proxy import CuttingProxy
from tests.support.processes import Server
from tests.support.skipped import or_skip

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]
ROWS = [*range(40)]


def sink_at(servers: str, topic: str, staging: Path, **more: Any) -> HandWrittenRecords:
    return HandWrittenRecords(servers, topic, key="n", staging=staging, **more)


def decided(servers: str, topic: str, staging: Path, number: int = 1) -> Committable:
    """An epoch that is staged and decided, by a process that then died."""
    sink = opened(sink_at(servers, topic, staging))
    committable = prepared(sink, ROWS, epoch(number), f"a{number}")
    sink.close()
    return committable


# answers that are lost


@pytest.mark.parametrize(
    ("loses", "request_name"),
    [
        ("lose_answer_to", END_TRANSACTION),
        ("lose", END_TRANSACTION),
        ("lose_answer_to", INIT_PRODUCER),
        ("lose_answer_to", PRODUCE),
    ],
    ids=["answer-to-commit", "commit", "answer-to-take-over", "answer-to-rows"],
)
def test_a_commit_that_worked_but_said_it_failed_shows_each_row_once(
    broker: Broker,
    topic: str,
    tmp_path: Path,
    kafka_proxy: CuttingProxy,
    loses: str,
    request_name: int,
) -> None:
    committable = decided(broker.servers, topic, tmp_path)
    sink = opened(sink_at(f"127.0.0.1:{kafka_proxy.port}", topic, tmp_path))
    before = kafka_proxy.cuts
    getattr(kafka_proxy, loses)(request_of(request_name))
    sink.commit(committable)
    assert kafka_proxy.cuts == before + 1
    assert sorted(broker.numbers(topic)) == ROWS
    sink.commit(committable)
    assert sorted(broker.numbers(topic)) == ROWS


def test_a_broker_that_is_killed_and_comes_back_is_waited_for(
    broker: Broker, topic: str, tmp_path: Path, kafka: Server
) -> None:
    sink = opened(sink_at(broker.servers, topic, tmp_path))
    first = prepared(sink, ROWS, epoch(1), "a1")
    sink.commit(first)
    second = prepared(sink, [100], epoch(2), "a2")
    kafka.kill()
    failures: list[BaseException] = []
    committing = threading.Thread(target=_noting(lambda: sink.commit(second), failures))
    committing.start()
    kafka.start()
    committing.join(300)
    assert not committing.is_alive()
    assert failures == []
    assert sorted(broker.numbers(topic)) == [*ROWS, 100]


def _noting(work: Callable[[], None], failures: list[BaseException]) -> Callable[[], None]:
    def noted() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    return noted


# those who are fenced


def test_a_driver_that_was_paused_across_its_commit_shows_nothing_twice(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    committable = decided(broker.servers, topic, tmp_path)
    arguments = (broker.servers, topic, tmp_path, committable)
    with running(commit_and_stop, *arguments) as zombie:
        pid = zombie.hear()
        _wait_until_stopped(pid)
        assert sorted(broker.numbers(topic, "read_uncommitted")) == ROWS
        assert broker.numbers(topic) == []
        successor = opened(sink_at(broker.servers, topic, tmp_path))
        successor.commit(committable)
        following = prepared(successor, [100], epoch(2), "a2")
        os.kill(pid, signal.SIGCONT)
        assert zombie.hear() == "done"
        successor.commit(following)
    assert sorted(broker.numbers(topic)) == [*ROWS, 100]
    assert sorted(broker.numbers(topic, "read_uncommitted")) >= sorted([*ROWS, *ROWS, 100])


def test_what_a_dead_driver_has_half_sent_is_never_seen(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    committable = decided(broker.servers, topic, tmp_path)
    with running(commit_and_stop, broker.servers, topic, tmp_path, committable) as dead:
        _wait_until_stopped(dead.hear())
        dead.kill()
    successor = opened(sink_at(broker.servers, topic, tmp_path))
    assert successor.committed("", 1) is None
    successor.commit(committable)
    assert sorted(broker.numbers(topic)) == ROWS


def _wait_until_stopped(pid: int) -> None:
    while "\nState:\tT" not in Path(f"/proc/{pid}/status").read_text():
        threading.Event().wait(0.02)


def test_a_writer_that_is_fenced_for_no_reason_takes_the_id_back(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    sink = opened(sink_at(broker.servers, topic, tmp_path))
    committable = prepared(sink, ROWS, epoch(1), "a1")
    other = opened(sink_at(broker.servers, topic, tmp_path))
    other._epochs.take_over(1)
    sink.commit(committable)
    assert sorted(broker.numbers(topic)) == ROWS


# transactions that Kafka ends by itself


def test_a_transaction_that_timed_out_is_sent_again(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    sink = opened(sink_at(broker.servers, topic, tmp_path, transaction_timeout=5))
    committable = prepared(sink, ROWS, epoch(1), "a1")
    tries = []
    whole_epoch = sink._epochs._whole_epoch

    def slow(*given: Any) -> Entry:
        tries.append(1)
        if len(tries) == 1:
            while broker.stable_end(topic) == 0:  # until Kafka has aborted it
                threading.Event().wait(0.1)
        return whole_epoch(*given)

    vars(sink._epochs)["_whole_epoch"] = slow
    sink.commit(committable)
    assert len(tries) > 1
    assert sorted(broker.numbers(topic)) == ROWS


@pytest.fixture(scope="module")
def forgetful() -> Iterator[Server]:
    """A broker that forgets a transactional id after a second."""
    settings = {
        "transactional.id.expiration.ms": 1000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 500,
    }
    with or_skip("Kafka", kafka_server(settings)) as started:
        yield started


def test_a_transactional_id_that_expired_is_begun_anew(forgetful: Server, tmp_path: Path) -> None:
    broker = Broker(forgetful.port)
    topic = broker.new_topic()
    sink = opened(sink_at(broker.servers, topic, tmp_path))
    sink.commit(prepared(sink, ROWS, epoch(1), "a1"))
    second = prepared(sink, [100], epoch(2), "a2")
    identity = sink._epochs._writer(0).transactional_id
    while not broker.has_forgotten(identity):
        threading.Event().wait(0.2)
    sink.commit(second)
    assert sorted(broker.numbers(topic)) == [*ROWS, 100]
    again = opened(sink_at(broker.servers, topic, tmp_path))
    again.commit(second)
    assert sorted(broker.numbers(topic)) == [*ROWS, 100]


# these attacks find sinks that are broken


def ledger_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes over trusts what it remembers."""
    monkeypatch.setattr(Ledger, "read", lambda *_: None)


def ledger_is_a_transaction_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows first, then the record that says so."""
    transact = ShardWriter._transact

    def apart(self: ShardWriter, producer: Any, share: ShardOfEpoch) -> Entry:
        def rows_committed() -> Entry:
            producer.commit_transaction()
            entry = share.entry()
            producer.begin_transaction()
            return entry

        return transact(
            self,
            producer,
            ShardOfEpoch(share.topic, share.records, share.largest_batch, rows_committed),
        )

    monkeypatch.setattr(ShardWriter, "_transact", apart)


@pytest.mark.parametrize("breaking", [ledger_is_not_read, ledger_is_a_transaction_of_its_own])
def test_a_broken_sink_shows_rows_twice(
    broker: Broker,
    topic: str,
    tmp_path: Path,
    breaking: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaking(monkeypatch)
    committable = decided(broker.servers, topic, tmp_path)
    dying = opened(sink_at(broker.servers, topic, tmp_path))
    whole_epoch = EpochWriter._whole_epoch

    class Died(BaseException):
        pass

    def dies(*given: Any) -> Entry:
        if breaking is ledger_is_a_transaction_of_its_own:
            raise Died
        return whole_epoch(*given)

    monkeypatch.setattr(dying._epochs, "_whole_epoch", lambda *given: dies(dying._epochs, *given))
    keeps_its_files(dying, monkeypatch)
    with contextlib.suppress(Died):
        dying.commit(committable)
    successor = opened(sink_at(broker.servers, topic, tmp_path))
    successor.commit(committable)
    assert sorted(broker.numbers(topic)) == sorted([*ROWS, *ROWS])


def keeps_its_files(sink: KafkaSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies after its commit, and before it has cleared its rows away."""
    monkeypatch.setattr(sink._staging, "remove", lambda _: None)


def test_a_process_that_died_right_after_its_commit_has_left_nothing_behind_at_the_next_start(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committable = decided(broker.servers, topic, tmp_path)
    dying = opened(sink_at(broker.servers, topic, tmp_path))
    keeps_its_files(dying, monkeypatch)
    dying.commit(committable)
    assert dying.leftovers() == []
    assert [*tmp_path.rglob("*.parquet")]
    successor = opened(sink_at(broker.servers, topic, tmp_path))
    assert not [*tmp_path.rglob("*.parquet")]
    successor.commit(committable)
    assert sorted(broker.numbers(topic)) == ROWS


# several shards


class Died(Exception):
    """A driver ends between the commits of two shards."""


def shown_in_part(broker: Broker, topic: str, staging: Path, shards: int = 2) -> Committable:
    """A decided epoch 1 of which all shards but the first are there."""
    sink = opened(sink_at(broker.servers, topic, staging, shards=shards))
    committable = prepared(sink, ROWS, epoch(1), "a1")

    def dies(_: Any, staged: Any, others: Any) -> Entry:
        for other in others:
            other.result()
        raise Died

    vars(sink._epochs)["_whole_epoch"] = dies
    with pytest.raises(Died):
        sink.commit(committable)
    sink.close()
    half = sorted(broker.numbers(topic))
    assert half
    assert len(half) < len(ROWS)
    return committable


def test_a_shard_that_is_there_is_not_sent_again(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    committable = shown_in_part(broker, topic, tmp_path)
    successor = opened(sink_at(broker.servers, topic, tmp_path, shards=4))
    assert successor.committed("", 1) is None, "the ledger does not count a part as an epoch"
    assert successor.leftovers() == [], "the rest is still to be sent"
    successor.commit(committable)
    assert sorted(broker.numbers(topic)) == ROWS


@pytest.mark.parametrize("shards", [1, 2])
def test_an_epoch_that_is_shown_in_part_is_not_rolled_back_over(
    broker: Broker, topic: str, tmp_path: Path, shards: int
) -> None:
    """Also by a run with fewer shards than the one that died."""
    committable = shown_in_part(broker, topic, tmp_path)
    successor = opened(sink_at(broker.servers, topic, tmp_path, shards=shards))
    newest = successor.newest()
    assert newest is not None
    assert (newest.epoch, newest.attempt) == (1, "a1")
    for refused in (successor.require_unpublish_after, successor.unpublish_after):
        with pytest.raises(RefusedError, match="a part of epoch 1 is there"):
            refused(0)
    with pytest.raises(LineageError, match="a part of epoch 1 is there already, by attempt a1"):
        prepared(successor, [1], epoch(1, NEW), "b1")
    assert successor.unpublish_after(1) == []
    successor.commit(committable)
    assert sorted(broker.numbers(topic)) == ROWS


def test_another_attempt_at_an_epoch_that_is_shown_in_part_shows_nothing(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Its rows were prepared by a run with one shard, before the other run began."""
    sink = opened(sink_at(broker.servers, topic, tmp_path))
    late = prepared(sink, [100], epoch(1), "b1")
    sink.close()
    shown_in_part(broker, topic, tmp_path)
    half = sorted(broker.numbers(topic))
    with pytest.raises(LineageError, match="attempt"):
        opened(sink_at(broker.servers, topic, tmp_path)).commit(late)
    assert sorted(broker.numbers(topic)) == half


def test_an_epoch_that_is_shown_in_part_and_whose_rest_is_lost_is_named(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    committable = shown_in_part(broker, topic, tmp_path)
    successor = opened(sink_at(broker.servers, topic, tmp_path))
    successor.abort("a1")
    with pytest.raises(DamageError, match=r"a part of epoch 1 is shown \(shard 1 of 2\)"):
        successor.commit(committable)
