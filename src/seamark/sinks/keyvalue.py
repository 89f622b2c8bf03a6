"""A live key-value view of a streaming result, in RocksDB or Redis, exactly once.

Rows of an epoch are staged in durable files. The commit applies them together with the ledger of
epochs and the source checkpoints in one atomic step, so that a reader never sees half an epoch and
never one twice.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from seamark.errors import (
    DamageError,
    InvalidInputError,
    LineageError,
    RefusedError,
    SeamarkError,
)
from seamark.manifest.bounds import check_number
from seamark.progress.ledger import Overtaken
from seamark.progress.opening import open_ledger, rocksdb_path
from seamark.progress.session import Session
from seamark.progress.store import SourceCheckpointStore
from seamark.sinks.contract import Committable, Description, Epoch, Receipt, Sink
from seamark.sinks.fitness import check_token, local_folder
from seamark.sinks.folders import is_there, staging_into
from seamark.sinks.keyvalue_columns import Shape
from seamark.sinks.keyvalue_rows import Rows, load_rows
from seamark.sinks.keyvalue_staging import Staging
from seamark.sinks.keyvalue_view import (
    EPOCHS,
    TIMES,
    VIEW,
    Expiry,
    Owner,
    Place,
    StagedEpoch,
    apply_epoch,
    effect_of,
    receipt_of_epoch,
    require_owner,
    shown_place,
)
from seamark.sinks.lineage import Identity, another_lineage, identity_in, receipt_of
from seamark.sinks.spark_files import write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

log = logging.getLogger("seamark.sinks")

_TRIES: Final = 20
_REDIS_LIMIT: Final = 256 << 20


class _Prepared(Identity, frozen=True):
    sink: str
    digest: str
    after: Place | None


class KeyValueSink(Sink):
    """The newest row of each key, for other programs to read while the pipeline runs.

    ``url`` is ``rocksdb:///abs/path`` or ``redis://host:port/db``; ``key`` names the columns that a
    row is known by. ``delete_where`` is a boolean column: where it is true, the key goes.
    ``expire`` is a time (or a window): when the watermark has reached it, the key goes, and rows
    that come later than that are left out. ``order_by`` decides between rows of one key in one
    epoch: the greatest counts. With ``replace`` an epoch is the whole view (output mode
    ``complete``).

    ``staging`` is a folder for rows that wait for their commit; beside RocksDB by default, and to
    be given for Redis: it has to survive whatever the pipeline is to survive. ``keep_epochs`` of
    them stay there, so that a server that fell behind can be brought up again.
    """

    consumes_all = True

    def __init__(
        self,
        url: str,
        key: str | Sequence[str],
        *,
        delete_where: str | None = None,
        expire: str | None = None,
        order_by: str | None = None,
        replace: bool = False,
        staging: str | os.PathLike[str] | None = None,
        keep_epochs: int = 8,
        max_epoch_bytes: int = _REDIS_LIMIT,
    ) -> None:
        self._shape = Shape.of(key, delete_where, order_by, expire)
        self._is_redis = urlsplit(url).scheme.lower() in ("redis", "rediss")
        if not self._is_redis and urlsplit(url).scheme.lower() != "rocksdb":
            raise InvalidInputError(
                "a KeyValueSink writes to rocksdb:///abs/path or redis://host:port/db",
                hint="For a try-out in memory there is MemorySink.",
            )
        if self._is_redis and staging is None:
            raise InvalidInputError(
                "a KeyValueSink on Redis needs staging='/folder' for rows that wait for their "
                "commit",
                hint="A folder that survives what the pipeline is to survive: on a shared file "
                "system when it may go on from another machine.",
            )
        self._url = url
        self._replace = replace
        self._limit = check_number("max_epoch_bytes", max_epoch_bytes, 1, 1 << 40)
        keep = check_number("keep_epochs", keep_epochs, 1, 10_000)
        folder = rocksdb_path(url) if staging is None else staging
        self._staging = Staging(local_folder(folder), keep)
        self._opened: SourceCheckpointStore | None = None
        self._namespace: str | None = None
        self._staged: Epoch | None = None
        self._attempt = ""
        self._loaded: tuple[Place, StagedEpoch, Rows] | None = None
        self._expiry: Expiry | None = None

    def describe(self) -> Description:
        shape = self._shape
        options = {
            "key": list(shape.key),
            "delete_where": shape.delete_where,
            "expire": shape.expire,
            "order_by": shape.order_by,
            "replace": self._replace,
        }
        given = {name: value for name, value in options.items() if value}
        return Description("key-value", self._shown(), given)

    def _shown(self) -> str:
        if not self._is_redis:
            return self._url
        from seamark.progress.redis_client import shown_url

        return shown_url(self._url)

    def open(self, pipeline: str, sink: str, schema: StructType) -> None:
        self._shape.check(schema)
        self._namespace = f"{pipeline}.{sink}"
        owner = Owner(pipeline, sink, self._shape.key)
        with self._store().session() as session:
            require_owner(session, owner)

    def _store(self) -> SourceCheckpointStore:
        if self._opened is None:
            namespace = self._namespace if "namespace=" not in self._url else None
            ledger = open_ledger(
                self._url, namespace=namespace if self._is_redis else None, claim=False
            )
            self._opened = SourceCheckpointStore(ledger)
            if self._is_redis:
                from seamark.progress.redis import RedisLedger
                from seamark.progress.redis_persistence import persistence_warnings

                if isinstance(ledger, RedisLedger):
                    for warning in persistence_warnings(ledger):
                        log.warning("%s: %s", ledger.url, warning)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # writing an epoch

    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        check_token(epoch.timeline, "a timeline")
        self._staged = self._loaded = None
        folder = self._staging.folder(attempt, epoch.number)
        with staging_into(folder):
            self._write(df, folder)
        self._staged, self._attempt = epoch, attempt

    def _write(self, df: DataFrame, folder: str) -> None:
        write_files(self._shape.staged(df), folder, "parquet")

    def prepare(self) -> Committable:
        epoch = self._staged
        if epoch is None:
            raise InvalidInputError(
                "nothing was staged that could be prepared", where=self._shown()
            )
        receipt = receipt_of(epoch, self._attempt)
        staged = StagedEpoch(
            receipt,
            shown_place(self._store()),
            epoch.watermark,
            dict(epoch.positions),
            epoch.config_hash,
            self._replace,
        )
        digest = self._staging.seal(staged)
        rows = load_rows(self._staging.folder(self._attempt, epoch.number))
        self._require_room(rows, epoch)
        self._loaded = (staged.place, staged, rows)
        after = staged.after
        return {
            "sink": epoch.sink,
            "timeline": epoch.timeline,
            "epoch": epoch.number,
            "attempt": self._attempt,
            "fingerprint": epoch.fingerprint,
            "digest": digest,
            "upserts": len(rows.upserts),
            "deletes": len(rows.deletes),
            "bytes": rows.size,
            "after": None
            if after is None
            else {"timeline": after.timeline, "epoch": after.epoch, "attempt": after.attempt},
        }

    def _require_room(self, rows: Rows, epoch: Epoch) -> None:
        if self._is_redis and rows.size > self._limit:
            raise RefusedError(
                f"epoch {epoch.number} has {rows.size} bytes, and Redis takes an epoch in one "
                f"transaction of at most {self._limit} (max_epoch_bytes)",
                where=self._shown(),
                hint="Read less in one epoch (maxFilesPerTrigger, maxOffsetsPerTrigger), or use "
                "RocksDB. The server holds the whole transaction in memory while it runs.",
            )

    def commit(self, committable: Committable) -> None:
        wanted = identity_in(committable, _Prepared)
        for _ in range(_TRIES):
            try:
                if self._commit_next(wanted):
                    break
            except Overtaken:
                continue  # another process commits the same epoch
        else:
            raise LineageError(
                "several programs write to this view at once",
                where=self._shown(),
                hint="Stop all but one.",
            )
        self._loaded = None
        self._staging.put_aside(wanted.attempt)

    def _commit_next(self, wanted: _Prepared) -> bool:
        """Bring the view one epoch closer to the wanted one; whether it is there."""
        store = self._store()
        with store.session() as session:
            shown = receipt_of_epoch(session, wanted.epoch)
            if shown is not None:
                if not wanted.is_shown_by(shown):
                    raise another_lineage(shown, wanted, store.url)
                return True
            place = Place(wanted.timeline, wanted.epoch, wanted.attempt)
            now = shown_place(session)
            step = place if now == wanted.after else self._step_after(now, wanted)
            staged, rows = self._read(step, wanted.digest if step == place else None)
            expiry = self._known_expiry(now)
            effect = effect_of(rows, staged.watermark, expiry)
            apply_epoch(session, staged, effect)
        if expiry is not None:
            expiry.follow(effect, step)
        return step == place

    def _read(self, place: Place, digest: str | None) -> tuple[StagedEpoch, Rows]:
        if self._loaded is not None and self._loaded[0] == place:
            return self._loaded[1:]
        folder = self._staging.find(place)
        if folder is None:
            raise DamageError(
                f"epoch {place.epoch} is neither shown nor staged any more",
                where=f"{self._shown()}, {self._staging.path}",
                hint="Was the staging folder emptied, moved or not mounted? Bring it back.",
            )
        try:
            return self._staging.read(folder, digest), load_rows(folder)
        except (SeamarkError, OSError):
            if is_there(folder):
                raise
            # another process has committed it and put it aside
            raise Overtaken(f"{folder} is gone") from None

    def _step_after(self, now: Place | None, wanted: _Prepared) -> Place:
        """The first of the kept epochs that bring a view that fell behind up to the wanted one."""
        missing = wanted.after
        while missing is not None:
            folder = self._staging.find(missing)
            if folder is None:
                break
            before = self._staging.read(folder).after
            if before == now:
                log.warning("%s fell behind: applying epoch %d again", self._shown(), missing.epoch)
                return missing
            missing = before
        shown = f"epoch {now.epoch} of timeline {now.timeline}" if now else "nothing"
        was = f"epoch {wanted.after.epoch}" if wanted.after else "nothing"
        raise LineageError(
            f"the view shows {shown}, and epoch {wanted.epoch} was made to follow {was}",
            where=self._shown(),
            hint="The server has lost what it had acknowledged, or belongs to another history, and "
            f"the epochs in between are not kept in {self._staging.path}. Bring the server back "
            "from a newer save, or begin anew with policy='auto_reset'.",
        )

    def _known_expiry(self, now: Place | None) -> Expiry | None:
        if self._shape.expire is None:
            return None
        if self._expiry is None or self._expiry.place != now or self._replace:
            self._expiry = Expiry.read(self._store(), now)
        return self._expiry

    # looking after what there is

    def abort(self, attempt: str) -> None:
        if self._is_shown(attempt):
            self._staging.put_aside(attempt)
        else:
            self._staging.remove(attempt)

    def leftovers(self) -> list[str]:
        return [each for each in self._staging.attempts() if not self._is_shown(each)]

    def _is_shown(self, attempt: str) -> bool:
        """Whether an attempt that lies in the staging folder was committed all the same."""
        for receipt in self._staging.receipts(attempt):
            shown = receipt_of_epoch(self._store(), receipt.epoch)
            if shown is not None and shown.attempt == attempt:
                return True
        return False

    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        return receipt_of_epoch(self._store(), epoch)

    def newest(self) -> Receipt | None:
        shown = shown_place(self._store())
        return receipt_of_epoch(self._store(), shown.epoch) if shown is not None else None

    def unpublish_after(self, epoch: int) -> list[int]:
        shown = shown_place(self._store())
        if shown is None or shown.epoch <= epoch:
            return []
        if epoch > 0:
            raise RefusedError(
                f"a view shows the newest row of each key, and cannot go back from epoch "
                f"{shown.epoch} to {epoch}",
                where=self._shown(),
                hint="Bring the server back from a save of that epoch, or begin the view anew "
                "with policy='auto_reset', which reads every row again.",
            )
        with self._store().session() as session:
            taken = self._forget(session)
        self._staging.clear()
        self._expiry = None
        return taken

    def _forget(self, session: Session) -> list[int]:
        numbers = [int(key) for key, _ in self._store().items(EPOCHS) if key.isdigit()]
        owner = session.get(EPOCHS, b"owner")
        for space in (VIEW, TIMES, EPOCHS):
            session.clear(space)
        if owner is not None:
            session.put(EPOCHS, b"owner", owner)
        session.forget_checkpoints()
        return sorted(numbers)
