"""Data files of a table: written from Arrow batches by pyiceberg, and listed.

pyiceberg fills in field ids, statistics and the partition of each file. Names are written down
before the files are: whoever cleans up after a crash knows them.

Tests: ``tests/sinks/test_iceberg_data_files.py``.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from seamark._common.text import shortened
from seamark._redaction import redacted
from seamark.errors import DamageError, RefusedError
from seamark.limits import LONGEST_PREFIX
from seamark.sinks.iceberg.data_names import new_token, says_attempt
from seamark.sinks.iceberg.files import size_problem, sync_files
from seamark.sinks.iceberg.kept_nulls import keep_nulls
from seamark.sinks.iceberg.staging import LIST, Staging

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, WriteTask
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import IcebergType

_NO_SNAPSHOT: Final = 1
FLUSH_BYTES: Final = 256 << 20
"""How many bytes of rows a task holds at most before it writes them."""


_DICTIONARY: Final = {"write.parquet.dict-size-bytes": str(512 << 10)}
"""A column of different values gets a dictionary all the same, which is given up at this size.
Iceberg's own default is four times that: the files of such rows are then larger by half, and
writing them takes half as long again."""


def metadata_for_tasks(metadata: TableMetadata) -> TableMetadata:
    """What a task needs of a table's metadata: all but its snapshots, which may be many.

    Where the table does not say how large a dictionary may be, ours is small.
    """
    changed: dict[str, Any] = {
        "properties": {**_DICTIONARY, **metadata.properties},
        "snapshots": [],
        "snapshot_log": [],
        "metadata_log": [],
        "refs": {},
        "current_snapshot_id": None,
    }
    return metadata.model_copy(update=changed)


@dataclass
class FileWriter:
    """Writes data files of one attempt; each instance has names of its own."""

    metadata: TableMetadata
    staging: Staging
    attempt: str
    journal: str = ""
    """The name of its journal; a new one when it is empty."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @cached_property
    def token(self) -> uuid.UUID:
        """What the names of its files have in common: whose they are, and a part of its own."""
        return new_token(self.staging.output.name, self.attempt)

    def write(self, rows: pa.Table) -> list[DataFile]:
        """Write rows, one file for each partition among them.

        :class:`RefusedError` for rows that the table cannot hold.
        """
        if not rows.num_rows:
            return []
        metadata = self.metadata
        rows = _with_partition_columns(in_utc(rows), metadata)
        _require_values(rows, metadata)
        files = self._written(list(self._tasks(rows)))
        written = sum(file.record_count for file in files)
        if written != rows.num_rows:
            # pyiceberg 0.12 looks for the rows of a partition by ==, which NaN never is
            raise RefusedError(
                f"{rows.num_rows - written} rows have a partition value that equals nothing",
                hint="Does a column that the table is partitioned by hold NaN? Filter it out.",
            )
        return files

    def rewrite(self, rows: pa.Table, file: DataFile) -> list[DataFile]:
        """Write what is left of a data file, in the partition where whoever wrote it has put it.

        pyiceberg need not work out the same one, and readers look for the rows where they were.
        """
        from pyiceberg.partitioning import PartitionKey
        from pyiceberg.table import WriteTask

        if not rows.num_rows:
            return []
        spec, key = self.metadata.specs()[file.spec_id], None
        if not spec.is_unpartitioned():
            key = PartitionKey([], spec, self.metadata.schema())
            vars(key)["partition"] = file.partition  # or it would be worked out
        batches, schema = rows.to_batches(), self._schema_of(rows)
        task = WriteTask(self.token, next(self._numbers), schema, batches, partition_key=key)
        return self._written([task], file.spec_id)

    def _written(self, tasks: list[WriteTask], spec_id: int | None = None) -> list[DataFile]:
        from pyiceberg.io.pyarrow import write_file
        from pyiceberg.table.locations import load_location_provider

        keep_nulls()
        io, metadata = self.staging.io, self.metadata
        if spec_id is not None:
            metadata = metadata.model_copy(update={"default_spec_id": spec_id})
        places = load_location_provider(metadata.location, metadata.properties)
        paths = [
            places.new_data_location(
                task.generate_data_file_filename("parquet"), task.partition_key
            )
            for task in tasks
        ]
        self._require_own_names(paths)
        name = self.journal or f"{self.token}-{next(self._numbers)}"
        self.staging.note(self.attempt, name, paths)
        files = list(write_file(io, metadata, iter(tasks)))
        sync_files(io, paths)
        return files

    def _schema_of(self, rows: pa.Table) -> Schema:
        from pyiceberg.io.pyarrow import pyarrow_to_schema

        return pyarrow_to_schema(
            rows.schema,
            name_mapping=self.metadata.schema().name_mapping,
            format_version=self.metadata.format_version,
        )

    def _require_own_names(self, paths: Sequence[str]) -> None:
        """:class:`RefusedError` when whoever commits the files could not tell whose they are."""
        output = self.staging.output.name
        odd = next((path for path in paths if not says_attempt(path, output, self.attempt)), None)
        if odd is not None:
            raise RefusedError(
                f"the table puts a data file at {odd!r}, without the name that it was to have",
                hint="A location provider of the table's own has to keep the names of files.",
            )

    def _tasks(self, rows: pa.Table) -> Iterator[WriteTask]:
        from pyiceberg.io.pyarrow import _determine_partitions
        from pyiceberg.table import WriteTask

        table_schema, spec = self.metadata.schema(), self.metadata.spec()
        schema = self._schema_of(rows)
        if spec.is_unpartitioned():
            yield WriteTask(self.token, next(self._numbers), schema, rows.to_batches())
            return
        for part in _determine_partitions(spec, table_schema, rows):
            batches = part.arrow_table_partition.to_batches()
            if batches:
                yield WriteTask(
                    self.token,
                    next(self._numbers),
                    schema,
                    batches,
                    partition_key=part.partition_key,
                )


