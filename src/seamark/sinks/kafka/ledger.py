"""The ledger: a compacted topic that says which epochs a sink has shown.

A record of it is in the transaction of the rows that it speaks of, so both are there or neither.
Shard n writes to partition n, alone. The record of shard 0 is the epoch's own: it is written last,
when all other shards are there.

Tests: ``tests/sinks/test_kafka_ledger.py``.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from seamark._common.json_documents import UNREADABLE
from seamark.errors import DamageError, FormatTooNewError, RefusedError, StoreUnavailableError
from seamark.sinks.contract import Receipt
from seamark.sinks.kafka.cluster import KafkaCluster
from seamark.sinks.kafka.topics import (
    Offsets,
    ask_for_topic,
    end_offsets,
    ensure_topic,
    topic_settings,
)

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

KEPT_EPOCHS: Final = 256
"""How many epochs a ledger remembers."""
LARGEST_ENTRY: Final = 16 << 20
OWN_LEDGER: Final = "the output's own"
"""Stands for the name that is made of topic, pipeline and output. No topic has blanks."""
_VERSION: Final = 1
_LONGEST_NAME: Final = 249
_UNUSABLE: Final = re.compile(r"[^A-Za-z0-9._-]")
_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(32 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": str(LARGEST_ENTRY),
}
_POLL: Final = 0.2


class Entry(msgspec.Struct, frozen=True):
    """What a shard has shown of an epoch."""

    receipt: Receipt
    shard: int
    rows: int
    ends: Offsets = {}
    """End of each partition of the target when the epoch was whole; only of shard 0."""
    shards: int | None = None
    """How many shards share the epoch; None in what an earlier Seamark has written."""
    ids: dict[str, str] = {}
    """Which topics those of ``ends`` are; empty in what an earlier Seamark has written."""
    version: int = _VERSION


class LedgerBlocked(StoreUnavailableError):
    """A transaction of somebody is open in the ledger: what it shows is not settled."""


def ledger_name(topic: str | None, pipeline: str, sink: str) -> str:
    """The topic for the ledger of one output; no two outputs have the same. Pure."""
    told = json.dumps([topic, pipeline, sink])
    digest = hashlib.sha256(told.encode()).hexdigest()[:8]
    readable = ".".join(part for part in (topic, pipeline, sink) if part)
    start = f"seamark-ledger.{_UNUSABLE.sub('_', readable)}"
    return f"{start[: _LONGEST_NAME - len(digest) - 1]}.{digest}"


def slot_of(receipt: Receipt, shard: int) -> bytes:
    """The key of a record: a later epoch takes the place of one that is no longer needed."""
    place = [receipt.pipeline, receipt.sink, shard, receipt.epoch % KEPT_EPOCHS]
    return json.dumps(place).encode()


class Ledger:
    """The ledger of one output, as far as this process has read it."""

    def __init__(self, cluster: KafkaCluster, topic: str, pipeline: str, sink: str) -> None:
        self.topic = topic
        self.shards = 0
        """Partitions of the topic: as many shards as any run of the output may have had.

        None while the topic is not there, and so nothing is shown."""
        self._cluster = cluster
        self._owner = (pipeline, sink)
        self._entries: dict[int, dict[int, Entry]] = {}
        self._next: dict[int, int] = {}

    def make(self, admin: AdminClient, shards: int) -> None:
        """See that the topic exists and keeps what is written to it.

        :class:`RefusedError` when it would forget.
        """
        self.shards = ensure_topic(self._cluster, admin, self.topic, shards, _SETTINGS)
        self._require_kept(admin)

    def look(self, admin: AdminClient, shards: int) -> None:
        """:class:`RefusedError` when :meth:`make` would raise it; nothing is made."""
        self.shards = ask_for_topic(self._cluster, admin, self.topic, shards, _SETTINGS)
        if self.shards:
            self._require_kept(admin)

    def _require_kept(self, admin: AdminClient) -> None:
        settings = topic_settings(self._cluster, admin, [self.topic]).get(self.topic, {})
        policy = settings.get("cleanup.policy", "compact")
        if "delete" in policy:
            raise RefusedError(
                f"the ledger {self.topic} would forget epochs: its cleanup.policy is {policy!r}",
                where=self._cluster.bootstrap,
                hint=f"kafka-configs.sh --alter --topic {shlex.quote(self.topic)} "
                "--add-config cleanup.policy=compact",
            )

    def entry(self, shard: int, epoch: int) -> Entry | None:
        """What a shard has shown of an epoch, as far as it was read."""
        return self._entries.get(shard, {}).get(epoch)

    def parts(self, epoch: int) -> list[Entry]:
        """What all shards have shown of an epoch, as far as it was read."""
        shown = (self._entries[shard].get(epoch) for shard in sorted(self._entries))
        return [entry for entry in shown if entry is not None]

    def newest(self) -> Entry | None:
        """The newest epoch that is whole, as far as it was read."""
        entries = self._entries.get(0)
        return entries[max(entries)] if entries else None

    def newest_part(self) -> Entry | None:
        """The newest epoch that any shard has shown; of shard 0, if it has that one too."""
        newest = max((max(entries) for entries in self._entries.values() if entries), default=None)
        return None if newest is None else self.parts(newest)[0]

    def note(self, entry: Entry) -> None:
        """Remember what was committed, or read."""
        entries = self._entries.setdefault(entry.shard, {})
        entries[entry.receipt.epoch] = entry
        oldest = max(entries) - KEPT_EPOCHS
        for number in [number for number in entries if number <= oldest]:
            del entries[number]

    def read(self, admin: AdminClient, shard: int, patience: float) -> None:
        """Read what others have committed, up to the very end.

        :class:`LedgerBlocked` when a transaction stays open there for longer than ``patience``:
        whatever was committed behind it cannot be seen.
        """
        count = {self.topic: shard + 1}
        end = end_offsets(self._cluster, admin, count)[self.topic][shard]
        deadline = time.monotonic() + patience
        consumer = self._cluster.consumer(
            {
                "group.id": "seamark",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": LARGEST_ENTRY,
                "fetch.wait.max.ms": 10,  # the end is waited for, and nothing new after it
            }
        )
        try:
            with self._cluster.translating("reading the ledger in"):
                self._read_on(consumer, shard, end, deadline)
        finally:
            consumer.close()

    def _read_on(self, consumer: Any, shard: int, end: int, deadline: float) -> None:
        from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

        start = self._next.get(shard)
        consumer.assign(
            [TopicPartition(self.topic, shard, OFFSET_BEGINNING if start is None else start)]
        )
        while True:
            record = consumer.poll(_POLL)
            if record is None:
                pass
            elif record.error() is None:
                self._take(shard, record.value())
            elif record.error().code() != KafkaError._PARTITION_EOF:
                if not record.error().retriable():
                    raise KafkaException(record.error())
            elif record.offset() >= end:
                self._next[shard] = record.offset()
                return
            if time.monotonic() > deadline:
                raise LedgerBlocked(
                    f"the ledger {self.topic} could not be read to its end",
                    where=self._cluster.bootstrap,
                    hint="Another writer has an open transaction, or the cluster is slow. It ends "
                    "by itself within transaction_timeout.",
                )

    def _take(self, shard: int, value: bytes | None) -> None:
        if value is None:
            return
        try:
            about = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
            if msgspec.json.decode(about.get("version", msgspec.Raw(b"1")), type=int) > _VERSION:
                raise FormatTooNewError(
                    f"the ledger {self.topic} was written by a newer Seamark",
                    hint="Update this one, then try again.",
                )
            entry = msgspec.json.decode(value, type=Entry)
        except UNREADABLE as error:
            raise DamageError(
                f"a record of the ledger {self.topic} cannot be read: {error}",
                where=self._cluster.bootstrap,
                hint="Does another program write to this topic?",
            ) from None
        if (entry.receipt.pipeline, entry.receipt.sink) == self._owner and entry.shard == shard:
            self.note(entry)
