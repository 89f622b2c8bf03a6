"""One shard's transactions: rows and the ledger's record together, by one writer at a time.

Whoever calls ``init_transactions`` takes the transactional id over: a transaction that another
process has open under it is aborted, or finished if its commit was already under way, and that
process can commit nothing more. So what the ledger shows afterwards stays true until the next
take-over, and a commit of ours that succeeds proves that there was none.

Every error but one leads back to that beginning: take over, read the ledger, see whether the epoch
is there. The exception is an error that librdkafka calls retriable; the same call is then repeated.

Tests: ``tests/integration/test_kafka_sink.py``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from seamark._common.logs import logger_named
from seamark.errors import OutcomeUnknownError, SeamarkError, StoreUnavailableError
from seamark.sinks.kafka.cluster import KafkaCluster
from seamark.sinks.kafka.ledger import LARGEST_ENTRY, Entry, Ledger, slot_of
from seamark.sinks.kafka.staged_records import DEFAULT_LIMIT, RECORD_OVERHEAD, Records

if TYPE_CHECKING:
    from confluent_kafka import KafkaException, Producer
    from confluent_kafka.admin import AdminClient

log = logger_named("seamark.sinks")
T = TypeVar("T")

_LEDGER_SECONDS: Final = 30.0
_SMALLEST_BATCH: Final = 1_000
_LARGEST_BATCH: Final = 1_000_000
_QUEUE_RECORDS: Final = 1_000_000
_QUEUE_KILOBYTES: Final = 256 << 10
_FULL: Final = 0.05
_ABORT_SECONDS: Final = 5.0
_FENCED: Final = ("_FENCED", "_FATAL", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


@dataclass(frozen=True)
class Limits:
    """How long a transaction may stay open, and how long a commit is tried, in seconds."""

    transaction: float
    patience: float
    fenced: float = 10.0
    """How long another writer that has taken over is given to show the epoch itself."""


@dataclass(frozen=True)
class ShardOfEpoch:
    """What one shard is to show of an epoch."""

    topic: str
    """Empty when every record has its own."""
    records: Callable[[], Iterable[Records]]
    largest_batch: int
    """Bytes that the strictest of the topics takes at once."""
    entry: Callable[[], Entry]
    """What the ledger is to say. Called when all rows of the shard have arrived."""


class ShardWriter:
    """Writes the transactions of one shard; one instance is used by one thread at a time."""

    def __init__(
        self,
        cluster: KafkaCluster,
        admin: AdminClient,
        ledger: Ledger,
        shard: int,
        limits: Limits,
        writer: str,
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._ledger = ledger
        self._shard = shard
        self._limits = limits
        self._producer: Producer | None = None
        self._largest_batch = 0
        self.transactional_id = f"{writer}-{shard}"

    @property
    def owns_the_id(self) -> bool:
        """Whether this process has taken over, and has not been told that another one did since."""
        return self._producer is not None

    def take_over(self, largest_batch: int = DEFAULT_LIMIT) -> None:
        """Fence whoever has written before, and read what is in the ledger."""
        self.let_go()
        batch = min(largest_batch - RECORD_OVERHEAD, _LARGEST_BATCH)
        producer = self._cluster.producer(
            {
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": int(self._limits.transaction * 1000),
                "message.max.bytes": max(largest_batch, LARGEST_ENTRY),
                "batch.size": max(batch, _SMALLEST_BATCH),
                "queue.buffering.max.messages": _QUEUE_RECORDS,
                "queue.buffering.max.kbytes": _QUEUE_KILOBYTES,
                "delivery.report.only.error": True,
            }
        )
        with self._cluster.translating("beginning transactions in"):
            self._repeated(lambda: producer.init_transactions(self._limits.patience))
        self._ledger.read(self._admin, self._shard, _LEDGER_SECONDS)
        self._producer, self._largest_batch = producer, largest_batch

    def let_go(self) -> None:
        """Close the producer; an open transaction is left to whoever takes over."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def show(self, epoch: int, share: ShardOfEpoch) -> Entry:
        """The ledger's record of the epoch, which it has when this returns.

        It is that of an earlier commit if there was one: the caller compares.
        """
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self._limits.patience
        pause = 0.1
        while True:
            self._sent = False
            try:
                return self._try(epoch, share)
            except KafkaException as error:
                failure = self._failure(error, epoch)
                fenced = error.args[0].name() in _FENCED
            except StoreUnavailableError as error:
                failure, fenced = error, False
            except BaseException:
                self._give_up()
                raise
            self._give_up()
            if not isinstance(failure, StoreUnavailableError) or time.monotonic() > deadline:
                raise failure
            log.warning("%s: epoch %d is tried again: %s", self._ledger.topic, epoch, failure)
            if fenced:
                self._wait_for_the_other(epoch)
            else:
                time.sleep(pause)
                pause = min(pause * 2, 5.0)

    def _try(self, epoch: int, share: ShardOfEpoch) -> Entry:
        known = self._ledger.entry(self._shard, epoch)
        if known is not None:
            return known
        if self._producer is None or share.largest_batch < self._largest_batch:
            self.take_over(share.largest_batch)
            if (known := self._ledger.entry(self._shard, epoch)) is not None:
                return known
        assert self._producer is not None
        return self._transact(self._producer, share)

    def _transact(self, producer: Producer, share: ShardOfEpoch) -> Entry:
        deadline = time.monotonic() + self._limits.transaction
        producer.begin_transaction()
        for records in share.records():
            _send(producer, share.topic, records, deadline)
        self._flush(producer, deadline)
        entry = share.entry()
        value = msgspec.json.encode(entry)
        key = slot_of(entry.receipt, self._shard)
        producer.produce(self._ledger.topic, value, key, self._shard)
        self._flush(producer, deadline)
        self._sent = True
        # without a time: librdkafka then waits for what is left of the transaction's own
        self._repeated(producer.commit_transaction)
        self._ledger.note(entry)
        return entry

    def _flush(self, producer: Producer, deadline: float) -> None:
        waiting = producer.flush(max(deadline - time.monotonic(), 0.1))
        if waiting:
            raise _too_long(self._limits.transaction, waiting)

    def _repeated(self, call: Callable[[], T]) -> T:
        """Call it, and again for as long as librdkafka says that this is the thing to do."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self._limits.patience
        while True:
            try:
                return call()
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _failure(self, error: KafkaException, epoch: int) -> SeamarkError:
        failure = self._cluster.error_for(error.args[0], f"committing epoch {epoch} to")
        if self._sent and isinstance(failure, StoreUnavailableError):
            return OutcomeUnknownError(
                failure.what,
                where=failure.where,
                hint="Nothing is lost: the next start reads the ledger, and finishes the epoch if "
                "it is not there.",
            )
        return failure

    def _give_up(self) -> None:
        """End the transaction at once where that is possible; readers then need not wait for it."""
        from confluent_kafka import KafkaException

        producer = self._producer
        if producer is not None and not self._sent:
            try:
                producer.abort_transaction(_ABORT_SECONDS)
            except KafkaException as error:
                log.debug("%s: not aborted: %s", self._ledger.topic, error)
        self.let_go()

    def _wait_for_the_other(self, epoch: int) -> None:
        """Give the writer that has fenced us time to show the epoch, before it is fenced in turn.

        Two that fence each other in step would both never finish.
        """
        deadline = time.monotonic() + self._limits.fenced * random.uniform(0.5, 1)
        while self._ledger.entry(self._shard, epoch) is None and time.monotonic() < deadline:
            time.sleep(random.uniform(0.05, 0.2))
            try:
                self._ledger.read(self._admin, self._shard, _LEDGER_SECONDS)
            except StoreUnavailableError as error:
                log.debug("%s: %s", self._ledger.topic, error)

    _sent = False
    """Whether the try that is under way has asked for the commit."""


def _send(producer: Producer, topic: str, records: Records, deadline: float) -> None:
    """Hand records to the producer's own threads."""
    if records.topics or records.partitions or records.headers:
        _send_each(producer, topic, records, deadline)
        return
    produce = producer.produce
    for value, key in zip(records.values, records.keys, strict=True):
        try:
            produce(topic, value, key)
        except BufferError:
            _when_there_is_room(producer, deadline, topic, value=value, key=key)


