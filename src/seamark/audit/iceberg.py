"""What an Iceberg table shows: the files that each epoch has added, and the table as it is now.

Tests: ``tests/audit/test_iceberg.py``, ``tests/audit/test_damaged_lists.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from seamark._common.arrow_tables import sized_tables
from seamark._common.text import first_line
from seamark._redaction import redacted
from seamark.audit.declared_rows import declared_schema, digest_of_batches
from seamark.audit.expectations import EpochRows, SinkHistory, whole_number
from seamark.audit.fetched_files import require_fetched
from seamark.audit.limited_targets import Reader, TriedTarget, option_naming
from seamark.audit.shared_tables import SharedTables, table_place
from seamark.audit.tables import ReadOnce, TableVersions, compare_table
from seamark.audit.tried_rows import TriedRows, is_shortage, left_to_the_audit, size_of
from seamark.audit.verdicts import Shown
from seamark.errors import DamageError, InvalidInputError, SeamarkError, StoreUnavailableError
from seamark.spark.row_digests import RowDigest
from seamark.table_formats.iceberg_settings import (
    guard,
    refuse_catalogs_of_this_folder,
    refuse_overruling,
    static_table,
)
from seamark.table_formats.services import is_path_or_bucket, is_same_service

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.table import FileScanTask, Table
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def read_iceberg(
    spark: SparkSession,
    history: SinkHistory,
    storage_options: Mapping[str, str],
    metadata: str | None = None,
    store: str = "",
    tables: SharedTables | None = None,
) -> Iterator[Shown]:
    """What the table shows of each epoch, and of all together.

    It is opened by the name of its catalog, if pyiceberg is configured for that, else by the
    metadata file that the newest epoch has written; ``metadata`` names another one. One that only
    the checkpoint names gets the options only if it is in the service of the ``store``, and is
    not read at a server that is neither this machine nor a bucket's. It is refused
    (:class:`RefusedError`) when it is larger than :mod:`seamark.limits` allows. What was read of
    the same table for other sinks is taken from ``tables``.
    """
    first, last = history.since, history.newest.epoch
    schema = declared_schema(history.columns)
    if schema is None:
        note = "the types of its columns cannot be read from the checkpoint"
        yield Shown(first=first, last=last, note=note)
        return
    tables = tables or SharedTables()
    place = iceberg_place(history, metadata)
    try:
        opened = tables.once(
            place, None, lambda: _opened(history, storage_options, metadata, store)
        )
    except DamageError as error:
        yield Shown(first=first, last=last, expected=history.newest.total, damage=error.what)
        return
    if opened is None:
        note = f"say where its metadata file is: {option_naming(history.sink)}….metadata.json"
        yield Shown(first=first, last=last, note=note)
        return
    table, is_now = opened
    versions = tables.once(
        place,
        history.columns,
        lambda: ReadOnce(_Snapshots(spark, table, schema, is_now=is_now)),
    )
    yield from compare_table(history, versions)
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
    named = _in_catalog(history) if metadata is None else None
    if named is not None:
        refuse_catalogs_of_this_folder()
    try:
        if named is not None:
            catalog, name = named
            try:
                opened = load_catalog(catalog, **options)
                guard(opened, history.target)
                table = opened.load_table(name)
                refuse_overruling(table.metadata.properties, opened, history.target)
                return table, True
            except NoSuchTableError:
                raise DamageError(f"the table {name} is gone") from None
        if metadata is not None:
            return static_table(metadata, options, is_named=True), False
        where = _metadata_file(history)
        if not where:
            raise DamageError("nothing says where the metadata of the table is")
        if not is_path_or_bucket(where):
            return None
        sent = _sent(where, options, store)
        return static_table(where, sent, is_named=False), False
    except SeamarkError:
        raise
    except FileNotFoundError as error:
        raise DamageError(f"the metadata of the table is gone: {_said(error)}") from None
    except Exception as error:  # noqa: BLE001 - whatever a catalog or file system raises
        raise StoreUnavailableError(
            f"the table cannot be opened: {_said(error)}", where=history.target
        ) from None


def _point(history: SinkHistory) -> Mapping[str, Any]:
    return history.newest.point.at if history.newest.point is not None else {}


def _in_catalog(history: SinkHistory) -> tuple[str, str] | None:
    """A catalog that is configured here, and the table's name there; None without one."""
    at = _point(history)
    catalog, name = at.get("catalog"), at.get("table")
    if not catalog or not name or at.get("catalog_is_configured") is False:
        return None
    return str(catalog), str(name)


