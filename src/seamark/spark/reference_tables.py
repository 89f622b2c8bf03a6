"""Tables that streams are joined with, read at one version for as long as that is wanted.

A Delta table is read without Delta's jars: its log is read by ``deltalake`` and its files by Spark.
Its version is recorded in every checkpoint, and a restart reads the same one.

Tests: ``tests/spark/test_reference_tables.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from seamark._redaction import redacted
from seamark.errors import DamageError, PositionUnavailable, RefusedError
from seamark.manifest import ConnectorCheckpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LOCAL: Final = ("/", "file:")
_FILE: Final = "__seamark_file"
_SLASHES: Final = ("^file:/+", "file:/")
"""Spark writes one slash in some places, and three in others."""
_UNKNOWN_FILE: Final = (
    "a file of a partitioned Delta table has another name in Spark than in its log"
)
_OTHER_WAY: Final = "Read it with Delta's own jars, and give p.table the DataFrame."


@dataclass(frozen=True, kw_only=True)
class TableVersion:
    """One version of a Delta table: its files, and how Spark reads them."""

    path: str
    table_id: str
    version: int
    schema_json: str
    files: tuple[str, ...]
    partition_columns: tuple[str, ...] = ()
    partition_values: tuple[tuple[Any, ...], ...] = ()
    """For each file: its values of the partition columns, which only the log is sure to have."""

    @property
    def recorded(self) -> ConnectorCheckpoint:
        """What a checkpoint says about it."""
        return ConnectorCheckpoint(
            offsets={"version": str(self.version), "files": str(len(self.files))},
            metadata={"path": redacted(self.path), "format": "delta", "table_id": self.table_id},
        )

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows of this version."""
        import json

        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(self.schema_json))
        if not self.files:
            return spark.createDataFrame([], schema)
        stored = [each for each in schema.fields if each.name not in self.partition_columns]
        # these are names of files; a bracket in one is no pattern. Without a base path, names of
        # folders are no columns
        reader = spark.read.schema(StructType(stored)).option("__globPaths__", "false")
        rows = reader.parquet(*self.files)
        return self._with_partition_columns(rows, schema) if self.partition_columns else rows

    def _with_partition_columns(self, rows: DataFrame, schema: StructType) -> DataFrame:
        """Rows with the values that the log has for their files, in the order of the schema."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import StringType, StructField, StructType

        values = {
            _local_or_url(file): row
            for file, row in zip(self.files, self.partition_values, strict=True)
        }
        # Spark encodes the names in its own way, in each row as well
        found = [
            (re.sub(*_SLASHES, name), *values[file])
            for name in rows.inputFiles()
            if (file := _local_or_url(unquote(name))) in values
        ]
        if len(found) < len(values):
            raise RefusedError(_UNKNOWN_FILE, where=redacted(self.path), hint=_OTHER_WAY)
        of_files = StructType([StructField(_FILE, StringType(), nullable=False)])
        for name in self.partition_columns:
            of_files.add(name, schema[name].dataType)
        files = rows.sparkSession.createDataFrame(found, of_files)
        name_of_file = f.regexp_replace(rows.metadataColumn("_metadata")["file_path"], *_SLASHES)
        joined = rows.join(f.broadcast(files), name_of_file == files[_FILE], "left")
        unknown = f.when(files[_FILE].isNull(), f.raise_error(f.lit(_UNKNOWN_FILE)))
        return joined.select(
            *(
                unknown.otherwise(files[name]).alias(name)
                if name in self.partition_columns
                else rows[name]
                for name in schema.fieldNames()
            )
        )


def _local_or_url(name: str) -> str:
    return name.removeprefix("file://")


def version_recorded(name: str, recorded: ConnectorCheckpoint | None) -> tuple[int, str] | None:
    """Version and id of a Delta table as a checkpoint has it; None when it has none."""
    if recorded is None or recorded.metadata.get("format") != "delta":
        return None
    try:
        return int(recorded.offsets["version"]), str(recorded.metadata.get("table_id", ""))
    except (KeyError, ValueError):
        raise RefusedError(
            f"the checkpoint's version of table {name!r} cannot be read",
            hint='Choose one: p.table(…, version=…) with a number or "latest".',
        ) from None


def delta_version(
    name: str,
    path: str,
    version: int | None,
    table_id: str = "",
    storage_options: Mapping[str, str] | None = None,
) -> TableVersion:
    """A version of a Delta table, the newest for None.

    :class:`PositionUnavailable` when that version, or one of its files, is gone, and when it is
    another table than ``table_id`` says. :class:`RefusedError` for a table whose files alone do not
    say what its rows are.
    """
    try:
        import deltalake
    except ImportError:
        raise RefusedError(
            f"table {name!r} is a Delta table, which is read by deltalake",
            hint="pip install 'seamark[delta]', or give p.table a DataFrame.",
        ) from None
    errors: Any = deltalake.exceptions
    options = dict(storage_options) if storage_options else None
    try:
        table = deltalake.DeltaTable(path, version=version, storage_options=options)
    except errors.TableNotFoundError as error:
        raise RefusedError(
            f"there is no Delta table for table {name!r}", where=redacted(f"{path}: {error}")
        ) from error
    except errors.DeltaError as error:
        raise _gone(name, path, version, str(error)) from error
    _require_plain(name, table)
    found = str(table.metadata().id)
    if table_id and found != table_id:
        raise _gone(name, path, version, f"its id is {found}, and was {table_id}: it was made anew")
    columns = tuple(table.metadata().partition_columns)
    placed = sorted(_files_with_values(name, table, columns), key=lambda pair: pair[0])
    files = tuple(file for file, _ in placed)
    for file in files:
        local = file.removeprefix("file://")
        if file.startswith(_LOCAL) and not os.path.exists(local):
            raise _gone(name, path, version, f"{local} is gone: was the table vacuumed?")
    return TableVersion(
        path=path,
        table_id=found,
        version=int(table.version()),
        schema_json=table.schema().to_json(),
        files=files,
        partition_columns=columns,
        partition_values=tuple(values for _, values in placed) if columns else (),
    )


def _files_with_values(
    name: str, table: Any, columns: tuple[str, ...]
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Each file of a version with its values of the partition columns, in the types of these."""
    if not columns:
        yield from ((file, ()) for file in table.file_uris())
        return
    import deltalake
    import pyarrow as pa

    errors: Any = deltalake.exceptions
    types = {field.name: field.type for field in table.schema().fields}
    for column in columns:
        if str(getattr(types[column], "type", "")) == "binary":
            raise RefusedError(
                f"table {name!r} is partitioned by {column!r}, which is binary",
                hint=f"Writers do not agree on how a log has such values. {_OTHER_WAY}",
            )
    try:
        added = pa.table(table.get_add_actions()).to_pylist()
    except errors.DeltaError as error:
        raise DamageError(
            f"the log of table {name!r} has a partition value that is not of its column's type",
            where=redacted(str(error)),
        ) from error
    for file, action in zip(table.file_uris(), added, strict=True):
        if not file.endswith(unquote(action["path"])):
            raise RefusedError(f"table {name!r} has files in other places", hint=_OTHER_WAY)
        yield file, tuple(action["partition"][column] for column in columns)


