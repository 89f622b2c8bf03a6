"""Rows in a Delta table, an epoch at a time: files written by executors, one entry in the log.

The entry holds the rows, the app transaction and the record of the epoch. ``deltalake`` accepts an
app transaction twice, so the log is looked at before each commit. Of several writers that commit
an epoch at once only one gets an entry: the others are told of a conflict, and look again.

Tests: ``tests/sinks/test_delta.py``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

import msgspec

from seamark._common.logs import logger_named
from seamark.errors import (
    DamageError,
    InvalidInputError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from seamark.sinks.contract import (
    Committable,
    Description,
    Epoch,
    Identity,
    Receipt,
    Sink,
    identity_in,
    no_longer_shown,
    receipt_of,
)
from seamark.sinks.delta.actions import staged_files
from seamark.sinks.delta.committable import FileList, Prepared, kept_list
from seamark.sinks.delta.entries import add_files, epoch_properties
from seamark.sinks.delta.epochs import DeltaEpochs
from seamark.sinks.delta.merging import (
    check_keys,
    check_required,
    merge,
    read_changes,
    refuse_empty_texts,
    refuse_spoiled_values,
)
from seamark.sinks.delta.place import TablePlace
from seamark.sinks.delta.schemas import Columns, columns_of
from seamark.sinks.delta.staging import Staging
from seamark.sinks.delta.target import Target, refuse_nulls
from seamark.sinks.delta.upkeep import compact, refuse_spoiled_partitions, vacuum
from seamark.sinks.folders import check_token
from seamark.sinks.read_point import ReadPoint
from seamark.sinks.staged_epochs import Coalesce
from seamark.sinks.tables.executor_files import write_by_executors
from seamark.sinks.tables.parquet_files import FileLayout, WrittenFile
from seamark.sinks.tables.row_transfer import RowTransfer

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

log = logger_named("seamark.sinks")

Mode = Literal["append", "upsert", "overwrite"]
SchemaMode = Literal["strict", "merge"]
_DELAYS: Final = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_INLINE: Final = 8 << 10
"""Bytes of a list of files that go into the checkpoint; a longer list is only beside the table."""


class _Shown(NamedTuple):
    """The newest epoch that this run has shown."""

    identity: Prepared
    version: int | None


class DeltaSink(Sink):
    """A Delta table, exactly once. Others may write to the same table at any time.

    ``table`` is a path, or a URL with ``s3://``, ``gs://`` or ``abfss://``; a table that is not
    there is made. ``append`` adds the rows of an epoch. ``upsert`` has one row for each value of
    the ``keys``: a later row takes the place of an earlier one, and where the boolean column
    ``delete_where`` is true the row goes; the driver merges, so the changes of an epoch have to
    fit into its memory. With ``overwrite`` each epoch takes the place of all rows.

    ``schema="merge"`` adds columns to the table that it lacks; ``strict`` refuses them.
    ``storage_options`` are for object stores. Executors get them too; where there are none they
    use the credentials of their own environment. ``coalesce`` is how many files an epoch has at
    most, apart from partitions: by default one per core when Spark runs on this machine alone,
    and else what the plan gives.
    """

    consumes_all = True

    def __init__(
        self,
        table: str | os.PathLike[str],
        mode: Mode = "append",
        keys: str | Sequence[str] = (),
        delete_where: str | None = None,
        partition_by: str | Sequence[str] = (),
        schema: SchemaMode = "strict",
        storage_options: Mapping[str, Any] | None = None,
        coalesce: Coalesce = "auto",
    ) -> None:
        if mode not in get_args(Mode):
            raise InvalidInputError(
                f"a DeltaSink cannot {mode!r}", hint=f"It can {', '.join(get_args(Mode))}."
            )
        if schema not in get_args(SchemaMode):
            raise InvalidInputError(f"schema is 'strict' or 'merge', not {schema!r}")
        self._keys = (keys,) if isinstance(keys, str) else (*keys,)
        if (mode == "upsert") != bool(self._keys):
            raise InvalidInputError("'upsert' needs keys, and the other modes have none")
        if mode != "upsert" and delete_where is not None:
            raise InvalidInputError("only 'upsert' can delete rows")
        self._place = TablePlace(table, storage_options)
        self._mode: Mode = mode
        self._delete_where = delete_where
        self._partition_by = (partition_by,) if isinstance(partition_by, str) else (*partition_by,)
        self._merges_schema = schema == "merge"
        self._coalesce = coalesce
        self._transfer = RowTransfer()
        self._target = Target(self._place, mode, self._partition_by, Columns({}))
        self._epochs = self._for("", "")
        self._staged: tuple[Prepared, FileList] | None = None
        self._known: Prepared | None = None
        self._last: _Shown | None = None

    def _for(self, pipeline: str, sink: str) -> DeltaEpochs:
        staging = Staging(self._place, pipeline, sink, merges=self._mode == "upsert")
        return DeltaEpochs(self._place, staging, pipeline, sink)

    def describe(self) -> Description:
        options = {
            "mode": self._mode,
            "keys": list(self._keys),
            "delete_where": self._delete_where,
            "partition_by": list(self._partition_by),
        }
        given = {name: value for name, value in options.items() if value}
        return Description("delta", self._place.url, given)

    def open(self, pipeline: str, sink: str, schema: StructType) -> None:
        columns = columns_of(
            schema.jsonValue(),
            partition_by=self._partition_by,
            keys=self._keys,
            delete_where=self._delete_where,
            where=self._place.url,
        )
        self._epochs = self._for(pipeline, sink)
        # what an earlier run has staged is anybody's by now, and was not looked at since
        self._staged = self._known = self._last = None
        about = (self._place, self._mode, self._partition_by, columns, (pipeline, sink))
        self._target = Target(*about, merges_schema=self._merges_schema)
        self._target.look()

    def prepare_target(self) -> None:
        self._target.make_ready()

    # writing an epoch

    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        check_token(epoch.timeline, "a timeline")
        self._staged = self._known = None
        self.prepare_target()
        table = self._place.look()
        self._require_last(table)
        fits = self._target.check(table)
        partitions = tuple(table.metadata().partition_columns)
        receipt = receipt_of(epoch, attempt)
        self._epochs.begin(receipt)
        # a merge reads whole rows; the files of a table leave out what the log says of them
        is_merged = self._mode == "upsert"
        layout = FileLayout() if is_merged else FileLayout(partitions, frozenset(partitions))
        files = self._write(df, self._epochs.staging.folder(attempt), layout)
        if not is_merged:
            refuse_nulls(files, fits.never_null, epoch.number, self._place.url)
        types = self._target.columns.types
        data_columns = [name for name in types if name not in partitions]
        added = FileList(types, staged_files(files, data_columns, table.schema()))
        prepared = Prepared(
            timeline=receipt.timeline,
            epoch=receipt.epoch,
            fingerprint=receipt.fingerprint,
            attempt=attempt,
            pipeline=receipt.pipeline,
            sink=receipt.sink,
            table_id=str(table.metadata().id),
            mode=self._mode,
            rows=sum(file.rows for file in files),
            keys=list(self._keys),
            delete_where=self._delete_where,
        )
        self._staged = prepared, added

    def _write(self, df: DataFrame, folder: str, layout: FileLayout) -> list[WrittenFile]:
        blobs = self._epochs.staging.blobs
        return write_by_executors(df, blobs, folder, layout, self._coalesce, self._transfer)

    def prepare(self) -> Committable:
        if self._staged is None:
            raise InvalidInputError(
                "nothing was staged that could be prepared", where=self._place.url
            )
        prepared, added = self._staged
        staging = self._epochs.staging
        staging.drop_strays(prepared.attempt, added.files)
        if self._keys:
            changes = read_changes(staging.blobs, added.files)
            if changes is not None:
                self._check_changes(changes, prepared.epoch)
        as_json = msgspec.json.encode(added)
        digest = staging.write_list(prepared.attempt, as_json)
        if len(as_json) <= _INLINE:
            prepared = msgspec.structs.replace(prepared, added=added)
        else:
            prepared = msgspec.structs.replace(prepared, list_digest=digest)
        self._known = prepared
        committable: Committable = msgspec.to_builtins(prepared)
        return committable

    def _check_changes(self, changes: pa.Table, epoch: int) -> None:
        where = self._place.url
        check_keys(changes, self._keys, epoch, where)
        table = self._place.look()
        required = self._target.check(table).never_null
        check_required(changes, required, self._delete_where, epoch, where)
        partitions = table.metadata().partition_columns
        refuse_empty_texts(changes, required.union(self._keys), partitions, epoch, where)
        refuse_spoiled_values(changes, partitions, epoch, where, on_disk=self._place.is_local)
        refuse_spoiled_partitions(table, where)

    # showing it

    def commit(self, committable: Committable) -> None:
        prepared = identity_in(committable, Prepared)
        last: Exception | None = None
        for delay in _DELAYS:
            time.sleep(delay)
            try:
                self._show(prepared)
                return
            except StoreUnavailableError as error:
                # it may have worked, or another writer was first: the log tells
                last = error
                log.warning("epoch %d is tried again: %s", prepared.epoch, error)
                self._place.forget()
        raise OutcomeUnknownError(
            f"whether the Delta table shows epoch {prepared.epoch} is not known",
            where=f"{self._place.url}: {last}",
            hint="Nothing is lost. The next start finds out and finishes it.",
        )

    def _show(self, prepared: Prepared) -> None:
        table = self._place.look()
        is_shown, version = self._epochs.shown_version(table, prepared)
        if not is_shown:
            try:
                version = self._apply(table, prepared)
            except DamageError:
                # another process may have shown it and cleared away
                is_shown, version = self._epochs.shown_version(self._place.look(), prepared)
                if not is_shown:
                    raise
        if version is not None:
            # executors have synced what they wrote; a merge writes files of its own
            merged = self._epochs.files_added_by(version) if self._keys else ()
            self._place.make_durable(version, merged)
        if self._keys:
            self._epochs.staging.remove_rows(prepared.attempt)
        last = self._last
        if last is None or last.identity.epoch <= prepared.epoch:
            self._last = _Shown(prepared, version)
            if last is not None and last.identity.epoch < prepared.epoch:
                self._epochs.staging.forget_shown(last.identity.attempt)

    def _require_last(self, table: DeltaTable) -> None:
        """:class:`LineageError` when the table has lost what this run has shown last."""
        if self._last is not None:
            last = self._last.identity
            is_shown, _ = self._epochs.shown_version(table, last)
            if not is_shown:
                raise no_longer_shown(last, "table", self._place.url)

    def _apply(self, table: DeltaTable, prepared: Prepared) -> int:
        """Write the entry of the log; its version."""
        self._target.check_staged(table, prepared)
        self._require_last(table)
        receipt = self._staged_receipt(prepared)
        added = self._added(prepared)
        self._target.check_columns(table, added)
        before = table.version()
        with self._place.translated("committing to", write=True):
            self._write_entry(table, receipt, added)
        if self._epochs.is_entry_of(before + 1, prepared):
            return before + 1
        is_shown, version = self._epochs.shown_version(self._place.look(), prepared)
        if not is_shown or version is None:
            raise StoreUnavailableError("the entry is not in the log yet", where=self._place.url)
        return version

    def _staged_receipt(self, prepared: Prepared) -> Receipt:
        """The record of the attempt, which is there until it is taken back or cleared away."""
        receipt = self._epochs.staging.staged(prepared.attempt)
        if receipt is None or not prepared.is_shown_by(receipt):
            raise DamageError(
                f"epoch {prepared.epoch} is neither shown nor staged any more",
                where=self._place.url,
                hint="Roll the pipeline back to the newest epoch that the table shows.",
            )
        return receipt

    def _added(self, prepared: Prepared) -> FileList:
        """What the epoch adds, after a look whether it is all still there."""
        staging = self._epochs.staging
        if prepared.added is not None and prepared == self._known:
            return prepared.added  # this process has just listed its own
        digest = prepared.list_digest if prepared.added is None else None
        added = kept_list(staging.read_list(prepared.attempt, digest), prepared, self._place.url)
        if prepared != self._known:
            staging.require_files(prepared.attempt, added.files)
        return added

    def _properties(self, receipt: Receipt) -> CommitProperties:
        transactions = self._epochs.transactions(receipt.timeline, receipt.epoch)
        return epoch_properties(receipt, transactions, self._mode)

    def _write_entry(self, table: DeltaTable, receipt: Receipt, added: FileList) -> None:
        properties = self._properties(receipt)
        if self._keys:
            changes = read_changes(self._epochs.staging.blobs, added.files)
            if changes is not None and changes.num_rows:
                required = self._target.check_columns(table, added).never_null
                check_required(
                    changes, required, self._delete_where, receipt.epoch, self._place.url
                )
                columns = [*added.columns]
                merge(table, changes, self._keys, columns, self._delete_where, properties)
                return
        files = () if self._keys else added.files
        path_of = self._epochs.staging.path_in_table
        add_files(table, ((path_of(file), file) for file in files), self._mode, properties)

    def read_point(self, committable: Committable) -> ReadPoint | None:
        identity = identity_in(committable, Identity)
        version = None
        if self._last is not None and self._last.identity.attempt == identity.attempt:
            version = self._last.version
        if version is None:
            _, version = self._epochs.shown_version(self._place.look(), identity)
        return (
            None if version is None else ReadPoint("delta", self._place.url, {"version": version})
        )

    # looking after what there is

    def abort(self, attempt: str) -> None:
        is_own = self._staged is not None and self._staged[0].attempt == attempt
        self._epochs.abort(attempt, is_own=is_own)

    def leftovers(self) -> list[str]:
        return self._epochs.leftovers()

    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        return self._epochs.committed(epoch)

    def newest(self) -> Receipt | None:
        return self._epochs.newest()

    def require_unpublish_after(self, epoch: int) -> None:
        self._epochs.plan_take_back(self._place.look(), epoch)

    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        self._last = None
        self._target.forget()  # columns that were added since go too, and the next epoch has them
        return self._epochs.take_back(epoch, of)

    def compact(self, **options: Any) -> dict[str, Any]:
        """Merge small files into larger ones; what ``deltalake`` says it has done.

        Only files that the log names are touched. ``options`` are those of
        ``DeltaTable.optimize.compact``.
        """
        return compact(self._place, options)

    def vacuum(self, retention_hours: int | None = None, *, dry_run: bool = False) -> list[str]:
        """Remove files that no version within the time of retention needs; which they were.

        Files of epochs that are staged or decided stay, however old they are. So do files that no
        entry of the log has named, for an hour: somebody may be about to.
        """
        return vacuum(self._place, retention_hours, dry_run=dry_run)
