"""What a Delta table shows: the rows that each epoch has added, and the table as it is now.

Tests: ``tests/audit/test_delta.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from seamark._redaction import redacted
from seamark.audit.declared_rows import declared_schema, digest_of_batches, sized_tables
from seamark.audit.delta_entries import READ_AHEAD, DeltaEntries
from seamark.audit.expectations import EpochRows, SinkHistory, whole_number
from seamark.audit.limited_targets import Reader, TriedTarget
from seamark.audit.tables import TableVersions, compare_table
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
            if files is None:
                return None
            try:
                return self._digest(self._entries.rows(files, self._schema))
            except FileNotFoundError:
                if self._entries.needs_missing(files):
                    raise
                return None  # compacted and vacuumed: the rows are in other files

    def whole(self, version: int) -> RowDigest | None:
        from deltalake.exceptions import DeltaProtocolError

        table = self._at(version)
        if table is None:
            return None
        try:
            with _damage():
                return self._digest(table.to_pyarrow_dataset().to_batches(**READ_AHEAD))
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
