"""Shows epochs in Kafka: as many transactions as there are shards, and the ledger that decides.

The rows of an epoch are divided by files. Each shard sends its part in a transaction of its own,
with a record of it in its own partition of the ledger. Shard 0 waits for the others and is
committed last: its record is the epoch's, and says where each partition of the topic then ended.

Tests: ``tests/integration/test_kafka_sink.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec

from seamark.errors import DamageError, InvalidInputError, LineageError, RefusedError
from seamark.sinks.contract import Identity, Receipt, another_lineage
from seamark.sinks.kafka.cluster import KafkaCluster
from seamark.sinks.kafka.columns import RecordColumns
from seamark.sinks.kafka.kept_records import TopicsOfCluster, require_kept
from seamark.sinks.kafka.ledger import (
    KEPT_EPOCHS,
    LARGEST_ENTRY,
    OWN_LEDGER,
    Entry,
    Ledger,
    LedgerBlocked,
    ledger_name,
)
from seamark.sinks.kafka.staged_records import (
    DEFAULT_LIMIT,
    Records,
    TopicShare,
    look_over,
    records_in,
    require_topics,
    shares_of_files,
)
from seamark.sinks.kafka.staging import RecordStaging, StagedEpoch
from seamark.sinks.kafka.transactions import Limits, ShardOfEpoch, ShardWriter

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_LOOK_SECONDS = 5.0


class PreparedRecords(Identity, frozen=True):
    """What another process needs to show an epoch."""

    digest: str
    rows: int
    shards: Annotated[int, msgspec.Meta(ge=1, le=64)]
    topic: str | None
    topics: list[str]
    largest_batch: int | None = None
    """Bytes that the strictest of the topics takes at once."""


class ShardFailed(Exception):
    """Another shard of the epoch was not committed; its error is the cause."""


class EpochWriter:
    """Shows the epochs of one output."""

    def __init__(
        self,
        cluster: KafkaCluster,
        topic: str | None,
        columns: RecordColumns,
        staging: RecordStaging,
        limits: Limits,
        ledger: str | None,
    ) -> None:
        self._cluster = cluster
        self._topics = TopicsOfCluster(cluster)
        self._topic = topic
        self._columns = columns
        self._looked_over: tuple[str, dict[str, TopicShare]] | None = None
        self._staging = staging
        self._limits = limits
        self._ledger_name = ledger
        self._ledger: Ledger | None = None
        self._admin: AdminClient | None = None
        self._writers: dict[int, ShardWriter] = {}
        self._id = ""

    @property
    def admin(self) -> AdminClient:
        """The client for questions."""
        if self._admin is None:
            self._admin = self._cluster.admin()
        return self._admin

    @property
    def bootstrap(self) -> str:
        """The addresses of the cluster."""
        return self._cluster.bootstrap

    @property
    def ledger(self) -> Ledger:
        """The ledger; :class:`InvalidInputError` before the sink was opened."""
        if self._ledger is None:
            raise InvalidInputError("the sink was not opened", where=self._cluster.bootstrap)
        return self._ledger

    @property
    def ledger_choice(self) -> str:
        """Which ledger was asked for, as a structure has it."""
        return self._ledger_name or OWN_LEDGER

    def open(self, pipeline: str, sink: str, shards: int) -> None:
        """Look for the ledger, and ask whether it may be made for so many shards."""
        self._id = ledger_name(self._topic, pipeline, sink)  # also when a ledger is shared
        self._ledger = Ledger(self._cluster, self._ledger_name or self._id, pipeline, sink)
        self._ledger.look(self.admin, shards)

    def make_ledger(self, shards: int) -> None:
        """See that the ledger is there, for at least so many shards."""
        if self.ledger.shards < shards:
            self.ledger.make(self.admin, shards)

    def close(self) -> None:
        """Let the producers go."""
        for writer in self._writers.values():
            writer.let_go()
        self._writers.clear()
        self._admin = None

    def take_over(self, shards: int) -> None:
        """Fence those who wrote before us, once in a run."""
        for shard in range(shards):
            if not self._writer(shard).owns_the_id:
                self._writer(shard).take_over()
        for shard in range(shards, self.ledger.shards):
            # an earlier run with more shards may still be there
            if shard not in self._writers:
                self._writer(shard).take_over()
                self._writer(shard).let_go()

    # what there is

    def entry(self, epoch: int) -> Entry | None:
        """The ledger's record of an epoch, or None."""
        self._read()
        return self.ledger.entry(0, epoch)

    def known(self, epoch: int) -> Entry | None:
        """The same, without a look when this process has shown the epoch itself."""
        return self.ledger.entry(0, epoch) or self.entry(epoch)

    def newest(self) -> Entry | None:
        """The ledger's record of the newest epoch that readers see anything of, or None."""
        self._read_all()
        return self.ledger.newest_part()

    def parts(self, epoch: int) -> list[Entry]:
        """The ledger's records of all shards that have shown their part of an epoch."""
        self._read_all()
        return self.ledger.parts(epoch)

    def require_nothing_shown_in_part(self, epoch: int) -> None:
        """:class:`LineageError` when some shards show the epoch, and others never will.

        Call it after :meth:`take_over`, which has read the ledger.
        """
        parts = self.ledger.parts(epoch)
        if parts and self.ledger.entry(0, epoch) is None:
            shown = parts[0].receipt
            raise LineageError(
                f"a part of epoch {epoch} is there already, by attempt {shown.attempt} of "
                f"timeline {shown.timeline} (shard {_listed(parts)})",
                where=self.ledger.topic,
                hint="It was decided, and its driver died between two shards. Bring back the "
                "checkpoint of that epoch, so that a start sends the rest; or continue into a new "
                "topic.",
            )

    def require_nothing_lost(self) -> None:
        """:class:`LineageError` when the topic lacks what the ledger says is shown there.

        Call it after :meth:`take_over`, which has read the ledger.
        """
        newest, topic = self.ledger.newest(), self._topic
        if newest is not None and topic is not None:
            now = self._topics.now(self.admin, [topic])
            require_kept(newest, topic, now, self._cluster.bootstrap)

    def is_shown(self, prepared: Identity) -> bool:
        """Whether this very epoch is shown, nobody else being about to show it.

        :class:`LineageError` when another one is.
        """
        if not self.ledger.shards:
            return False
        self._writer(0).take_over()
        return self._is_noted(prepared)

    def _is_noted(self, prepared: Identity) -> bool:
        entry, newest = self.ledger.entry(0, prepared.epoch), self.ledger.newest()
        for part in self.ledger.parts(prepared.epoch):
            self._require_same(part, prepared)
        if entry is None and newest is not None:
            self._require_known(prepared.epoch, newest.receipt.epoch)
        return entry is not None

    def _require_known(self, epoch: int, newest: int) -> None:
        if newest - epoch >= KEPT_EPOCHS:
            raise RefusedError(
                f"whether epoch {epoch} is shown is not known: the ledger keeps {KEPT_EPOCHS} "
                f"epochs, and the newest is {newest}",
                where=self.ledger.topic,
                hint="Was an old copy of the store started?",
            )

    def _read_all(self) -> None:
        for shard in range(self.ledger.shards):
            self._read(shard)

    def _read(self, shard: int = 0) -> None:
        if not self.ledger.shards:
            return
        try:
            self.ledger.read(self.admin, shard, _LOOK_SECONDS)
        except LedgerBlocked:
            # somebody died, or hangs, within a commit: this ends it
            self._writer(shard).take_over()

    # showing an epoch

    def require_room_in_ledger(self, receipt: Receipt) -> None:
        """:class:`RefusedError` when the record of an epoch would be too large for Kafka."""
        size = len(msgspec.json.encode(receipt))
        if size > LARGEST_ENTRY // 2:
            raise RefusedError(
                f"what Spark planned for epoch {receipt.epoch} has {size} bytes, too much for a "
                "record of the ledger",
                where=self.ledger.topic,
                hint="Make epochs smaller (maxFilesPerTrigger).",
            )

    def look_over(self, staged: StagedEpoch) -> dict[str, TopicShare]:
        """What a staged epoch has for each topic; its files are read once while they are the same.

        :class:`DamageError` for rows that the sink does not write so.
        """
        digest = staged.sealed.digest
        if self._looked_over is None or self._looked_over[0] != digest:
            shares = look_over(staged.paths(), self._topic, self._columns)
            self._looked_over = digest, shares
        return self._looked_over[1]

    def show(self, prepared: PreparedRecords) -> None:
        """Show the epoch, unless it is there. :class:`DamageError` when its rows are gone."""
        if not self._writer(0).owns_the_id:
            self._read_all()  # else it was read: whoever wrote since has taken the id from us
        if self._is_noted(prepared):
            return
        if prepared.topic != self._topic:
            raise RefusedError(
                f"epoch {prepared.epoch} was prepared for the topic {prepared.topic!r}, and the "
                f"sink now has {self._topic!r}",
                where=self._cluster.bootstrap,
                hint="Start once more with the former topic, so that the epoch is finished.",
            )
        self._require_same_shares(prepared)
        staged = self._staged(prepared)
        self.make_ledger(prepared.shards)  # it may have been prepared by a run with more of them
        shares = shares_of_files(staged.sealed.record.files, prepared.shards)
        with ThreadPoolExecutor(prepared.shards, "seamark-kafka") as pool:
            others = [
                pool.submit(self._show_shard, prepared, staged, shard, shares[shard])
                for shard in range(1, prepared.shards)
            ]
            try:
                entry = self._writer(0).show(
                    prepared.epoch,
                    self._share(
                        prepared,
                        staged,
                        shares[0],
                        partial(self._whole_epoch, prepared, staged, others),
                    ),
                )
            except ShardFailed as failed:
                raise failed.__cause__ or failed from None
        self._require_same(entry, prepared)

    def _require_same_shares(self, prepared: PreparedRecords) -> None:
        """:class:`DamageError` when the rest of an epoch would be shared among other shards.

        Rows of those that are there would be sent again, and others never.
        """
        for part in self.ledger.parts(prepared.epoch):
            if part.shards not in (None, prepared.shards):
                raise DamageError(
                    f"the checkpoint says that {prepared.shards} shards share epoch "
                    f"{prepared.epoch}, and shard {part.shard} of {part.shards} is there",
                    where=self.ledger.topic,
                    hint="Nothing more was sent. Restore the store from a copy, so that the rest "
                    "is sent.",
                )

    def _staged(self, prepared: PreparedRecords) -> StagedEpoch:
        try:
            staged = self._staging.open(prepared.attempt, prepared.epoch, prepared.digest)
            # whoever wrote the checkpoint may have written the rows too
            found = self.look_over(staged)
            require_topics(found, self._topic, prepared.topics, staged.folder)
            return staged
        except DamageError as error:
            parts = self.ledger.parts(prepared.epoch)
            if not parts:
                raise
            raise DamageError(
                f"a part of epoch {prepared.epoch} is shown (shard {_listed(parts)} of "
                f"{prepared.shards}), and the rest is lost: {error.what}",
                where=error.where,
                hint="Restore the folder from a copy, so that the rest is sent. Kafka takes "
                "nothing back: without the folder, continue into a new topic.",
            ) from None

    def _show_shard(
        self, prepared: PreparedRecords, staged: StagedEpoch, shard: int, files: list[str]
    ) -> None:
        receipt = msgspec.structs.replace(staged.receipt, plan=None)
        entry = Entry(receipt, shard, prepared.rows, shards=prepared.shards)
        share = self._share(prepared, staged, files, lambda: entry)
        self._require_same(self._writer(shard).show(prepared.epoch, share), prepared)

    def _share(
        self,
        prepared: PreparedRecords,
        staged: StagedEpoch,
        files: list[str],
        entry: Callable[[], Entry],
    ) -> ShardOfEpoch:
        return ShardOfEpoch(
            topic=self._topic or "",
            records=partial(self._records, staged.paths(files)),
            largest_batch=prepared.largest_batch or DEFAULT_LIMIT,
            entry=entry,
        )

    def _records(self, paths: Sequence[str]) -> Iterable[Records]:
        """What a shard sends; looked at in each try, since a broker may have died before it."""
        self.require_nothing_lost()
        return records_in(paths, self._topic, self._columns)

    def _whole_epoch(
        self, prepared: PreparedRecords, staged: StagedEpoch, others: Sequence[Future[None]]
    ) -> Entry:
        """What the ledger says of the epoch once all other shards are there."""
        for other in others:
            try:
                other.result()
            except Exception as error:
                raise ShardFailed from error
        # where each partition ends that any epoch has written to, before anything follows
        newest, now = self.ledger.newest(), self._topics.now(self.admin, prepared.topics)
        require_kept(newest, self._topic, now, self._cluster.bootstrap)
        ends, ids = (newest.ends, newest.ids) if newest is not None else ({}, {})
        ends, ids = {**ends, **now.ends}, {**ids, **now.ids}
        return Entry(staged.receipt, 0, prepared.rows, ends, prepared.shards, ids)

    def _writer(self, shard: int) -> ShardWriter:
        if shard not in self._writers:
            self._writers[shard] = ShardWriter(
                self._cluster, self.admin, self.ledger, shard, self._limits, self._id
            )
        return self._writers[shard]

    def _require_same(self, entry: Entry, prepared: Identity) -> None:
        if not prepared.is_shown_by(entry.receipt):
            raise another_lineage(entry.receipt, prepared, self.ledger.topic)


def _listed(parts: Sequence[Entry]) -> str:
    return ", ".join(str(entry.shard) for entry in parts)
