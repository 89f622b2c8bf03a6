"""Rows as records of a Kafka topic, exactly once for every reader with ``read_committed``.

Rows of an epoch are staged in durable files. The commit sends them in a transaction whose last
record is the ledger's: Kafka shows both or neither, and whoever comes later reads in the ledger
which it was.

Tests: ``tests/integration/test_kafka_sink.py``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from seamark._common.checks import check_duration, check_number, check_text
from seamark.errors import DamageError, InvalidInputError, RefusedError
from seamark.sinks.contract import (
    Committable,
    Description,
    Epoch,
    Identity,
    Receipt,
    Sink,
    identity_in,
    receipt_of,
)
from seamark.sinks.folders import check_token
from seamark.sinks.kafka.cluster import KafkaCluster
from seamark.sinks.kafka.columns import RecordColumns
from seamark.sinks.kafka.epoch_writer import EpochWriter, PreparedRecords
from seamark.sinks.kafka.staged_records import check_shares
from seamark.sinks.kafka.staging import RecordStaging
from seamark.sinks.kafka.target import Target
from seamark.sinks.kafka.transactions import Limits
from seamark.sinks.read_point import ReadPoint
from seamark.sinks.staged_epochs import write_files
from seamark.sinks.unfit_values import refusing_broken_texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_TRANSACTION_SECONDS: Final = 300.0
_PATIENCE: Final = 120.0


class KafkaSink(Sink):
    """Records of a topic, each epoch in one transaction.

    ``bootstrap`` is one address or several, ``topic`` the topic of all rows. ``key`` and ``value``
    are columns: strings and binary travel as they are, a struct, map or array as JSON. ``value``
    may be several columns, which become a JSON object; by default all columns do that have no other
    use. ``headers`` is a column of ``array<struct<key:string,value:binary>>`` and ``partition`` one
    of ``int``, as in Spark's own sink; ``topic_column`` gives each row a topic of its own, and null
    there stands for ``topic``.

    ``staging`` is a folder for rows that wait for their commit. It has to survive whatever the
    pipeline is to survive: the driver and all executors share it. By default it is in the store, if
    that is a folder and Spark runs on one machine; else it has to be given.

    A missing topic is refused, or made with ``create_partitions`` partitions. ``shards`` is how
    many transactions share the rows of an epoch: with more than one a reader may see a part of an
    epoch before the rest. ``transaction_timeout`` is how many seconds a transaction may stay open,
    and ``commit_timeout`` how long a commit is tried again while Kafka does not answer.
    ``options`` go to librdkafka (``security.protocol``, ``sasl.password``, ``compression.type``).
    """

    consumes_all = True

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        topic: str | None = None,
        *,
        staging: str | os.PathLike[str] | None = None,
        key: str | None = None,
        value: str | Sequence[str] | None = None,
        headers: str | None = None,
        partition: str | None = None,
        topic_column: str | None = None,
        create_partitions: int | None = None,
        shards: int = 1,
        transaction_timeout: float = _TRANSACTION_SECONDS,
        commit_timeout: float = _PATIENCE,
        ledger: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if topic is None and topic_column is None:
            raise InvalidInputError(
                "a KafkaSink needs a topic, or a topic_column that has one for each row"
            )
        self._topic = topic if topic is None else check_text(topic, "a topic")
        self._columns = RecordColumns.of(key, value, headers, partition, topic_column)
        if create_partitions is not None:
            check_number("create_partitions", create_partitions, 1, 100_000)
        self._shards = check_number("shards", shards, 1, 64)
        limits = Limits(
            transaction=check_duration("transaction_timeout", transaction_timeout),
            patience=check_duration("commit_timeout", commit_timeout),
        )
        if limits.transaction < 1:
            raise InvalidInputError("transaction_timeout must be at least one second")
        cluster = KafkaCluster(bootstrap, {"partitioner": "murmur2_random", **(options or {})})
        self._target = Target(cluster, self._topic, create_partitions)
        self._staging = RecordStaging(staging)
        self._epochs = EpochWriter(
            cluster, self._topic, self._columns, self._staging, limits, ledger
        )
        self._staged: Receipt | None = None
        self._is_ready = False
        """Whether topic, ledger and folder were made in this run, or were there."""

    def describe(self) -> Description:
        columns = self._columns
        options = {
            "key": columns.key,
            "value": [*columns.value] if isinstance(columns.value, tuple) else columns.value,
            "headers": columns.headers,
            "partition": columns.partition,
            "topic_column": columns.topic,
            "ledger": self._epochs.ledger_choice,
        }
        given = {name: value for name, value in options.items() if value}
        return Description("kafka", self._target.shown, given)

    def open(self, pipeline: str, sink: str, schema: StructType) -> None:
        self._columns.check(schema)
        self._staging.choose(pipeline, sink, self.default_staging)
        self._epochs.open(pipeline, sink, self._shards)
        self._target.look(self._epochs.admin)
        self._is_ready = False

    def prepare_target(self) -> None:
        if not self._is_ready:
            self._epochs.make_ledger(self._shards)
            self._staging.make()
            self._target.make(self._epochs.admin)
            self._clear_away_what_is_shown()
            self._is_ready = True

    def close(self) -> None:
        self._epochs.close()

    # writing an epoch

    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        check_token(epoch.timeline, "a timeline")
        self._staged = None
        self.prepare_target()
        # what forbids us to write is found here, before anything is decided
        self._epochs.take_over(self._shards)
        self._epochs.require_nothing_shown_in_part(epoch.number)
        self._epochs.require_nothing_lost()
        with self._staging.writing(attempt, epoch.number) as folder:
            self._write(df, folder)
        self._staged = receipt_of(epoch, attempt)

    def _write(self, df: DataFrame, folder: str) -> None:
        with refusing_broken_texts(self._target.shown):
            write_files(self._columns.staged(df), folder, "parquet")

    def prepare(self) -> Committable:
        receipt = self._staged
        if receipt is None:
            raise InvalidInputError(
                "nothing was staged that could be prepared", where=self._target.shown
            )
        staged = self._staging.seal(receipt)
        shares = self._epochs.look_over(staged)
        named = {*shares} | ({self._topic} if self._topic else set())
        facts = self._target.facts(self._epochs.admin, named)
        check_shares(shares, facts, self._target.shown)
        prepared = PreparedRecords(
            timeline=receipt.timeline,
            epoch=receipt.epoch,
            fingerprint=receipt.fingerprint,
            attempt=receipt.attempt,
            digest=staged.sealed.digest,
            rows=sum(share.rows for share in shares.values()),
            shards=self._shards,
            topic=self._topic,
            topics=sorted(facts),
            largest_batch=min(fact.limit for fact in facts.values()) if facts else None,
        )
        self._epochs.require_room_in_ledger(receipt)
        committable: Committable = msgspec.to_builtins(prepared)
        return {"sink": receipt.sink, **committable}

    def commit(self, committable: Committable) -> None:
        prepared = identity_in(committable, PreparedRecords)
        try:
            self._epochs.show(prepared)
        except DamageError:
            # somebody else may have shown the epoch meanwhile, and cleared the folder away
            if not self._epochs.is_shown(prepared):
                raise
        self._staging.remove(prepared.attempt)

    # looking after what there is

    def abort(self, attempt: str) -> None:
        self._staging.remove(attempt)

    def leftovers(self) -> list[str]:
        attempts = self._staging.attempts()
        return [name for name, epochs in attempts.items() if not self._is_in_use(name, epochs)]

    def _is_in_use(self, attempt: str, epochs: Sequence[int]) -> bool:
        """Whether any shard shows its part: the rest is sent from what is staged, or never."""
        parts = (part for epoch in epochs for part in self._epochs.parts(epoch))
        return any(part.receipt.attempt == attempt for part in parts)

    def _clear_away_what_is_shown(self) -> None:
        """Remove what a process left behind that died right after its commit."""
        for attempt, epochs in self._staging.attempts().items():
            if self._is_shown(attempt, epochs):
                self._staging.remove(attempt)

    def _is_shown(self, attempt: str, epochs: Sequence[int]) -> bool:
        receipts = (self.committed("", epoch) for epoch in epochs)
        return any(receipt is not None and receipt.attempt == attempt for receipt in receipts)

    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        entry = self._epochs.entry(epoch)
        return None if entry is None else entry.receipt

    def newest(self) -> Receipt | None:
        entry = self._epochs.newest()
        return None if entry is None else entry.receipt

    def read_point(self, committable: Committable) -> ReadPoint | None:
        shown = identity_in(committable, Identity)
        entry = self._epochs.known(shown.epoch)
        if entry is None or not shown.is_shown_by(entry.receipt):
            return None
        at: dict[str, Any] = {"bootstrap": self._epochs.bootstrap}
        if self._topic is not None and [*entry.ends] == [self._topic]:
            at |= {"topic": self._topic, "end_offsets": _as_texts(entry.ends[self._topic])}
            return ReadPoint("kafka", self._target.shown, at)
        at["end_offsets"] = {topic: _as_texts(ends) for topic, ends in entry.ends.items()}
        return ReadPoint("kafka-topics", self._target.shown, at)

    def require_unpublish_after(self, epoch: int) -> None:
        self.unpublish_after(epoch)

    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        newest = self._epochs.newest()
        if newest is None or newest.receipt.epoch <= epoch:
            return []
        there = newest.receipt.epoch
        if newest.shard == 0:
            what, first = f"epoch {there} is there", ""
        else:
            what = f"a part of epoch {there} is there (shard {newest.shard})"
            first = "Start the pipeline once as it is, so that the rest of that epoch is sent. "
        raise RefusedError(
            f"Kafka never takes back a record that it has shown, and {what}",
            where=self._target.shown,
            hint=f"{first}Readers may have acted on it already. Roll back no further than the "
            "newest epoch in the topic, or continue into a new topic.",
        )


def _as_texts(ends: Mapping[int, int]) -> dict[str, int]:
    """JSON has no numbers for names."""
    return {str(partition): end for partition, end in sorted(ends.items())}