def _send_each(producer: Producer, topic: str, records: Records, deadline: float) -> None:
    rows = len(records.values)
    topics = records.topics or [topic] * rows
    partitions = records.partitions or [-1] * rows
    headers = records.headers or [None] * rows
    lines = zip(topics, records.values, records.keys, partitions, headers, strict=True)
    for target, value, key, partition, own in lines:
        given: dict[str, Any] = {"value": value, "key": key, "partition": partition}
        if own:
            given["headers"] = own
        try:
            producer.produce(target, **given)
        except BufferError:
            _when_there_is_room(producer, deadline, target, **given)


def _when_there_is_room(producer: Producer, deadline: float, topic: str, **given: Any) -> None:
    while True:
        producer.poll(_FULL)
        try:
            producer.produce(topic, **given)
        except BufferError:
            if time.monotonic() > deadline:
                raise _too_long(None, len(producer)) from None
        else:
            return


def _too_long(transaction: float | None, waiting: int) -> StoreUnavailableError:
    limit = "" if transaction is None else f" of {transaction:g} s"
    return StoreUnavailableError(
        f"the epoch did not reach Kafka within the transaction_timeout{limit}: {waiting} records "
        "are still waiting",
        hint="Raise transaction_timeout (the brokers allow up to their transaction.max.timeout.ms),"
        " use more shards, or make epochs smaller (maxOffsetsPerTrigger).",
    )