def iceberg_place(history: SinkHistory, metadata: str | None) -> Hashable:
    """The same for sinks whose table :func:`read_iceberg` opens in the same way."""
    named = _in_catalog(history) if metadata is None and history.epochs else None
    if named is not None:
        return "iceberg", *named
    where = metadata or (_metadata_file(history) if history.epochs else "")
    return "iceberg", metadata is not None, table_place(where)


def _metadata_file(history: SinkHistory) -> str:
    return str(_point(history).get("metadata_location") or "")


def _sent(where: str, options: Mapping[str, str], store: str) -> Mapping[str, str]:
    """The options for a metadata file that only a checkpoint names."""
    return options if is_same_service(where, store) else {}


def tried_target(
    history: SinkHistory, options: Mapping[str, str], store: str
) -> TriedTarget | None:
    """What :func:`read_iceberg` reads of a table that only a checkpoint names; None for nothing.

    Which table a catalog has under a name, the user's own catalog says.
    """
    if not history.epochs or _in_catalog(history) is not None:
        return None
    where = _metadata_file(history)
    if not where or not is_path_or_bucket(where):
        return None
    added = [version for each in history.epochs if (version := _version_of(each)) is not None]
    whole = added if history.options.get("mode") == "overwrite" else (*added[:1], *added[-1:])
    sent = dict(_sent(where, options, store))
    return TriedTarget("iceberg", where, sent, tuple(sorted(set(whole))), tuple(sorted(set(added))))


def trier() -> Reader:
    """What reads the lists and files of a table as :func:`read_iceberg` does."""
    import pyiceberg.io.pyarrow  # noqa: F401 - what pyiceberg imports when a table is read
    from pyiceberg.table import StaticTable  # noqa: F401

    def read_all(target: TriedTarget, rows: TriedRows) -> None:
        table = static_table(target.place, target.options, is_named=False)
        files = _FileLists(table)
        for version in filter(files.has, target.added):
            with left_to_the_audit():
                _try_rows(table, files.added(version), rows)
        for version in filter(files.has, filter(None, target.versions)):
            with left_to_the_audit():
                _try_rows(table, files.whole(version), rows)

    return read_all


def _sizes(table: Table, task: FileScanTask) -> Iterator[int]:
    return map(size_of, _batches(table, [task]))


def _try_rows(table: Table, tasks: list[FileScanTask], rows: TriedRows) -> None:
    for task in tasks:
        path = task.file.file_path
        with left_to_the_audit():
            size = len(table.io.new_input(path))
            rows.read(path, size, partial(_sizes, table, task))


def _version_of(known: EpochRows) -> int | None:
    at = known.point.at if known.point is not None else {}
    return whole_number(at.get("snapshot_id"))


class _FileLists(NamedTuple):
    """Which files a table has in a snapshot."""

    table: Table

    def has(self, snapshot: int) -> bool:
        """Whether the table still knows the snapshot."""
        return self.table.metadata.snapshot_by_id(snapshot) is not None

    def added(self, snapshot: int) -> list[FileScanTask]:
        """The files of rows that a snapshot has added to the one before."""
        from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
        from pyiceberg.table import FileScanTask

        known = self.table.metadata.snapshot_by_id(snapshot)
        assert known is not None, "it was looked for"
        with self._lists_can_be_read(snapshot):
            return [
                FileScanTask(entry.data_file)
                for manifest in known.manifests(self.table.io)
                if manifest.added_snapshot_id == snapshot
                for entry in manifest.fetch_manifest_entry(self.table.io)
                if entry.status == ManifestEntryStatus.ADDED
                and entry.snapshot_id == snapshot
                and entry.data_file.content == DataFileContent.DATA
            ]

    def whole(self, snapshot: int) -> list[FileScanTask]:
        """All files of rows in a snapshot."""
        with self._lists_can_be_read(snapshot):
            return list(self.table.scan(snapshot_id=snapshot).plan_files())

    def _lists_can_be_read(self, snapshot: int) -> AbstractContextManager[None]:
        lists = partial(self._lists, snapshot)
        return _can_be_read("a list of the table's files", self.table.io, lists)

    def _lists(self, snapshot: int) -> Iterator[str]:
        known = self.table.metadata.snapshot_by_id(snapshot)
        if known is not None:
            yield known.manifest_list
            with suppress(Exception):  # what is wrong with it was met before
                yield from [manifest.manifest_path for manifest in known.manifests(self.table.io)]


