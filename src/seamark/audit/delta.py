"""What a Delta table shows: the files that each epoch has added, and the table as it is now.

Tests: ``tests/audit/test_delta.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from seamark._redaction import redacted
from seamark.audit.declared_rows import declared_schema, digest_of_batches, sized_tables
from seamark.audit.expectations import EpochRows, SinkHistory, whole_number
from seamark.audit.tables import TableVersions, compare_table
from seamark.audit.verdicts import Shown
from seamark.errors import DamageError, InvalidInputError, StoreUnavailableError
from seamark.spark.row_digests import RowDigest
from seamark.table_formats.delta_addresses import is_known_address

if TYPE_CHECKING:
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


class _DeltaVersions(TableVersions):
    def __init__(
        self, spark: SparkSession, url: str, options: Mapping[str, str], schema: StructType
    ) -> None:
        self._spark = spark
        self._url = url
        self._options = dict(options) or None
        self._schema = schema

    def version_of(self, known: EpochRows) -> int | None:
        at = known.point.at if known.point is not None else {}
        return whole_number(at.get("version"))

    def newest(self) -> int:
        return self._open(None).version()

    def added(self, version: int) -> RowDigest | None:
        now = self._at(version)
        before = self._at(version - 1) if version > 0 else None
        if now is None or (before is None and version > 0):
            return None
        old = set(before.file_uris()) if before is not None else set()
        return self._digest(now, set(now.file_uris()) - old)

    def whole(self, version: int) -> RowDigest | None:
        table = self._at(version)
        return None if table is None else self._digest(table, None)

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

    def _digest(self, table: DeltaTable, files: set[str] | None) -> RowDigest:
        if files is not None and not files:
            return RowDigest.empty()
        try:
            return digest_of_batches(
                self._spark, sized_tables(_batches(table, files)), self._schema
            )
        except FileNotFoundError as error:
            raise DamageError(f"a file of the table is gone: {_said(error)}") from None
        except (OSError, ValueError) as error:
            raise DamageError(f"a file of the table cannot be read: {_said(error)}") from None


def _batches(table: DeltaTable, files: set[str] | None) -> Iterable[Any]:
    dataset = table.to_pyarrow_dataset()
    if files is None:
        yield from dataset.to_batches()
        return
    by_depth: dict[int, set[str]] = {}
    for fragment in dataset.get_fragments():
        depth = fragment.path.count("/") + 1
        if depth not in by_depth:
            by_depth[depth] = {_last_names(uri, depth) for uri in files}
        if fragment.path in by_depth[depth]:
            yield from fragment.to_batches(schema=dataset.schema)


def _last_names(uri: str, count: int) -> str:
    """The end of a path, as many names of it."""
    return "/".join(uri.rsplit("/", count)[-count:])


def _said(error: BaseException) -> str:
    return redacted((str(error).strip().splitlines() or [type(error).__name__])[0])[:300]
