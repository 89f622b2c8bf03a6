"""What an Iceberg table shows: the files that each epoch has added, and the table as it is now.

Tests: ``tests/audit/test_iceberg.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from seamark._redaction import redacted
from seamark.audit.declared_rows import declared_schema, digest_of_batches, sized_tables
from seamark.audit.expectations import EpochRows, SinkHistory, whole_number
from seamark.audit.tables import TableVersions, compare_table
from seamark.audit.verdicts import Shown
from seamark.errors import DamageError, InvalidInputError, SeamarkError, StoreUnavailableError
from seamark.spark.row_digests import RowDigest
from seamark.table_formats.iceberg_settings import guard, refuse_overruling, static_table
from seamark.table_formats.services import is_path_or_bucket, is_same_service

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def read_iceberg(
    spark: SparkSession,
    history: SinkHistory,
    storage_options: Mapping[str, str],
    metadata: str | None = None,
    store: str = "",
) -> Iterator[Shown]:
    """What the table shows of each epoch, and of all together.

    It is opened by the name of its catalog, if pyiceberg is configured for that, else by the
    metadata file that the newest epoch has written; ``metadata`` names another one. One that only
    the checkpoint names gets the options only if it is in the service of the ``store``, and is
    not read at a server that is neither this machine nor a bucket's. It is refused
    (:class:`RefusedError`) when it is larger than :mod:`seamark.limits` allows.
    """
    first, last = history.since, history.newest.epoch
    schema = declared_schema(history.columns)
    if schema is None:
        note = "the types of its columns cannot be read from the checkpoint"
        yield Shown(first=first, last=last, note=note)
        return
    try:
        opened = _opened(history, storage_options, metadata, store)
    except DamageError as error:
        yield Shown(first=first, last=last, expected=history.newest.total, damage=error.what)
        return
    if opened is None:
        note = f"say where its metadata file is: --target {history.sink}=….metadata.json"
        yield Shown(first=first, last=last, note=note)
        return
    table, is_now = opened
    yield from compare_table(history, _Snapshots(spark, table, schema, is_now=is_now))
    if not is_now:
        note = (
            "its catalog is not known here: the table was read as the newest epoch has left it, "
            "and later changes of others are not seen"
        )
        yield Shown(first=last, last=last, note=note)


def _opened(
    history: SinkHistory, options: Mapping[str, str], metadata: str | None, store: str
) -> tuple[Table, bool] | None:
    """The table, and whether it is as it is now; None if only a checkpoint names its server."""
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError
    except ModuleNotFoundError:
        raise InvalidInputError(
            "reading an Iceberg table needs pyiceberg", hint="pip install 'seamark[iceberg]'"
        ) from None
    at: Mapping[str, Any] = history.newest.point.at if history.newest.point is not None else {}
    catalog, name = at.get("catalog"), at.get("table")
    try:
        if metadata is None and catalog and name and at.get("catalog_is_configured") is not False:
            try:
                opened = load_catalog(str(catalog), **options)
                guard(opened, history.target)
                table = opened.load_table(str(name))
                refuse_overruling(table.metadata.properties, opened, history.target)
                return table, True
            except NoSuchTableError:
                raise DamageError(f"the table {name} is gone") from None
        where = metadata or at.get("metadata_location")
        if not where:
            raise DamageError("nothing says where the metadata of the table is")
        if metadata is None and not is_path_or_bucket(str(where)):
            return None
        is_named = metadata is not None
        sent = options if is_named or is_same_service(str(where), store) else {}
        return static_table(str(where), sent, is_named=is_named), False
    except SeamarkError:
        raise
    except FileNotFoundError as error:
        raise DamageError(f"the metadata of the table is gone: {_said(error)}") from None
    except Exception as error:  # noqa: BLE001 - whatever a catalog or file system raises
        raise StoreUnavailableError(
            f"the table cannot be opened: {_said(error)}", where=history.target
        ) from None


class _Snapshots(TableVersions):
    def __init__(
        self, spark: SparkSession, table: Table, schema: StructType, *, is_now: bool
    ) -> None:
        self._spark = spark
        self._table = table
        self._schema = schema
        self._is_now = is_now

    def version_of(self, known: EpochRows) -> int | None:
        at = known.point.at if known.point is not None else {}
        return whole_number(at.get("snapshot_id"))

    def newest(self) -> int | None:
        snapshot = self._table.current_snapshot() if self._is_now else None
        return snapshot.snapshot_id if snapshot is not None else None

    def added(self, version: int) -> RowDigest | None:
        snapshot = self._table.metadata.snapshot_by_id(version)
        if snapshot is None:
            return None
        before = snapshot.parent_snapshot_id
        if before is not None and self._table.metadata.snapshot_by_id(before) is None:
            return None
        old = {task.file.file_path for task in self._tasks(before)} if before is not None else set()
        return self._digest(t for t in self._tasks(version) if t.file.file_path not in old)

    def whole(self, version: int) -> RowDigest | None:
        if self._table.metadata.snapshot_by_id(version) is None:
            return None
        return self._digest(self._tasks(version))

    def _tasks(self, snapshot: int) -> list[FileScanTask]:
        try:
            return list(self._table.scan(snapshot_id=snapshot).plan_files())
        except (OSError, ValueError) as error:
            raise DamageError(
                f"the table's lists of files cannot be read: {_said(error)}"
            ) from None

    def _digest(self, tasks: Any) -> RowDigest:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        scan = ArrowScan(self._table.metadata, self._table.io, self._table.schema(), AlwaysTrue())
        try:
            batches = scan.to_record_batches(list(tasks))
            return digest_of_batches(self._spark, sized_tables(batches), self._schema)
        except FileNotFoundError as error:
            raise DamageError(f"a file of the table is gone: {_said(error)}") from None
        except (OSError, ValueError) as error:
            raise DamageError(f"a file of the table cannot be read: {_said(error)}") from None


def _said(error: BaseException) -> str:
    return redacted((str(error).strip().splitlines() or [type(error).__name__])[0])[:300]