def in_utc(rows: pa.Table) -> pa.Table:
    """The same rows with all timestamps in UTC: Spark sends them in the session's time zone."""
    import pyarrow as pa

    fields = [one.with_type(_utc(one.type)) for one in rows.schema]
    schema = pa.schema(fields)
    return rows if schema.equals(rows.schema) else rows.cast(schema)


def _utc(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa
    from pyarrow import types

    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_utc(kind.value_type)))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_utc(kind.value_type)))
    if types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_utc(key.type)), item.with_type(_utc(item.type)))
    if types.is_struct(kind):
        return pa.struct([one.with_type(_utc(one.type)) for one in kind])
    return kind


def _with_partition_columns(rows: pa.Table, metadata: TableMetadata) -> pa.Table:
    """The same rows with every column that the table is partitioned by, as wide as it is there.

    What they lack is null. pyiceberg cuts a number down within its own type, and knows no short.
    """
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    schema = metadata.schema()
    for part in metadata.spec().fields:
        source = schema.find_column_name(part.source_id) or ""
        for column in schema.fields:
            if column.name != source and not source.startswith(f"{column.name}."):
                continue
            if column.name in rows.column_names:
                at = rows.column_names.index(column.name)
                own = rows.schema.field(at)
                wide = own.with_type(_widened(own.type, column.field_type))
                values = rows.column(at).cast(wide.type)
                if pa.types.is_decimal(wide.type):
                    # as they come from Spark they may lie where pyiceberg's transforms panic
                    values = values.take(pa.array(range(rows.num_rows), pa.int64()))
                rows = rows.set_column(at, wide, values)
            else:
                kind = schema_to_pyarrow(column.field_type, include_field_ids=False)
                rows = rows.append_column(column.name, pa.nulls(rows.num_rows, kind))
    return rows


def _widened(kind: pa.DataType, of: IcebergType) -> pa.DataType:
    """A type with its whole numbers, also those inside a struct, as wide as in the table."""
    import pyarrow as pa
    from pyiceberg.types import IntegerType, LongType, StructType

    if isinstance(of, StructType):
        types = {inner.name: inner.field_type for inner in of.fields}
        return pa.struct([one.with_type(_widened(one.type, types[one.name])) for one in kind])
    if isinstance(of, LongType):
        return pa.int64()
    return pa.int32() if isinstance(of, IntegerType) else kind


