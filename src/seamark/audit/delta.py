"""What a Delta table shows: the rows that each epoch has added, and the table as it is now.

Tests: ``tests/audit/test_delta.py``, ``tests/audit/test_damaged_lists.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from seamark._common.arrow_tables import sized_tables
from seamark._common.text import first_line
from seamark._redaction import redacted
from seamark.audit.declared_rows import declared_schema, digest_of_batches
from seamark.audit.delta_entries import READ_AHEAD, DeltaEntries, entry_path
from seamark.audit.expectations import EpochRows, SinkHistory, whole_number
from seamark.audit.fetched_files import require_fetched
from seamark.audit.limited_targets import Reader, TriedTarget
from seamark.audit.shared_tables import SharedTables, table_place
from seamark.audit.tables import ReadOnce, TableVersions, compare_table
from seamark.audit.tried_rows import TriedRows, left_to_the_audit
from seamark.audit.verdicts import Shown
from seamark.errors import DamageError, InvalidInputError, StoreUnavailableError
from seamark.spark.row_digests import RowDigest
from seamark.table_formats.delta_addresses import is_known_address

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from seamark.sources.delta.log import AddedFile

_UNSUPPORTED: Final = "Kernel error: Unsupported"


def read_delta(
    spark: SparkSession,
    history: SinkHistory,
    storage_options: Mapping[str, str],
    tables: SharedTables | None = None,
) -> Iterator[Shown]:
    """What the table shows of each epoch, and of all together.

    What was read of the same table for other sinks is taken from ``tables``.

    A table that is neither at a path nor in a bucket is not read: nobody writes one there, and a
    server that only a checkpoint names is not spoken to.
    """
    schema = declared_schema(history.columns)
    if not is_known_address(history.target):
        note = "only tables at a path or in a bucket are read"
        yield Shown(first=history.since, last=history.newest.epoch, note=note)
        return
    if schema is None:
        note = "the types of its columns cannot be read from the checkpoint"
        yield Shown(first=history.since, last=history.newest.epoch, note=note)
        return
    tables = tables or SharedTables()
    place = "delta", table_place(history.target), *sorted(storage_options.items())
    opened = tables.once(place, None, lambda: _OpenedTable(history.target, storage_options))
    versions = tables.once(
        place, history.columns, lambda: ReadOnce(_DeltaVersions(spark, opened, schema))
    )
    try:
        yield from compare_table(history, versions)
    except _UnknownFeatureError as error:
        note = f"deltalake cannot read the table: {error}"
        yield Shown(first=history.since, last=history.newest.epoch, note=note)


def tried_target(history: SinkHistory, options: Mapping[str, str]) -> TriedTarget | None:
    """What :func:`read_delta` reads of the table of a sink; None when that is nothing."""
    if not history.epochs or not is_known_address(history.target):
        return None
    replaces = history.options.get("mode") == "overwrite"
    known = history.epochs if replaces else history.epochs[:1]
    versions = {version for each in known if (version := _version_of(each)) is not None}
    added = (
        () if replaces else {n for each in history.epochs if (n := _version_of(each)) is not None}
    )
    return TriedTarget(
        "delta", history.target, dict(options), (None, *sorted(versions)), tuple(sorted(added))
    )


def trier() -> Reader:
    """What reads the files of a table as :func:`read_delta` does."""
    import pyarrow.dataset  # noqa: F401 - what deltalake imports when a table is read
    from deltalake import DeltaTable

    def read_all(target: TriedTarget, rows: TriedRows) -> None:
        options = target.options or None
        newest = DeltaEntries(DeltaTable(target.place, None, options), options, target.place)
        for version in target.versions:
            with left_to_the_audit():  # also one that the log does not reach back to
                dataset = DeltaTable(target.place, version, options).to_pyarrow_dataset()
                newest.try_rows(dataset.get_fragments(), rows)
        for version in target.added:
            with left_to_the_audit():
                newest.try_files(newest.added(version) or [], rows)

    return read_all


def _version_of(known: EpochRows) -> int | None:
    at = known.point.at if known.point is not None else {}
    return whole_number(at.get("version"))


class _UnknownFeatureError(Exception):
    """The table has a feature, or a version of the protocol, that ``deltalake`` does not know."""


class _OpenedTable:
    """A table, and its newest version as it was when that was opened."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.url = url
        self._options = dict(options) or None

    @cached_property
    def newest(self) -> DeltaTable:
        """The version that readers see."""
        return self.at(None)

    @cached_property
    def entries(self) -> DeltaEntries:
        """The entries of its log."""
        return DeltaEntries(self.newest, self._options, redacted(self.url))

    def at(self, version: int | None) -> DeltaTable:
        """One of its versions."""
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import DeltaError, TableNotFoundError
        except ModuleNotFoundError:
            raise InvalidInputError(
                "reading a Delta table needs deltalake", hint="pip install 'seamark[delta]'"
            ) from None
        try:
            return DeltaTable(self.url, version=version, storage_options=self._options)
        except TableNotFoundError as error:
            raise DamageError(f"the table is gone: {_said(error)}") from None
        except DeltaError as error:
            if version is not None:
                raise  # the log may go back less far
            if _UNSUPPORTED in str(error):
                raise _UnknownFeatureError(_said(error)) from None
            raise DamageError(f"the log of the table cannot be read: {_said(error)}") from None
        except OSError as error:
            raise StoreUnavailableError(
                f"the table cannot be opened: {_said(error)}", where=self.url
            ) from None


