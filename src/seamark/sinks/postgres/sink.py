"""Rows in a table of PostgreSQL, an epoch at a time: staged by COPY, shown by one transaction.

The deciding transaction enters the epoch into a ledger beside the table, moves the staged rows and
drops the staging table. Whoever gets no answer looks into the ledger.

Tests: ``tests/sinks/test_postgres.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from seamark._common.logs import logger_named
from seamark.errors import InvalidInputError, RefusedError, StoreUnavailableError
from seamark.sinks.contract import (
    Committable,
    Description,
    Epoch,
    Identity,
    Receipt,
    Sink,
    another_lineage,
    identity_in,
    require_given_up,
    require_own,
)
from seamark.sinks.folders import check_token
from seamark.sinks.postgres.catalog import Table, read_table, table_oid
from seamark.sinks.postgres.columns import element_lengths, rounding_columns, text_lengths
from seamark.sinks.postgres.connections import TableAddress, in_own_path
from seamark.sinks.postgres.copying import Copied, copy_rows
from seamark.sinks.postgres.history_checks import (
    another_table,
    require_numbers,
    require_same_table,
    require_shown,
)
from seamark.sinks.postgres.ledger import Ledger
from seamark.sinks.postgres.publishing import (
    Prepared,
    check_staged,
    moving,
    require_same_keys,
    require_staged,
)
from seamark.sinks.postgres.staging import REMOVED, Staging
from seamark.sinks.postgres.table_checks import WriteOptions, check_table
from seamark.sinks.postgres.values import (
    as_text,
    refusing_long_elements,
    refusing_rounded,
    rewritten_columns,
    without_long_elements,
    without_rounded,
)
from seamark.sinks.read_point import ReadPoint
from seamark.sinks.unfit_values import refusing_broken_texts, with_whole_texts
from seamark.spark.batch_log import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from seamark.sinks.postgres.connections import Rows

log = logger_named("seamark.sinks")

_PAUSES: Final = (0.0, 0.1, 0.5)
"""Seconds before a commit is tried again; the pipeline has more patience than that."""


class PostgresSink(Sink):
    """A table of PostgreSQL, exactly once.

    ``append`` adds the rows. ``upsert`` keeps one row for each value of the ``keys``, which must be
    the columns of a unique index: a later row replaces an earlier one, and where the boolean column
    ``delete_where`` is true the row is deleted. The table must exist; columns are matched by name,
    and those that the output lacks get their default. ``epoch_column`` is a bigint column of the
    table for the number of the epoch (``append`` only): with it a rollback can take rows back.

    ``dsn`` is an address as libpq takes it, ``table`` is ``"table"``, ``"schema.table"`` or
    ``("schema", "table")``. Executors connect too, one connection for each running task;
    ``connections`` limits them. Leave the password to the environment of driver and executors
    (``PGPASSWORD``, ``PGPASSFILE``), or put it into the address: it is not stored anywhere.
    """

    consumes_all = True

    def __init__(
        self,
        dsn: str,
        table: str | tuple[str, str],
        mode: Literal["append", "upsert"] = "append",
        keys: str | Sequence[str] = (),
        delete_where: str | None = None,
        epoch_column: str | None = None,
        connections: int | None = None,
    ) -> None:
        if connections is not None and connections < 1:
            raise InvalidInputError(f"connections is a number from 1, not {connections!r}")
        self._options = WriteOptions.of(mode, keys, delete_where, epoch_column)
        self._address = TableAddress.of(dsn, table)
        self._connections = connections
        self._open_as("", "")
        self._table: Table | None = None
        self._is_ready = False
        """Whether the ledger was made, or brought up to date, in this run."""
        self._has_unnumbered_rows = False
        self._columns: list[str] = []
        self._staged: Prepared | None = None
        self._last: Prepared | None = None
        """What this run has shown last."""

    def describe(self) -> Description:
        options = {
            "mode": "upsert" if self._options.keys else "append",
            "keys": list(self._options.keys),
            "delete_where": self._options.delete_where,
            "epoch_column": self._options.epoch_column,
        }
        return Description("postgres", self._address.shown, options)

    def open(self, pipeline: str, sink: str, schema: StructType) -> None:
        self._open_as(pipeline, sink)
        self._last = None
        self._is_ready = False
        with self._address.transaction() as connection:
            self._table = read_table(connection, self._address)
            self._columns = check_table(self._table, schema, self._options, self._address.shown)
            self._ledger.create(connection)
            self._check_ledger(connection, self._table)
            connection.rollback()

    def prepare_target(self) -> None:
        if self._table is not None and not self._is_ready:
            with self._writing() as connection:
                self._check_ledger(connection, self._table)
            self._is_ready = True

    def _check_ledger(self, connection: Rows, table: Table) -> None:
        require_same_table(connection, self._ledger, table.oid)
        column = self._options.epoch_column
        if column is not None:
            self._refuse_another_output(connection)
            self._has_unnumbered_rows = bool(self._ledger.unnumbered(connection, column))

    @contextmanager
    def _writing(self) -> Iterator[Rows]:
        """A transaction that has the ledger, which it makes where there is none."""
        with self._address.transaction() as connection:
            if not self._is_ready:
                self._ledger.create(connection)
            yield connection

    @contextmanager
    def _looking(self) -> Iterator[Rows]:
        """The same, rolled back while the target may not be changed."""
        with self._writing() as connection:
            yield connection
            if not self._is_ready:
                connection.rollback()

    def _open_as(self, pipeline: str, sink: str) -> None:
        self._ledger = Ledger(self._address, pipeline, sink)
        self._staging = Staging(self._address, pipeline, sink)

    def _refuse_another_output(self, connection: Rows) -> None:
        """Two outputs count their epochs on their own, so one column cannot tell them apart."""
        if other := self._ledger.another_output(connection):
            raise RefusedError(
                f"{other} writes to this table too, and its epochs have the same numbers",
                where=self._address.shown,
                hint="Write to a table of its own, or without epoch_column.",
            )

    # writing an epoch

    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        self._begin(epoch, attempt)
        shown, columns = self._address.shown, self._opened().columns
        of_elements = element_lengths(df.schema, columns)
        rounding = rounding_columns(df.schema, columns)
        whole = with_whole_texts(df, rewritten_columns(df.schema))
        exact = without_rounded(without_long_elements(whole, of_elements), rounding)
        rows = self._as_text(exact)
        statement = self._staging.copy_statement(attempt, rows.columns)
        lengths = text_lengths(rows.schema, columns)
        refusing = refusing_long_elements(of_elements, shown), refusing_rounded(rounding, shown)
        with refusing[0], refusing[1], refusing_broken_texts(shown, "PostgreSQL"):
            copied = copy_rows(rows, self._address.dsn, statement, shown, lengths)
        self._staged = self._prepared(epoch, attempt, copied)

    def _begin(self, epoch: Epoch, attempt: str) -> None:
        """Make an empty staging table."""
        check_token(attempt, "an attempt")
        self._staged = None
        table, options = self._opened(), self._options
        self.prepare_target()
        column = options.epoch_column
        with self._address.transaction() as connection:
            if self._last is not None:
                require_shown(connection, self._ledger, self._last)
            self._staging.create(
                connection,
                table,
                attempt,
                self._columns,
                keys=options.keys,
                has_removals=options.delete_where is not None,
                epoch=None if column is None else (column, epoch.number),
            )

    def _prepared(self, epoch: Epoch, attempt: str, copied: Copied) -> Prepared:
        return Prepared(
            timeline=epoch.timeline,
            epoch=epoch.number,
            fingerprint=epoch.fingerprint,
            attempt=attempt,
            pipeline=epoch.pipeline,
            sink=epoch.sink,
            columns=self._columns,
            tokens=copied.tokens,
            rows=copied.rows,
            keys=list(self._options.keys),
            has_removals=self._options.delete_where is not None,
            epoch_column=self._options.epoch_column,
            plan=msgspec.to_builtins(epoch.plan),
        )

    def _opened(self) -> Table:
        if self._table is None:
            raise InvalidInputError("the sink was not opened", where=self._address.shown)
        return self._table

    def _as_text(self, df: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        from seamark._common.text import backquoted

        columns = as_text(df, self._columns)
        if self._options.delete_where is not None:
            flag = f.col(backquoted(self._options.delete_where))
            columns.append(f.coalesce(flag, f.lit(False)).alias(REMOVED))
        rows = df.select(*columns)
        return rows if self._connections is None else rows.coalesce(self._connections)

    def prepare(self) -> Committable:
        staged = self._staged
        if staged is None:
            raise InvalidInputError(
                "nothing was staged that could be prepared", where=self._address.shown
            )
        table = self._opened()
        with self._address.transaction() as connection:
            if staged.keys or table.indexes:
                with in_own_path(connection):
                    check_staged(connection, table, self._staging, staged)
            self._staging.note_prepared(connection, staged.attempt, staged.digest)
        committable: Committable = msgspec.to_builtins(staged)
        return committable

    # showing it

    def commit(self, committable: Committable) -> None:
        prepared = identity_in(committable, Prepared)
        own = {"pipeline": self._staging.pipeline, "sink": self._staging.sink}
        require_own(committable, own, self._staging.sink, self._address.shown)
        require_same_keys(prepared, self._options, self._address.shown)
        for pause in _PAUSES:
            try:
                self._show(prepared)
                break
            except StoreUnavailableError as error:
                # it may have worked: the next try looks into the ledger
                log.warning("epoch %d is tried again: %s", prepared.epoch, error)
                time.sleep(pause)
        else:
            self._show(prepared)
        self._last = prepared

    def _show(self, prepared: Prepared) -> None:
        with self._writing() as connection:
            ledger = Ledger(self._address, prepared.pipeline, prepared.sink)
            column = prepared.epoch_column
            if not ledger.enter(connection, _receipt(prepared), prepared.rows, column):
                shown = ledger.entry(connection, prepared.epoch)
                if shown is None:
                    raise StoreUnavailableError(
                        "another process has just taken the epoch back", where=self._address.shown
                    )
                if not prepared.is_shown_by(shown):
                    raise another_lineage(shown, prepared, self._address.shown)
                return
            staging = Staging(self._address, prepared.pipeline, prepared.sink)
            require_staged(connection, staging, prepared)
            with in_own_path(connection):
                for statement in moving(staging, prepared, self._table):
                    connection.execute(statement, {"tokens": prepared.tokens})
            # nobody can drop the table any more: it has rows of this transaction
            if self._table is not None and self._table.oid != table_oid(connection, self._address):
                raise another_table(self._address, prepared.epoch)
        if prepared.rows and column != self._options.epoch_column:
            self._has_unnumbered_rows = True

    def read_point(self, committable: Committable) -> ReadPoint:
        from psycopg.sql import SQL, Identifier

        column, epoch = self._options.epoch_column, identity_in(committable, Identity).epoch
        at: dict[str, int | str] = {
            "epoch": epoch,
            "table": self._address.identifier().as_string(),
        }
        tells_epochs = column is not None and not self._has_unnumbered_rows
        if column is not None and tells_epochs:
            at["condition"] = SQL("{} <= {}").format(Identifier(column), epoch).as_string()
        return ReadPoint("postgres", self._address.shown, at, only_newest=not tells_epochs)

    # looking after what is there

    def abort(self, attempt: str) -> None:
        check_token(attempt, "an attempt")
        with self._address.transaction() as connection:
            if attempt in self._staging.attempts(connection):
                self._staging.drop(connection, attempt)

    def leftovers(self) -> list[str]:
        with self._address.transaction() as connection:
            return sorted(self._staging.attempts(connection))

    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        with self._looking() as connection:
            return self._ledger.entry(connection, epoch)

    def newest(self) -> Receipt | None:
        with self._looking() as connection:
            return self._ledger.entry(connection)

    def require_unpublish_after(self, epoch: int) -> None:
        with self._looking() as connection:
            self._require_can_take_back(connection, epoch)

    def _require_can_take_back(self, connection: Rows, epoch: int) -> str:
        """The column that tells which rows are taken back."""
        column = self._options.epoch_column
        if column is None:
            raise RefusedError(
                "the table does not tell which rows came in which epoch",
                where=self._address.shown,
                hint="With mode='append' and epoch_column it does. Otherwise roll back without "
                "this sink, or write to a new table.",
            )
        self._refuse_another_output(connection)
        lacking = self._ledger.unnumbered(connection, column, after=epoch)
        require_numbers(self._address, column, lacking)
        return column

    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        self._last = None
        with self._writing() as connection:
            column = self._require_can_take_back(connection, epoch)
            newest = self._ledger.hold_after(connection, epoch)
            if newest is not None:
                require_given_up(newest, of, self._address.shown)
            taken = self._ledger.forget_after(connection, epoch) if newest is not None else []
            if taken:
                table = read_table(connection, self._address)
                with in_own_path(connection):
                    self._staging.set_aside(connection, table, column, taken)
        return taken


def _receipt(prepared: Prepared) -> Receipt:
    return Receipt(
        pipeline=prepared.pipeline,
        sink=prepared.sink,
        timeline=prepared.timeline,
        epoch=prepared.epoch,
        fingerprint=prepared.fingerprint,
        attempt=prepared.attempt,
        plan=None if prepared.plan is None else msgspec.convert(prepared.plan, Plan),
    )