def _require_values(rows: pa.Table, metadata: TableMetadata) -> None:
    for column in metadata.schema().fields:
        if column.required and column.name in rows.column_names:
            missing = rows.column(column.name).null_count
            if missing:
                raise RefusedError(
                    f"{missing} rows have null in column {column.name!r}, which the table requires",
                    hint="Filter them out or fill them in.",
                )


# the list of an epoch's files


def write_list(
    files: Sequence[DataFile], metadata: TableMetadata, staging: Staging, attempt: str
) -> str:
    """Keep the data files of an attempt as a manifest of Iceberg; its SHA-256.

    All of them are of the table's default partition spec.
    """
    from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, write_manifest

    place = staging.location(attempt, LIST)
    output = staging.io.new_output(place)
    with write_manifest(
        2, metadata.spec(), metadata.schema(), output, _NO_SNAPSHOT, "deflate"
    ) as w:
        for file in files:
            w.add(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=_NO_SNAPSHOT,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=file,
                )
            )
    sync_files(staging.io, [place])
    return staging.digest(attempt, LIST)


def read_list(staging: Staging, attempt: str, digest: str, spec_id: int) -> list[DataFile]:
    """The data files of an attempt.

    :class:`DamageError` when the list is gone or damaged, or a file of it: whatever removes orphans
    may have taken it, and a table that names it could not be read any more. The same for a file
    that the attempt has not written: its rows would be shown to readers of the table. And when the
    list is of another partition spec: readers would not look for rows where they are.
    """
    from pyiceberg.manifest import ManifestContent, ManifestFile

    staging.read(attempt, LIST, digest)
    _require_spec(staging, attempt, spec_id)
    manifest = ManifestFile.from_args(
        manifest_path=staging.location(attempt, LIST),
        partition_spec_id=spec_id,
        content=ManifestContent.DATA,
        sequence_number=0,
        added_snapshot_id=_NO_SNAPSHOT,
    )
    files = [entry.data_file for entry in manifest.fetch_manifest_entry(staging.io)]
    output = staging.output.name
    for file in files:
        if not _is_data(file) or not says_attempt(file.file_path, output, attempt):
            raise DamageError(
                "the list of a decided epoch has a file that the epoch did not write: "
                + redacted(shortened(repr(file.file_path), LONGEST_PREFIX)),
                where=staging.location(attempt, LIST),
                hint="Who has changed it? Nothing was shown. Roll the pipeline back to the newest "
                "epoch that the table shows; it then writes its rows again.",
            )
    problem = size_problem(staging.io, {file.file_path: file.file_size_in_bytes for file in files})
    if problem is not None:
        raise DamageError(
            f"the rows of a decided epoch are not all there: {problem}",
            where=staging.location(attempt, LIST),
            hint="Who has removed it? Nothing was shown. Roll the pipeline back to the newest "
            "epoch that the table shows; it then writes these rows again.",
        )
    return files


def _require_spec(staging: Staging, attempt: str, spec_id: int) -> None:
    from pyiceberg.avro.file import AvroFile

    place = staging.location(attempt, LIST)
    written: AvroFile[Any]
    with AvroFile(staging.io.new_input(place)) as written:
        written_with = written.header.meta.get("partition-spec-id")
    if written_with != str(spec_id):
        raise DamageError(
            f"the checkpoint says that a decided epoch was written with partition spec {spec_id}, "
            "and the list of its files has another",
            where=place,
            hint="Nothing was shown. Restore the store from a copy, or roll the pipeline back to "
            "the newest epoch that the table shows.",
        )


def _is_data(file: DataFile) -> bool:
    from pyiceberg.manifest import DataFileContent, FileFormat

    return file.content == DataFileContent.DATA and file.file_format == FileFormat.PARQUET


def added_by(table: Table, snapshot_id: int) -> set[str]:
    """The data files that a snapshot has added to a table."""
    from pyiceberg.manifest import ManifestEntryStatus

    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return set()
    return {
        entry.data_file.file_path
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot_id
    }