class _DeltaVersions(TableVersions):
    def __init__(self, spark: SparkSession, table: _OpenedTable, schema: StructType) -> None:
        self._spark = spark
        self._table = table
        self._schema = schema

    def version_of(self, known: EpochRows) -> int | None:
        return _version_of(known)

    def newest(self) -> int:
        return self._table.newest.version()

    def added(self, version: int) -> RowDigest | None:
        entries = self._table.entries
        files: list[AddedFile] | None = None
        with _damage(entries, lambda: [entry_path(version), *(file.path for file in files or ())]):
            files = entries.added(version)
            if files is None:
                return None
            try:
                return self._digest(entries.rows(files, self._schema))
            except FileNotFoundError:
                if entries.needs_missing(file.path for file in files):
                    raise
                return None  # compacted and vacuumed: the rows are in other files

    def whole(self, version: int) -> RowDigest | None:
        from deltalake.exceptions import DeltaProtocolError

        table = self._at(version)
        if table is None:
            return None
        try:
            dataset: Any = None
            with _damage(self._table.entries, lambda: _paths_of(dataset)):
                dataset = table.to_pyarrow_dataset()
                try:
                    return self._digest(dataset.to_batches(**READ_AHEAD))
                except FileNotFoundError:
                    if self._table.entries.needs_missing(_paths_of(dataset)):
                        raise
                    return None  # vacuumed: later versions do not need it
        except DeltaProtocolError:
            return None  # it has got a feature that deltalake cannot read

    def count(self, version: int) -> int | None:
        table = self._at(version)
        if table is None:
            return None
        rows = table.get_add_actions(flatten=True).column("num_records").to_pylist()
        return None if None in rows else sum(rows)

    def _at(self, version: int) -> DeltaTable | None:
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return self._table.at(version)
        except TableNotFoundError as error:
            raise DamageError(f"the table is gone: {_said(error)}") from None
        except DeltaError:
            return None  # its log goes back less far

    def _digest(self, rows: Iterator[pa.RecordBatch]) -> RowDigest:
        return digest_of_batches(self._spark, sized_tables(rows), self._schema)


def _paths_of(dataset: Any) -> Iterator[str]:
    """The files of a version; none as long as its log was not read."""
    return iter(()) if dataset is None else (each.path for each in dataset.get_fragments())


@contextmanager
def _damage(entries: DeltaEntries, paths: Callable[[], Iterable[str]]) -> Iterator[None]:
    """:class:`DamageError` for rows that the log names and that cannot be read.

    :class:`StoreUnavailableError` when one of these files does not even come.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise DamageError(f"a file of the table is gone: {_said(error)}") from None
    except (OSError, ValueError) as error:
        require_fetched(entries.open, paths())
        raise DamageError(f"a file of the table cannot be read: {_said(error)}") from None


def _said(error: BaseException) -> str:
    return redacted(first_line(error))[:300]