def _require_plain(name: str, table: Any) -> None:
    protocol = table.protocol()
    features = {*(protocol.reader_features or ())}
    if odd := sorted(features.difference({"timestampNtz"})):
        raise RefusedError(
            f"table {name!r} uses {', '.join(odd)}, which its files alone do not show",
            hint=_OTHER_WAY,
        )
    if protocol.min_reader_version == 2:
        mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
        if mode != "none":
            raise RefusedError(
                f"table {name!r} maps its columns by {mode}, which its files alone do not show",
                hint=_OTHER_WAY,
            )


def _gone(name: str, path: str, version: int | None, why: str) -> PositionUnavailable:
    return PositionUnavailable(
        f"table {name!r} no longer has version {version}, which the checkpoint was made with",
        where=redacted(f"{path}: {why}"),
        hint='Restore it, or go on with the newest one: p.table(…, version="latest").',
        source=name,
        requested=str(version).encode(),
    )


def changed_tables(
    before: Mapping[str, ConnectorCheckpoint], now: Mapping[str, ConnectorCheckpoint]
) -> list[str]:
    """Tables that are not what they were in a checkpoint, in words. Pure."""
    return [
        f"table {name!r} is not what it was: {_said(before[name])} → {_said(table)}"
        for name, table in now.items()
        if name in before and before[name].offsets != table.offsets
    ]


def _said(table: ConnectorCheckpoint) -> str:
    if "version" in table.offsets:
        return f"version {table.offsets['version']}"
    digest = table.offsets.get("listing_sha256", "")[:8]
    return f"{table.offsets.get('files', '?')} files" + (f" ({digest})" if digest else "")
