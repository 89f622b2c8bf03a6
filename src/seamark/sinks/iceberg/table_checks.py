"""What about a table cannot be written, said by name before the first epoch.

Tests: ``tests/sinks/test_iceberg_refusals.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from seamark.errors import RefusedError
from seamark.sinks.iceberg.marks import summary_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_NEWEST_FORMAT: Final = 2
_TRANSFORMS: Final = (
    "IdentityTransform",
    "BucketTransform",
    "TruncateTransform",
    "YearTransform",
    "MonthTransform",
    "DayTransform",
    "HourTransform",
    "VoidTransform",
)


def check_table(metadata: TableMetadata, where: str) -> None:
    """:class:`RefusedError` when rows cannot be written to the table as it asks for."""
    if metadata.format_version > _NEWEST_FORMAT:
        raise RefusedError(
            f"the table is of format version {metadata.format_version}",
            where=where,
            hint=f"pyiceberg writes versions 1 and {_NEWEST_FORMAT}. Create the table with "
            f"format-version={_NEWEST_FORMAT}.",
        )
    _check_properties(metadata, where)
    _check_partitions(metadata, where)


def _check_properties(metadata: TableMetadata, where: str) -> None:
    from pyiceberg.io.pyarrow import _get_parquet_writer_kwargs
    from pyiceberg.table.locations import load_location_provider

    properties = metadata.properties
    file_format = properties.get("write.format.default", "parquet")
    if file_format.lower() != "parquet":
        raise RefusedError(
            f"the table asks for {file_format} files (write.format.default)",
            where=where,
            hint="Only Parquet can be written. Change the property.",
        )
    for name in properties:
        if name.startswith("encryption."):
            raise RefusedError(
                f"the table is encrypted ({name})", where=where, hint="pyiceberg cannot do that."
            )
    if "write.location-provider.impl" in properties and (
        "write.py-location-provider.impl" not in properties
    ):
        raise RefusedError(
            "the table chooses places for files by a Java class (write.location-provider.impl)",
            where=where,
            hint="Name one in Python too, as write.py-location-provider.impl of the table and of "
            "its catalog.",
        )
    try:
        load_location_provider(metadata.location, properties)
        _get_parquet_writer_kwargs(properties)
    except (ValueError, NotImplementedError) as error:
        raise RefusedError(
            f"a property of the table cannot be heeded: {error}", where=where
        ) from None


def _check_partitions(metadata: TableMetadata, where: str) -> None:
    schema = metadata.schema()
    for field in metadata.spec().fields:
        kind = type(field.transform).__name__
        if kind not in _TRANSFORMS:
            raise RefusedError(
                f"the table is partitioned by {field.transform} ({field.name}): not known here",
                where=where,
                hint="Known are identity, bucket, truncate, year, month, day, hour and void.",
            )
        if kind not in ("IdentityTransform", "VoidTransform"):
            _require_core(str(field.transform), where)
        if schema.find_column_name(field.source_id) is None:
            raise RefusedError(
                f"the table is partitioned by {field.name}, whose column was dropped", where=where
            )


def refuse_equality_deletes(metadata: TableMetadata, where: str) -> None:
    """:class:`RefusedError` when an upsert could not read which rows the table has."""
    snapshot = metadata.current_snapshot()
    summary = summary_of(snapshot) if snapshot is not None else {}
    if summary.get("total-equality-deletes", "0") != "0":
        raise RefusedError(
            "the table has equality deletes, which pyiceberg cannot read: no row can be upserted",
            where=where,
            hint="Flink writes them. Compact the table first (rewrite_data_files), or append.",
        )


def _require_core(transform: str, where: str) -> None:
    try:
        import pyiceberg_core  # noqa: F401
    except ModuleNotFoundError:
        raise RefusedError(
            f"the table is partitioned by {transform}, which needs pyiceberg-core",
            where=where,
            hint="pip install 'seamark[iceberg]', on the executors too",
        ) from None
