"""A KafkaSink whose rows are written by hand instead of by Spark; all else is the real one."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from seamark.sinks import Committable, Epoch, KafkaSink
from seamark.testing.conformance.sink_examples import through_json
from tests.sinks.support.frames import frame
from tests.sinks.support.starting import started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class HandWrittenRecords(KafkaSink):
    """Rows of a number ``n``, which is the key, as JSON, in two files."""

    def open(self, pipeline: str, sink: str, schema: StructType | None) -> None:
        from pyspark.sql.types import StructType as Columns

        super().open(pipeline, sink, Columns().add("n", "string").add("word", "string"))

    def _write(self, df: DataFrame, folder: str) -> None:
        rows = list(cast(Any, df).toLocalIterator())
        Path(folder).mkdir(parents=True)
        for part in range(2):
            mine = rows[part::2]
            table = {
                "key": pa.array([str(row.n).encode() for row in mine], pa.binary()),
                "value": pa.array([self.value_of(row) for row in mine], pa.binary()),
            }
            pq.write_table(pa.table(table), f"{folder}/part-{part:05}.parquet")

    def value_of(self, row: Any) -> bytes:
        return json.dumps(row._asdict()).encode()


class Broker:
    """A running broker as a test uses it."""

    def __init__(self, port: int) -> None:
        self.servers = f"127.0.0.1:{port}"

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers})

    def new_topic(
        self,
        partitions: int = 2,
        settings: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> str:
        import confluent_kafka.admin as module

        name = name or f"t-{uuid.uuid4().hex}"
        kind: Any = cast(Any, module).NewTopic
        topic = kind(name, partitions, 1, config=dict(settings or {}))
        admin = self.admin()  # it takes its answers with it when it goes
        admin.create_topics([topic])[name].result(60)
        return name

    def records(self, topic: str, isolation: str = "read_committed") -> list[Any]:
        """Everything that a reader sees, by the client of Confluent."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "reader",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            there = consumer.list_topics(topic, timeout=60).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in there])
            seen: list[Any] = []
            ended: set[int | None] = set()
            while len(ended) < len(there):
                record = consumer.poll(60)
                assert record is not None, "the broker says nothing"
                error = record.error()
                if error is None:
                    seen.append(record)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(record.partition())
                else:
                    raise AssertionError(error.str())
            return seen
        finally:
            consumer.close()

    def stable_end(self, topic: str) -> int:
        """How far a reader with read_committed gets, over all partitions together."""
        return self._ends(topic, "read_committed")

    def _ends(self, topic: str, isolation: str) -> int:
        import confluent_kafka.admin as module
        from confluent_kafka import IsolationLevel, TopicPartition

        admin, latest = self.admin(), cast(Any, module).OffsetSpec.latest()
        partitions = admin.list_topics(topic, timeout=60).topics[topic].partitions
        asked = {TopicPartition(topic, number): latest for number in partitions}
        level = IsolationLevel[isolation.upper()]
        answers = admin.list_offsets(asked, isolation_level=level, request_timeout=60)
        return sum(answer.result(60).offset for answer in answers.values())

    def has_forgotten(self, transactional_id: str) -> bool:
        """Whether the broker has dropped what it knew of a transactional id."""
        about = [
            record
            for record in self.records("__transaction_state")
            if transactional_id.encode() in record.key()
        ]
        return bool(about) and about[-1].value() is None

    def numbers(self, topic: str, isolation: str = "read_committed") -> list[int]:
        return [json.loads(record.value())["n"] for record in self.records(topic, isolation)]


def opened(sink: KafkaSink) -> KafkaSink:
    return started(sink, frame([]).schema)


def prepared(sink: KafkaSink, rows: Any, about: Epoch, attempt: str) -> Committable:
    sink.stage(frame(rows), about, attempt)
    return through_json(sink.prepare())


def request_of(api: int) -> Callable[[bytes], bool]:
    """Whether what a client has sent ends with such a request of Kafka's protocol."""

    def found(sent: bytes) -> bool:
        for start in range(max(len(sent) - 8192, 0), len(sent) - 8):
            size, key = struct.unpack_from(">ih", sent, start)
            if size == len(sent) - start - 4 and key == api:
                return True
        return False

    return found


PRODUCE, FETCH, ADD_PARTITIONS, END_TRANSACTION, INIT_PRODUCER = 0, 1, 24, 26, 22