@contextmanager
def _can_be_read(what: str, io: FileIO, paths: Callable[[], Iterable[str]]) -> Iterator[None]:
    """:class:`DamageError` for what pyiceberg cannot read: a wrong byte is a ``KeyError`` to it, an
    ``EOFError``, a ``SystemError`` or an error of zlib's. A file that is gone may have expired.

    :class:`StoreUnavailableError` when one of these files does not even come.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, SeamarkError | FileNotFoundError) or is_shortage(error):
            raise
        require_fetched(lambda path: io.new_input(path).open(), paths())
        raise DamageError(f"{what} cannot be read: {_said(error)}") from None


class _Snapshots(TableVersions):
    def __init__(
        self, spark: SparkSession, table: Table, schema: StructType, *, is_now: bool
    ) -> None:
        self._spark = spark
        self._table = table
        self._files = _FileLists(table)
        self._schema = schema
        self._is_now = is_now

    def version_of(self, known: EpochRows) -> int | None:
        return _version_of(known)

    def newest(self) -> int | None:
        snapshot = self._table.current_snapshot() if self._is_now else None
        return snapshot.snapshot_id if snapshot is not None else None

    def added(self, version: int) -> RowDigest | None:
        return self._unless_expired(version, self._files.added)

    def whole(self, version: int) -> RowDigest | None:
        return self._unless_expired(version, self._files.whole)

    def count(self, version: int) -> int | None:
        snapshot = self._table.metadata.snapshot_by_id(version)
        summary = snapshot.summary if snapshot is not None else None
        return whole_number(summary["total-records"]) if summary is not None else None

    def _unless_expired(
        self, version: int, files_of: Callable[[int], list[FileScanTask]]
    ) -> RowDigest | None:
        """None also for a snapshot that has lost what the table, as it is known, does not need.

        A metadata file still names what somebody has expired since, and removed.
        """
        if not self._files.has(version):
            return None
        try:
            return self._digest(files_of(version))
        except FileNotFoundError as error:
            if self._needs(version):
                raise DamageError(f"a file of the table is gone: {_said(error)}") from None
            return None

    def _needs(self, version: int) -> bool:
        """Whether the newest snapshot that is known is this one, or has lost a file itself."""
        newest = self._table.current_snapshot()
        if newest is None or newest.snapshot_id == version:
            return True
        try:
            files = [task.file.file_path for task in self._files.whole(newest.snapshot_id)]
            return not all(self._table.io.new_input(path).exists() for path in files)
        except FileNotFoundError:
            return True

    def _digest(self, tasks: list[FileScanTask]) -> RowDigest:
        try:
            batches = _batches(self._table, tasks)
            return digest_of_batches(self._spark, sized_tables(batches), self._schema)
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:  # of rows that do not go together
            raise DamageError(f"a file of the table cannot be read: {_said(error)}") from None


def _batches(table: Table, tasks: list[FileScanTask]) -> Iterator[pa.RecordBatch]:
    """All rows of some files, one file after the other: pyiceberg keeps the rows of all that it is
    given."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    for task in tasks:
        paths = [each.file_path for each in (task.file, *task.delete_files)]
        with _can_be_read("a file of the table", table.io, partial(list, paths)):
            yield from scan.to_record_batches([task])


def _said(error: BaseException) -> str:
    return redacted(first_line(error))[:300]
