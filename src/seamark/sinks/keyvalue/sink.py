"""A live key-value view of a streaming result, in RocksDB or Redis, exactly once.

Rows of an epoch are staged in durable files. The commit applies them together with the ledger of
epochs and the source checkpoints in one atomic step, so that a reader never sees half an epoch and
never one twice.

Tests: ``tests/sinks/test_view_conformance.py``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from seamark._common.checks import check_name, check_number
from seamark._common.logs import logger_named
from seamark.errors import InvalidInputError, RefusedError
from seamark.progress.urls import rocksdb_path
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
from seamark.sinks.folders import check_token, local_folder
from seamark.sinks.keyvalue.view import (
    StagedEpoch,
    ViewOwner,
    check_owner,
    forget_given_up,
    give_up,
    note_owner,
    receipt_of_epoch,
)
from seamark.sinks.keyvalue.view_columns import Shape
from seamark.sinks.keyvalue.view_rows import NoRoom, Rows, load_rows
from seamark.sinks.keyvalue.view_staging import Staging
from seamark.sinks.keyvalue.view_store import is_redis
from seamark.sinks.keyvalue.view_writer import PreparedView, ViewWriter
from seamark.sinks.read_point import ReadPoint
from seamark.sinks.staged_epochs import remove_staged, staged_attempts, staging_into, write_files
from seamark.sinks.unfit_values import refusing_broken_texts, with_whole_texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

log = logger_named("seamark.sinks")

_REDIS_LIMIT: Final = 256 << 20
_ALL_LATE: Final = (
    "%s: all %d rows of epoch %d are left out, because the watermark has reached the times at "
    "which they expire. In append mode windows come out only then: use output_mode='update', or "
    "expire rows by a later time"
)
_STAGING_PLACES: Final = "It is a folder of a local or shared file system."


class KeyValueSink(Sink):
    """The newest row of each key, for other programs to read while the pipeline runs.

    ``url`` is ``rocksdb:///abs/path`` or ``redis://host:port/db``; ``key`` names the columns that a
    row is known by. ``delete_where`` is a boolean column: where it is true, the key goes.
    ``expire`` is a time (or a window): when the watermark has reached it, the key goes, and rows
    that come later than that are left out. ``order_by`` decides between rows of one key in one
    epoch: the greatest counts. With ``replace`` an epoch is the whole view (output mode
    ``complete``).

    ``staging`` is a folder for rows that wait for their commit; next to RocksDB by default, and to
    be given for Redis: it has to survive whatever the pipeline is to survive. ``keep_epochs`` of
    them stay there, so that a server that fell behind can be brought up again. With ``undo`` also
    what they replaced stays, so that a rollback of the pipeline can take them back.
    """

    consumes_all = True
    catches_up = True

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
        undo: bool = False,
        max_epoch_bytes: int = _REDIS_LIMIT,
    ) -> None:
        self._shape = Shape.of(key, delete_where, order_by, expire)
        if is_redis(url) and staging is None:
            raise InvalidInputError(
                "a KeyValueSink on Redis needs staging='/folder' for rows that wait for their "
                "commit",
                hint="A folder that survives what the pipeline is to survive: on a shared file "
                "system when another machine may take over.",
            )
        self._replace = replace
        self._limit = check_number("max_epoch_bytes", max_epoch_bytes, 1, 1 << 40)
        keep = check_number("keep_epochs", keep_epochs, 1, 10_000)
        self._shares_staging = staging is not None
        if staging is None:
            folder = local_folder(rocksdb_path(url), "a KeyValueSink", _STAGING_PLACES)
        else:
            folder = local_folder(staging, "the staging of a KeyValueSink", _STAGING_PLACES)
        self._staging = Staging(folder, keep)
        self._view = ViewWriter(url, self._staging, expires=expire is not None, undo=undo)
        self._owner: ViewOwner | None = None
        """Whose the view is, until that is noted there."""
        self._staged: Epoch | None = None
        self._attempt = ""
        self._loaded: tuple[StagedEpoch, Rows] | None = None

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
        return Description("key-value", self._view.shown, given)

    def open(self, pipeline: str, sink: str, schema: StructType) -> None:
        self._shape.check(schema)
        self._view.namespace = f"{pipeline}/{sink}"
        if self._shares_staging:
            # an attempt's token is the same for all sinks of an epoch: none may clear another's
            self._staging.below = f"{check_name(pipeline)}/{check_name(sink)}"
        self._owner = ViewOwner(pipeline, sink, self._shape.key)
        if (found := self._view.found) is not None:
            check_owner(found, self._owner)
        self._staging.check()

    def prepare_target(self) -> None:
        if (owner := self._owner) is not None:
            self._view.in_session(lambda session: note_owner(session, owner))
            self._staging.make()
            self._owner = None

    def close(self) -> None:
        self._view.close()

    # writing an epoch

    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        check_token(epoch.timeline, "a timeline")
        if self._shape.expire is not None and epoch.watermark is None:
            log.warning(
                "%s: rows expire by the watermark, but the stream has none", self._view.shown
            )
        self._staged = self._loaded = None
        self.prepare_target()
        folder = self._staging.folder(attempt, epoch.number)
        with staging_into(folder, self._staging.path):
            self._write(df, folder)
        self._staged, self._attempt = epoch, attempt

    def _write(self, df: DataFrame, folder: str) -> None:
        with refusing_broken_texts(self._view.shown):
            rows = self._shape.staged(with_whole_texts(df, df.columns))
            write_files(rows, folder, "parquet")

    def prepare(self) -> Committable:
        epoch = self._staged
        if epoch is None:
            raise InvalidInputError(
                "nothing was staged that could be prepared", where=self._view.shown
            )
        receipt = receipt_of(epoch, self._attempt)
        after = self._view.followed_by(epoch)
        staged = StagedEpoch(
            receipt=receipt,
            after=after,
            after_digest=None if after is None else self._view.step_to(after).digest,
            watermark=epoch.watermark,
            positions=dict(epoch.positions),
            config_hash=epoch.config_hash,
            replace=self._replace,
        )
        digest = self._staging.seal(staged)
        folder = self._staging.folder(self._attempt, epoch.number)
        try:
            rows = load_rows(folder, epoch.watermark, self._limit if self._view.is_redis else None)
        except NoRoom:
            raise self._no_room(epoch) from None
        self._loaded = (staged, rows)
        if rows.late and not (rows.upserts or rows.deletes):
            log.warning(_ALL_LATE, self._view.shown, rows.late, epoch.number)
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
            "after": msgspec.to_builtins(staged.after),
        }

    def _no_room(self, epoch: Epoch) -> RefusedError:
        return RefusedError(
            f"epoch {epoch.number} has more bytes than Redis takes in one transaction: at most "
            f"{self._limit} (max_epoch_bytes)",
            where=self._view.shown,
            hint="The planned epoch runs again unchanged: raise max_epoch_bytes if the server "
            "has the memory. Then make epochs smaller (maxFilesPerTrigger, "
            "maxOffsetsPerTrigger), or use RocksDB.",
        )

    def commit(self, committable: Committable) -> None:
        prepared = identity_in(committable, PreparedView)
        loaded = self._loaded
        known = loaded if loaded and loaded[0].version == prepared.version else None
        later = self._staging.kept_after(prepared.epoch)
        is_newest = self._view.show(prepared, known)
        self._loaded = None
        if is_newest:
            self._staging.forget(later)  # of a history that is over
        self._staging.put_aside(prepared.attempt)

    def read_point(self, committable: Committable) -> ReadPoint:
        at: dict[str, int | str] = {"epoch": identity_in(committable, Identity).epoch}
        if self._view.is_redis:
            at["namespace"] = self._view.used_namespace
        return ReadPoint("key-value", self._view.shown, at, only_newest=True)

    # looking after what there is

    def abort(self, attempt: str) -> None:
        epochs, view = self._staging.epochs(attempt), self._view
        may_be_shown = bool(epochs) and view.found is not None
        if may_be_shown and not view.in_session(partial(give_up, attempt=attempt, epochs=epochs)):
            self._staging.put_aside(attempt)
            return
        remove_staged(self._staging.path, attempt)
        if may_be_shown:
            view.in_session(partial(forget_given_up, attempt=attempt))

    def leftovers(self) -> list[str]:
        return [a for a in staged_attempts(self._staging.path) if not self._is_shown(a)]

    def _is_shown(self, attempt: str) -> bool:
        """Whether an attempt in the staging folder was committed all the same."""
        for epoch in self._staging.epochs(attempt):
            shown = self.committed("", epoch)
            if shown is not None and shown.attempt == attempt:
                return True
        return False

    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        found = self._view.found
        return None if found is None else receipt_of_epoch(found, epoch)

    def newest(self) -> Receipt | None:
        return self._view.newest()

    def require_unpublish_after(self, epoch: int) -> None:
        self._view.way_back(epoch)

    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        later = self._staging.kept_after(epoch)
        taken = self._view.go_back(epoch, of)
        self._staging.forget(later)  # also what an emptied server, or a reset that died, has left
        return taken
