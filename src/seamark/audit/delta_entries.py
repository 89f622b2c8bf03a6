"""The rows that one version of a Delta table has added, by its own entry in the log.

The versions before and after are not looked at, so an epoch costs what it has written, however many
files the table has.

Tests: ``tests/audit/test_delta.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final

from seamark.audit.tried_rows import TriedRows, left_to_the_audit, size_of
from seamark.errors import DamageError
from seamark.limits import LARGEST_TABLE_FILE
from seamark.sources.delta.log import AddedFile, LogEntry
from seamark.sources.delta.rows import partition_value

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyarrow.dataset import ParquetFileFragment
    from pyspark.sql.types import StructType

_LOG: Final = "_delta_log"
READ_AHEAD: Final = {"batch_readahead": 2, "fragment_readahead": 2}
"""Rows are digested more slowly than they are read, so few of them have to wait in memory."""


class DeltaEntries:
    """The entries of a table's log, and the files that they name."""

    def __init__(self, table: DeltaTable, options: dict[str, str] | None, url: str) -> None:
        self._table = table
        self._options = options
        self._url = url

    def added(self, version: int) -> list[AddedFile] | None:
        """The files that a version has added; None when its entry was cleaned up."""
        path = entry_path(version)
        try:
            with self.open(path) as file:
                if file.size() > LARGEST_TABLE_FILE:
                    raise DamageError(f"{path} is larger than any entry of a log")
                return LogEntry(version, path, bytes(file.read())).named(self._url)
        except FileNotFoundError:
            return None

    def open(self, path: str) -> Any:
        """A file of the table, whatever length the log says that it has."""
        return self._files({}).open_input_file(path)

    def rows(self, files: list[AddedFile], columns: StructType) -> Iterator[pa.RecordBatch]:
        """All rows of some files, with the columns that the table has now."""
        from pyarrow.dataset import FileSystemDataset, ParquetFileFormat

        # a file that has another length than the log says is another one
        filesystem = self._files({file.path: file.size for file in files if file.size is not None})
        parquet = ParquetFileFormat()
        fragments = [
            parquet.make_fragment(file.path, filesystem, self._partition(file, columns))
            for file in files
        ]
        dataset = FileSystemDataset(fragments, self._schema, parquet, filesystem)
        yield from dataset.to_batches(**READ_AHEAD)

    def needs_missing(self, paths: Iterable[str]) -> bool:
        """Whether the table, as it is now, names a file of these that is gone."""
        from pyarrow.fs import FileType

        infos = self._files({}).get_file_info(list(paths))
        missing = {info.path for info in infos if info.type == FileType.NotFound}
        now = self._table.to_pyarrow_dataset().get_fragments()
        return any(fragment.path in missing for fragment in now)

    def try_files(self, files: list[AddedFile], rows: TriedRows) -> None:
        """Read the rows of some files only to see what they take."""
        from pyarrow.dataset import ParquetFileFormat

        parquet, filesystem = ParquetFileFormat(), self._files({})
        self.try_rows((parquet.make_fragment(each.path, filesystem) for each in files), rows)

    def try_rows(self, fragments: Iterable[ParquetFileFragment], rows: TriedRows) -> None:
        """The same for files of a version."""
        filesystem = self._files({})  # one that the log has told no sizes
        for fragment in fragments:
            with left_to_the_audit():
                size = filesystem.get_file_info(fragment.path).size or 0
                sizes = partial(_sizes, fragment, self._schema)
                rows.read(f"{self._url}/{fragment.path}", size, sizes)

    def _files(self, sizes: Mapping[str, int]) -> Any:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        handler = DeltaStorageHandler.from_table(self._table._table, self._options, {**sizes})
        return PyFileSystem(handler)

    @cached_property
    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema(self._table.schema().to_arrow())

    def _partition(self, file: AddedFile, columns: StructType) -> Any:
        """What the log says of the columns that the file does not have."""
        import pyarrow as pa
        from pyarrow.dataset import field

        types = {each.name: each for each in columns.fields}
        known = []
        for name, text in file.partition_values.items():
            if name not in types or name not in self._schema.names:
                continue
            # Delta writes null as an empty text
            value = partition_value(text, types[name]) if text else None
            of_type = pa.scalar(value, self._schema.field(name).type)
            known.append(field(name).is_null() if value is None else field(name) == of_type)
        return reduce(and_, known) if known else None


def entry_path(version: int) -> str:
    """Where the entry of a version is, in the folder of the table."""
    return f"{_LOG}/{version:020}.json"


def _sizes(fragment: ParquetFileFragment, schema: pa.Schema) -> Iterator[int]:
    for batch in fragment.to_batches(schema=schema, batch_readahead=1):
        yield size_of(batch)
