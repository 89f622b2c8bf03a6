"""Rows in a table of Iceberg, an epoch at a time: one commit shows its files and changes its mark.

Tests: ``tests/sinks/test_iceberg_conformance.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from seamark._common.text import backquoted
from seamark.errors import InvalidInputError, RefusedError
from seamark.sinks.contract import (
    Committable,
    Description,
    Epoch,
    Identity,
    Receipt,
    Sink,
    gone_on,
    identity_in,
    receipt_of,
    require_given_up,
    require_own,
)
from seamark.sinks.folders import check_token
from seamark.sinks.iceberg.catalog import Place
from seamark.sinks.iceberg.columns import check_columns, check_keys
from seamark.sinks.iceberg.commits import Committer, Mode, Prepared
from seamark.sinks.iceberg.data_files import metadata_for_tasks, write_list
from seamark.sinks.iceberg.marks import Output
from seamark.sinks.iceberg.merging import merge_schema, merged_schema
from seamark.sinks.iceberg.spark_job import Job, Written, write_rows
from seamark.sinks.iceberg.staging import KEYS, Staging
from seamark.sinks.iceberg.table_checks import check_table, refuse_equality_deletes
from seamark.sinks.iceberg.taking_back import WayBack, way_back
from seamark.sinks.iceberg.upserts import REMOVED, joined_keys
from seamark.sinks.read_point import ReadPoint
from seamark.sinks.tables.equal_rows import distinct_rows
from seamark.sinks.tables.row_transfer import RowTransfer

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from seamark.sinks.iceberg.marks import Mark
    from seamark.sinks.iceberg.snapshots import Change

SchemaRule = Literal["strict", "merge"]


class IcebergSink(Sink):
    """A table of Iceberg, exactly once.

    ``catalog`` is the name of a catalog that pyiceberg is configured for, or a mapping of its
    properties (with its ``name``, when that is not ``default``). ``table`` is
    ``namespace.table`` and must exist; columns are matched by name.

    ``append`` adds the rows. ``overwrite`` has an epoch replace whatever is in the table.
    ``upsert`` has one row for each value of the ``keys``: a later row takes the place of an earlier
    one, and where the boolean column ``delete_where`` is true the row goes. With
    ``schema="merge"`` columns that the table lacks are added, and types widened, before the first
    epoch.
    """

    consumes_all = True

    def __init__(
        self,
        catalog: str | Mapping[str, str],
        table: str,
        mode: Mode = "append",
        keys: str | Sequence[str] = (),
        delete_where: str | None = None,
        schema: SchemaRule = "strict",
    ) -> None:
        if mode not in get_args(Mode):
            raise InvalidInputError(f"an IcebergSink appends, upserts or overwrites, not {mode!r}")
        if schema not in get_args(SchemaRule):
            raise InvalidInputError(f"schema is 'strict' or 'merge', not {schema!r}")
        self._place = Place(catalog, table)
        self._mode: Mode = mode
        self._keys = (keys,) if isinstance(keys, str) else (*keys,)
        self._delete_where = delete_where
        self._schema: SchemaRule = schema
        if (mode == "upsert") != bool(self._keys):
            raise InvalidInputError("'upsert' needs keys, and the other modes have none")
        if mode != "upsert" and delete_where is not None:
            raise InvalidInputError("only 'upsert' can delete rows")
        self._output = Output("", "")
        self._columns: list[str] = []
        self._to_merge: StructType | None = None
        """Columns that the table may lack yet."""
        self._committer = Committer(self._place)
        self._transfer = RowTransfer()
        self._staged: tuple[Receipt, Table, Written] | None = None
        self._prepared: tuple[str, list[DataFile]] | None = None

    def describe(self) -> Description:
        options = {
            "mode": self._mode,
            "keys": list(self._keys),
            "delete_where": self._delete_where,
            "schema": self._schema,
        }
        return Description("iceberg", self._place.described, options)

    def open(self, pipeline: str, sink: str, schema: StructType) -> None:
        self._output = Output(pipeline, sink)
        self._staged = self._prepared = None  # an earlier run may have ended without a close
        self._committer.forget()
        where = self._place.described
        table = self._place.load()
        check_table(table.metadata, where)
        self._check_deletes(table)
        check_keys(schema, self._keys, self._delete_where, where)
        columns = table.schema()
        if self._schema == "merge":
            columns = merged_schema(self._place, table, schema, self._delete_where)
            self._to_merge = schema
        self._columns = check_columns(schema, columns, self._delete_where, where)
        with self._place.translated("looking into the table's folder"):
            Staging.of(table, self._output).attempts()

    def prepare_target(self) -> None:
        if (schema := self._to_merge) is not None:
            merge_schema(self._place, self._place.load(), schema, self._delete_where)
            self._to_merge = None

    def _check_deletes(self, table: Table) -> None:
        if self._keys:
            refuse_equality_deletes(table.metadata, self._place.described)

    def close(self) -> None:
        self._staged = self._prepared = None
        self._place.close()

    # writing an epoch

    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        for text, what in (
            (epoch.timeline, "a timeline"),
            (epoch.fingerprint, "a fingerprint"),
            (attempt, "an attempt"),
        ):
            check_token(text, what)
        self._staged = self._prepared = None
        self.prepare_target()
        output = Output(epoch.pipeline, epoch.sink)
        table = self._place.load()
        self._committer.require_last(table)
        check_table(table.metadata, self._place.described)
        self._check_deletes(table)
        check_columns(df.schema, table.schema(), self._delete_where, self._place.described)
        receipt = receipt_of(epoch, attempt)
        with self._place.translated("staging an epoch"):
            self._require_not_shown(table, output, attempt)
            Staging.of(table, output).begin(receipt)
        job = Job(metadata_for_tasks(table.metadata), table.io, output, attempt, self._keys)
        self._staged = (receipt, table, self._write(df, job))

    def _write(self, df: DataFrame, job: Job) -> Written:
        return write_rows(self._rows(df), job, self._place.described, self._transfer)

    def _rows(self, df: DataFrame) -> DataFrame:
        rows = df
        if (flag := self._delete_where) is not None:
            kept = [backquoted(name) for name in df.columns if name != flag]
            rows = df.selectExpr(*kept, f"coalesce({backquoted(flag)}, false) AS `{REMOVED}`")
        # equal rows of one key are one row
        return distinct_rows(rows) if self._keys else rows

    def prepare(self) -> Committable:
        if self._staged is None:
            raise InvalidInputError(
                "nothing was staged that could be prepared", where=self._place.described
            )
        receipt, table, written = self._staged
        staging = Staging.of(table, Output(receipt.pipeline, receipt.sink))
        list_digest = keys_digest = None
        with self._place.translated("making an epoch durable"):
            keys = joined_keys(written.keys, self._keys, receipt.epoch, self._place.described)
            if keys is not None:
                keys_digest = staging.write(receipt.attempt, KEYS, keys)
            if written.files:
                list_digest = write_list(written.files, table.metadata, staging, receipt.attempt)
            if list_digest is None and keys_digest is None:
                staging.note_prepared(receipt.attempt)
        prepared = Prepared(
            timeline=receipt.timeline,
            epoch=receipt.epoch,
            fingerprint=receipt.fingerprint,
            attempt=receipt.attempt,
            pipeline=receipt.pipeline,
            sink=receipt.sink,
            table=str(table.metadata.table_uuid),
            mode=self._mode,
            spec=table.metadata.default_spec_id,
            files=len(written.files),
            rows=written.rows,
            list_digest=list_digest,
            keys=list(self._keys),
            keys_digest=keys_digest,
        )
        self._prepared = (receipt.attempt, written.files)
        committable: Committable = msgspec.to_builtins(prepared)
        return committable

    def commit(self, committable: Committable) -> None:
        prepared = identity_in(committable, Prepared)
        own = {"pipeline": self._output.pipeline, "sink": self._output.sink}
        require_own(committable, own, self._output.sink, self._place.described)
        self._require_same_mode(prepared)
        attempt, files = self._prepared or ("", [])
        self._committer.commit(prepared, files if attempt == prepared.attempt else None)
        self._prepared = None

    def _require_same_mode(self, prepared: Prepared) -> None:
        """:class:`RefusedError` for another mode or keys: they decide which rows are removed."""
        if (prepared.mode, tuple(prepared.keys)) != (self._mode, self._keys):
            raise RefusedError(
                f"epoch {prepared.epoch} was staged in another mode, or with other keys, than the "
                "sink has now",
                where=self._place.described,
                hint="Start once with those of before, so that the epoch can be finished.",
            )

    def read_point(self, committable: Committable) -> ReadPoint | None:
        identity = identity_in(committable, Identity)
        shown = self._committer.remembered(identity) or self._looked_up(identity)
        if shown is None:
            return None
        snapshot, metadata = shown
        at = {
            "catalog": self._place.catalog_name,
            "catalog_is_configured": self._place.is_configured,
            "table": self._place.table_name,
            # as text: few programs that read JSON keep all 64 bits of a number
            "snapshot_id": str(snapshot),
            # for readers that know no catalog
            "metadata_location": metadata,
        }
        return ReadPoint("iceberg", self._place.described, at)

    def _looked_up(self, identity: Identity) -> tuple[int, str] | None:
        """The snapshot of an epoch and the metadata that came with it; None if unknown."""
        from seamark.sinks.iceberg.snapshots import first_metadata_with

        table = self._place.load()
        with self._place.translated("looking up an epoch"):
            mark = self._committer.shown(self._output, table, identity.epoch)
            if mark is None or not mark.snapshot or not mark.is_of(identity):
                return None
            return mark.snapshot, first_metadata_with(table, mark.snapshot)

    # looking after what there is

    def abort(self, attempt: str) -> None:
        table = self._place.load()
        staging = Staging.of(table, self._output)
        self._committer.settle(self._output, table)
        with self._place.translated("removing what was staged"):
            shown = self._output.has_shown(table.metadata, attempt)
            is_own = self._staged is not None and self._staged[0].attempt == attempt
            if not shown and not is_own and staging.is_prepared(attempt):
                shown = not self._committer.shut_out(self._output, attempt)
            staging.remove(attempt, None if shown else ())

    def _require_not_shown(self, table: Table, output: Output, attempt: str) -> None:
        if output.has_shown(table.metadata, attempt):
            raise RefusedError(
                f"attempt {attempt} is in the table already and cannot be staged again",
                where=self._place.described,
            )

    def leftovers(self) -> list[str]:
        table = self._place.load()
        with self._place.translated("listing what was staged"):
            return Staging.of(table, self._output).attempts()

    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        table = self._place.load()
        with self._place.translated("looking up an epoch"):
            mark = self._committer.shown(self._output, table, epoch)
            return None if mark is None else self._receipt(table, mark)

    def newest(self) -> Receipt | None:
        table = self._place.load()
        mark = self._output.shown_mark(table.metadata)
        with self._place.translated("looking up an epoch"):
            return None if mark is None else self._receipt(table, mark)

    def _receipt(self, table: Table, mark: Mark) -> Receipt:
        """The record of an epoch, with its plan for as long as that is kept."""
        bare = mark.receipt(self._output.pipeline, self._output.sink)
        staging = Staging.of(table, self._output)
        for kept in (staging.record(mark.epoch), staging.staged(mark.attempt)):
            if kept is not None and msgspec.structs.replace(kept, plan=None) == bare:
                return kept
        return bare

    # taking epochs back

    def require_unpublish_after(self, epoch: int) -> None:
        self._way_back(self._place.load(), epoch)

    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        from seamark.sinks.iceberg.snapshots import Change

        self._committer.forget()
        taken: tuple[int, ...] = ()
        first: Mark | None = None

        def plan(table: Table) -> tuple[Change, Mark | None] | None:
            nonlocal taken, first
            way = self._way_back(table, epoch)
            if way is None:
                return None
            newest = self._output.shown_mark(table.metadata)
            first = first or newest
            if newest is not None:
                require_given_up(newest, of, self._place.described)
                if newest != first:
                    raise gone_on(newest, self._place.described)
            taken = way.taken
            return Change(parent=way.snapshot), way.mark

        self._committer.change_mark(self._output, plan)
        if taken:
            with self._place.translated("forgetting epochs"):
                Staging.of(self._place.load(), self._output).forget(taken)
        return list(taken)

    def _way_back(self, table: Table, epoch: int) -> WayBack | None:
        return way_back(table.metadata, self._output, epoch, self._place.described)
