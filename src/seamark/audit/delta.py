"""What a Delta table shows: the rows that each epoch has added, and the table as it is now.

Tests: ``tests/audit/test_delta.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

from seamark._redaction import redacted
from seamark.audit.declared_rows import declared_schema, digest_of_batches, sized_tables
from seamark.audit.delta_entries import DeltaEntries
from seamark.audit.expectations import EpochRows, SinkHistory, whole_number
from seamark.audit.limited_tables import TriedTable
from seamark.audit.tables import TableVersions, compare_table
from seamark.audit.verdicts import Shown
from seamark.errors import DamageError, InvalidInputError, StoreUnavailableError
from seamark.spark.row_digests import RowDigest
from seamark.table_formats.delta_addresses import is_known_address

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def read_delta(
    spark: SparkSession, history: SinkHistory, storage_options: Mapping[str, str]
) -> Iterator[Shown]:
    """What the table shows of each epoch, and of all together.

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
    yield from compare_table(
        history, _DeltaVersions(spark, history.target, storage_options, schema)
    )


def tried_table(history: SinkHistory, options: Mapping[str, str]) -> TriedTable | None:
    """What :func:`read_delta` opens of the table of a sink; None when that is nothing."""
    if not history.epochs or not is_known_address(history.target):
        return None
    known = history.epochs if history.options.get("mode") == "overwrite" else history.epochs[:1]
    versions = {version for each in known if (version := _version_of(each)) is not None}
    return TriedTable("delta", history.target, dict(options), (None, *sorted(versions)))


def opener() -> Callable[[TriedTable], None]:
    """What opens the versions of a table as :func:`read_delta` does."""
    import pyarrow.dataset  # noqa: F401 - what deltalake imports when a table is read
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    def open_versions(table: TriedTable) -> None:
        for version in table.versions:
            with suppress(DeltaError):  # one that the log does not reach back to
                DeltaTable(table.place, version, table.options or None).to_pyarrow_dataset()

    return open_versions


def _version_of(known: EpochRows) -> int | None:
    at = known.point.at if known.point is not None else {}
    return whole_number(at.get("version"))


class _DeltaVersions(TableVersions):
    def __init__(
        self, spark: SparkSession, url: str, options: Mapping[str, str], schema: StructType
    ) -> None:
        self._spark = spark
        self._url = url
        self._options = dict(options) or None
        self._schema = schema

    def version_of(self, known: EpochRows) -> int | None:
        return _version_of(known)

    def newest(self) -> int:
        return self._open(None).version()

    def added(self, version: int) -> RowDigest | None:
        with _damage():
            files = self._entries.added(version)
            return None if files is None else self._digest(self._entries.rows(files, self._schema))

    def whole(self, version: int) -> RowDigest | None:
        from deltalake.exceptions import DeltaProtocolError

        table = self._at(version)
        if table is None:
            return None
        try:
            with _damage():
                return self._digest(table.to_pyarrow_dataset().to_batches())
        except DeltaProtocolError:
            return None  # it has got a feature that deltalake cannot read

    @cached_property
    def _entries(self) -> DeltaEntries:
        return DeltaEntries(self._open(None), self._options, redacted(self._url))

    def _at(self, version: int) -> DeltaTable | None:
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return self._open(version)
        except TableNotFoundError as error:
            raise DamageError(f"the table is gone: {_said(error)}") from None
        except DeltaError:
            return None  # its log goes back less far

    def _open(self, version: int | None) -> DeltaTable:
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import TableNotFoundError
        except ModuleNotFoundError:
            raise InvalidInputError(
                "reading a Delta table needs deltalake", hint="pip install 'seamark[delta]'"
            ) from None
        try:
            return DeltaTable(self._url, version=version, storage_options=self._options)
        except TableNotFoundError as error:
            raise DamageError(f"the table is gone: {_said(error)}") from None
        except OSError as error:
            raise StoreUnavailableError(
                f"the table cannot be opened: {_said(error)}", where=self._url
            ) from None

    def _digest(self, rows: Iterator[pa.RecordBatch]) -> RowDigest:
        return digest_of_batches(self._spark, sized_tables(rows), self._schema)


@contextmanager
def _damage() -> Iterator[None]:
    """:class:`DamageError` for rows that the log names and that cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamageError(f"a file of the table is gone: {_said(error)}") from None
    except (OSError, ValueError) as error:
        raise DamageError(f"a file of the table cannot be read: {_said(error)}") from None


def _said(error: BaseException) -> str:
    return redacted((str(error).strip().splitlines() or [type(error).__name__])[0])[:300]
