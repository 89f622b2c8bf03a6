"""What a Kafka sink asks of topics, what it refuses, and where readers find an epoch."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import ArrayType, StructType

import seamark
from seamark.errors import (
    DamageError,
    InvalidInputError,
    LineageError,
    RefusedError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.sinks import Committable, KafkaSink, kafka_records
from seamark.sinks.contract import receipt_of
from seamark.sinks.epoch_folder import seal_epoch
from seamark.sinks.kafka.ledger import KEPT_EPOCHS
from seamark.sinks.kafka.topics import TopicLook
from seamark.sinks.reader_calls import calls_for
from seamark.sinks.staged_epochs import staging_folder
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from tests.sinks.support.frames import frame
from tests.sinks.support.kafka_records import Broker, HandWrittenRecords, opened, prepared

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


def sink_at(broker: Broker, topic: str | None, staging: Path, **more: Any) -> HandWrittenRecords:
    return HandWrittenRecords(broker.servers, topic, key="n", staging=staging, **more)


def show(sink: KafkaSink, rows: list[int], number: int) -> Committable:
    committable = prepared(sink, rows, epoch(number), f"a{number}")
    sink.commit(committable)
    return committable


# before the first epoch


def topics_of(broker: Broker) -> dict[str, int]:
    listed = broker.admin().list_topics(timeout=60).topics
    return {name: len(about.partitions) for name, about in listed.items() if name[0] != "_"}


def test_opening_a_sink_makes_neither_a_topic_nor_a_ledger(broker: Broker, tmp_path: Path) -> None:
    name = f"t-{uuid.uuid4().hex}"
    before = topics_of(broker)
    sink = sink_at(broker, name, tmp_path / "staging", create_partitions=3, shards=2)
    sink.open(PIPELINE, SINK, None)
    assert (sink.committed("", 1), sink.newest(), sink.leftovers()) == (None, None, [])
    assert sink.unpublish_after(0) == []
    assert topics_of(broker) == before
    assert not (tmp_path / "staging").exists()
    sink.prepare_target()
    made = {topic: n for topic, n in topics_of(broker).items() if topic not in before}
    assert made.pop(name) == 3
    assert [*made.values()] == [2]


def test_a_ledger_gets_more_partitions_only_when_the_target_is_prepared(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    show(opened(sink_at(broker, topic, tmp_path)), [1], 1)
    before = topics_of(broker)
    sink = sink_at(broker, topic, tmp_path, shards=3)
    sink.open(PIPELINE, SINK, None)
    newest = sink.newest()
    assert newest is not None
    assert newest.epoch == 1
    assert topics_of(broker) == before
    sink.prepare_target()
    assert topics_of(broker) != before
    show(sink, [2], 2)
    assert sorted(broker.numbers(topic)) == [1, 2]


def test_a_topic_that_could_not_be_made_is_refused_by_the_look(
    broker: Broker, tmp_path: Path
) -> None:
    name = f"t-{uuid.uuid4().hex}"
    broker.new_topic(name=f"{name}.x")
    before = topics_of(broker)
    # to Kafka the two names are too much alike
    sink = sink_at(broker, f"{name}_x", tmp_path, create_partitions=1)
    with pytest.raises(SeamarkError, match="making the topic"):
        sink.open(PIPELINE, SINK, None)
    assert topics_of(broker) == before


# what to read


def test_the_end_of_an_epoch_leads_readers_to_it_and_no_further(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    sink = opened(sink_at(broker, topic, tmp_path))
    committables = [show(sink, rows, at) for at, rows in enumerate(([1, 2], [], [3, 4, 5]), 1)]
    points = [sink.read_point(committable) for committable in committables]
    another = opened(sink_at(broker, topic, tmp_path))
    assert points == [another.read_point(committable) for committable in committables]
    seen = []
    for point in points:
        assert point is not None
        assert point.at["topic"] == topic
        ends = {int(number): end for number, end in point.at["end_offsets"].items()}
        assert [*ends] == [0, 1]
        inside = [r for r in broker.records(topic) if r.offset() < ends[r.partition()]]
        seen.append(sorted(json.loads(record.value())["n"] for record in inside))
    assert seen == [[1, 2], [1, 2], [1, 2, 3, 4, 5]]


def test_the_call_for_pandas_reads_an_epoch_and_no_further(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    sink = opened(sink_at(broker, topic, tmp_path))
    committables = [show(sink, rows, at) for at, rows in enumerate(([1, 2], [], [3, 4, 5]), 1)]
    seen = []
    for committable in committables:
        point = sink.read_point(committable)
        assert point is not None
        call = calls_for(point)["pandas"]
        table = eval(call, {"pandas": pandas, "seamark": seamark})
        assert {*table.columns} >= {"key", "value", "topic", "partition", "offset", "timestamp"}
        seen.append(sorted(json.loads(value)["n"] for value in table["value"]))
    assert seen == [[1, 2], [1, 2], [1, 2, 3, 4, 5]]


def lose_records(broker: Broker, topic: str) -> None:
    """The topic comes back without its records, as after a power cut that took them all."""
    admin = broker.admin()
    admin.delete_topics([topic])[topic].result(60)
    while topic in admin.list_topics(timeout=60).topics:
        time.sleep(0.05)
    broker.new_topic(name=topic)
    while topic not in admin.list_topics(timeout=60).topics:
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("brokers_tell_ids", "said"), [(False, "lost records that it had"), (True, "made it anew")]
)
def test_no_epoch_is_written_after_records_that_kafka_has_lost(
    broker: Broker,
    topic: str,
    tmp_path: Path,
    brokers_tell_ids: bool,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not brokers_tell_ids:  # then it is the same topic to us, as after a power cut
        monkeypatch.setattr(TopicLook, "id", "", raising=True)
    sink = opened(sink_at(broker, topic, tmp_path))
    show(sink, [1, 2], 1)
    show(sink, [3], 2)
    lose_records(broker, topic)
    for writer in (sink, opened(sink_at(broker, topic, tmp_path))):
        with pytest.raises(LineageError, match=said):
            show(writer, [4], 3)
        assert writer.leftovers() == []
    assert broker.numbers(topic) == []


def fill(broker: Broker, topic: str, records: int) -> None:
    """What another program has sent."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.servers})
    for number in range(records):
        producer.produce(topic, b'{"n": -1}', partition=number % 2)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("others", [0, 50], ids=["empty", "filled"])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_decided_epoch_is_not_shown_after_records_that_kafka_has_lost(
    broker: Broker, topic: str, tmp_path: Path, others: int, shards: int
) -> None:
    sink = opened(sink_at(broker, topic, tmp_path, shards=shards))
    show(sink, [1, 2, 3, 4], 1)
    decided = prepared(sink, [5, 6], epoch(2), "a2")
    lose_records(broker, topic)
    fill(broker, topic, others)
    for writer in (sink, opened(sink_at(broker, topic, tmp_path, shards=shards))):
        with pytest.raises(LineageError, match="roll the pipeline back to epoch 1 first"):
            writer.commit(decided)
        assert writer.committed("", 2) is None
    assert broker.numbers(topic) == [-1] * others


def test_no_epoch_is_written_to_a_topic_that_was_made_anew_and_filled_by_others(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    sink = opened(sink_at(broker, topic, tmp_path))
    show(sink, [1, 2], 1)
    lose_records(broker, topic)
    fill(broker, topic, 50)
    for writer in (sink, opened(sink_at(broker, topic, tmp_path))):
        with pytest.raises(LineageError, match="made it anew"):
            show(writer, [3], 2)
    assert broker.numbers(topic) == [-1] * 50


def test_a_read_waits_for_what_others_have_not_finished(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import Producer

    other = Producer({"bootstrap.servers": broker.servers, "transactional.id": f"other-{topic}"})
    other.init_transactions(60)
    other.begin_transaction()
    for partition in range(2):
        other.produce(topic, b'{"n": 100}', partition=partition)
    other.flush(60)
    sink = opened(sink_at(broker, topic, tmp_path))
    point = sink.read_point(show(sink, [1, 2], 1))
    assert point is not None
    ends = {topic: {int(part): end for part, end in point.at["end_offsets"].items()}}
    monkeypatch.setattr("seamark.sinks.kafka.reading._PATIENCE", 2.0)
    with pytest.raises(StoreUnavailableError, match="nothing more arrived"):
        list(kafka_records(broker.servers, ends))
    other.abort_transaction(60)
    records = list(kafka_records(broker.servers, ends))
    assert sorted(json.loads(record["value"])["n"] for record in records) == [1, 2]


def test_a_reader_with_read_uncommitted_sees_what_was_never_decided(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(sink_at(broker, topic, tmp_path))
    committable = prepared(sink, [1], epoch(1), "a1")

    def fails(*_: object) -> None:
        raise ArithmeticError("died on the way")

    monkeypatch.setattr(sink._epochs, "_whole_epoch", fails)
    with pytest.raises(ArithmeticError):
        sink.commit(committable)
    assert broker.numbers(topic) == []
    assert broker.numbers(topic, "read_uncommitted") == [1]
    opened(sink_at(broker, topic, tmp_path)).commit(committable)
    assert broker.numbers(topic) == [1]
    assert broker.numbers(topic, "read_uncommitted") == [1, 1]


# topics


def test_a_missing_topic_is_refused_or_made(broker: Broker, tmp_path: Path) -> None:
    missing = f"missing-{uuid.uuid4().hex}"
    with pytest.raises(RefusedError, match="does not exist"):
        opened(sink_at(broker, missing, tmp_path))
    sink = opened(sink_at(broker, missing, tmp_path, create_partitions=3))
    show(sink, [1, 2], 1)
    assert sorted(broker.numbers(missing)) == [1, 2]


def test_rows_go_to_topics_and_partitions_of_their_own_with_their_headers(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    class OfTheirOwn(HandWrittenRecords):
        def open(self, pipeline: str, sink: str, schema: StructType | None) -> None:
            pair = StructType().add("key", "string").add("value", "binary")
            columns = StructType().add("n", "string").add("word", "string").add("part", "integer")
            KafkaSink.open(self, pipeline, sink, columns.add("head", ArrayType(pair)))

        def _write(self, df: Any, folder: str) -> None:
            Path(folder).mkdir(parents=True)
            kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
            headers = pa.array([[{"key": "h", "value": b"v"}], None, []], kind)
            table = {
                "value": [b'{"n":1}', b'{"n":2}', b'{"n":3}'],
                "topic": [None, other, other],
                "partition": pa.array([1, None, 0], pa.int32()),
                "headers": headers,
            }
            pq.write_table(pa.table(table), f"{folder}/part-0.parquet")

    other = broker.new_topic()
    sink = opened(
        OfTheirOwn(
            broker.servers,
            topic,
            staging=tmp_path,
            topic_column="word",
            partition="part",
            headers="head",
        )
    )
    committable = show(sink, [], 1)
    (first,) = broker.records(topic)
    assert (first.partition(), first.headers(), first.key()) == (1, [("h", b"v")], None)
    assert sorted(broker.numbers(other)) == [2, 3]
    point = sink.read_point(committable)
    assert point is not None
    assert point.kind == "kafka-topics"
    assert {*point.at["end_offsets"]} == {topic, other}


def test_a_record_that_the_topic_does_not_take_is_refused_before_the_decision(
    broker: Broker, tmp_path: Path
) -> None:
    class Wide(HandWrittenRecords):
        def value_of(self, row: Any) -> bytes:
            return json.dumps({"n": row.n, "fill": "x" * row.n}).encode()

    small = broker.new_topic(settings={"max.message.bytes": "20000"})
    sink = opened(Wide(broker.servers, small, key="n", staging=tmp_path))
    with pytest.raises(RefusedError, match="takes at most 20000"):
        prepared(sink, [20_000], epoch(1), "a1")
    # many that fit, although all of them together do not
    rows = [*range(500, 700)]
    show(sink, rows, 1)
    assert sorted(broker.numbers(small)) == rows


def test_keys_go_where_producers_in_java_send_them(broker: Broker, tmp_path: Path) -> None:
    wide = broker.new_topic(partitions=6)
    show(opened(sink_at(broker, wide, tmp_path)), [*range(30)], 1)
    for record in broker.records(wide):
        assert record.partition() == (murmur2(record.key()) & 0x7FFFFFFF) % 6


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, after ``org.apache.kafka.common.utils.Utils``."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


# what is refused


def test_a_ledger_that_would_forget_is_refused(broker: Broker, topic: str, tmp_path: Path) -> None:
    forgetful = broker.new_topic(partitions=1, settings={"cleanup.policy": "delete"})
    with pytest.raises(RefusedError, match="would forget epochs"):
        opened(sink_at(broker, topic, tmp_path, ledger=forgetful))


def test_a_transaction_that_may_last_longer_than_the_brokers_allow_is_refused_before_the_first_row(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    sink = opened(sink_at(broker, topic, tmp_path, transaction_timeout=24 * 3600))
    with pytest.raises(InvalidInputError, match="transaction_timeout"):
        sink.stage(frame([1]), epoch(1), "a1")


def test_an_epoch_that_the_ledger_has_forgotten_is_not_shown_again(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    sink = opened(sink_at(broker, topic, tmp_path))
    first = show(sink, [1], 1)
    show(sink, [2], 1 + KEPT_EPOCHS)
    with pytest.raises(RefusedError, match="is not known"):
        opened(sink_at(broker, topic, tmp_path)).commit(first)
    assert sorted(broker.numbers(topic)) == [1, 2]


def test_two_outputs_can_share_a_topic_and_a_ledger(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    ledger = broker.new_topic(partitions=1, settings={"cleanup.policy": "compact"})
    names = ("one", "other")
    sinks = [sink_at(broker, topic, tmp_path, ledger=ledger) for _ in names]
    for number, (name, sink) in enumerate(zip(names, sinks, strict=True)):
        sink.open(name, "rows", None)
        about = replace(epoch(1), pipeline=name, sink="rows")
        sink.commit(prepared(sink, [number], about, "a1"))
    assert sorted(broker.numbers(topic)) == [0, 1]
    assert len({sink._epochs._writer(0).transactional_id for sink in sinks}) == len(sinks)
    for name, sink in zip(names, sinks, strict=True):
        newest = sink.newest()
        assert newest is not None
        assert newest.pipeline == name


def test_staged_rows_that_were_changed_are_not_sent(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    sink = opened(sink_at(broker, topic, tmp_path))
    committable = prepared(sink, [1, 2], epoch(1), "a1")
    file = next(tmp_path.rglob("*.parquet"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamageError, match="cannot be sent"):
        opened(sink_at(broker, topic, tmp_path)).commit(committable)
    assert broker.numbers(topic) == []


FORGED = {"value": [b'{"n":1}'], "key": [b"1"]}


def forge(staging: Path, rows: dict[str, list[Any]]) -> dict[str, Any]:
    """Write rows as somebody does who can write to the folder, with a record that fits them."""
    receipt = receipt_of(epoch(1), "a1")
    folder = staging_folder(f"{staging}/{PIPELINE}/{SINK}", "a1", 1)
    Path(folder).mkdir(parents=True)
    pq.write_table(pa.table(rows), f"{folder}/part-00000.parquet")
    sealed, _ = seal_epoch(folder, receipt)
    names = ("timeline", "epoch", "fingerprint", "attempt")
    own = {name: getattr(receipt, name) for name in names}
    return {"sink": SINK, **own, "digest": sealed.digest, "rows": 1, "shards": 1}


def test_staged_rows_reach_no_topic_but_the_one_that_the_sink_declares(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    payments = broker.new_topic()
    committable = forge(tmp_path, {**FORGED, "topic": [payments]})
    for named in ([topic], [topic, payments]):
        with pytest.raises(DamageError, match="does not declare: 'topic'"):
            opened(sink_at(broker, topic, tmp_path)).commit(
                {**committable, "topic": topic, "topics": named}
            )
    assert broker.records(payments) == broker.records(topic) == []


def test_staged_rows_for_a_topic_that_was_not_prepared_are_not_sent(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    payments = broker.new_topic()
    committable = forge(tmp_path, {**FORGED, "topic": [payments]})
    sink = opened(sink_at(broker, topic, tmp_path, topic_column="word"))
    with pytest.raises(DamageError, match="the checkpoint names"):
        sink.commit({**committable, "topic": topic, "topics": [topic]})
    assert broker.records(payments) == broker.records(topic) == []
    sink.commit({**committable, "topic": topic, "topics": [payments, topic]})
    assert broker.numbers(payments) == [1]


def test_rows_that_another_process_has_prepared_are_sent(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    committable = prepared(opened(sink_at(broker, topic, tmp_path)), [1, 2], epoch(1), "a1")
    opened(sink_at(broker, topic, tmp_path)).commit(committable)
    assert sorted(broker.numbers(topic)) == [1, 2]
