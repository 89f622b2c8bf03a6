"""Columns that an output has and a table lacks, added to the table before the first epoch.

Tests: ``tests/sinks/test_iceberg_columns.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from seamark.errors import RefusedError, StoreUnavailableError
from seamark.sinks.iceberg.columns import as_iceberg

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyspark.sql.types import StructType

    from seamark.sinks.iceberg.catalog import Place

_TRIES: Final = 20


def merged_schema(
    place: Place, table: Table, schema: StructType, delete_where: str | None
) -> Schema:
    """The columns that a table would have; it stays as it is.

    :class:`RefusedError` when a type cannot become the other one.
    """
    wanted = as_iceberg(schema, delete_where, place.described)
    change = table.transaction()  # which is never committed
    with place.translated("merging the table's schema"):
        _merge(change, wanted, place)
    return change.table_metadata.schema()


def merge_schema(place: Place, table: Table, schema: StructType, delete_where: str | None) -> Table:
    """Add columns and widen types by name; the table afterwards.

    :class:`RefusedError` when a type cannot become the other one.
    """
    from pyiceberg.exceptions import CommitFailedException

    wanted = as_iceberg(schema, delete_where, place.described)
    for _ in range(_TRIES):
        try:
            with place.translated("changing the table's schema"):
                _merge(table, wanted, place)
            return place.load()
        except CommitFailedException:
            table = place.load()
    raise StoreUnavailableError(
        "others keep changing the table while its schema is merged", where=place.described
    )


def _merge(table: Table | Transaction, wanted: Schema, place: Place) -> None:
    from pyiceberg.exceptions import ValidationError

    try:
        with table.update_schema() as update:
            update.union_by_name(wanted)
    except (ValidationError, ValueError) as error:
        raise RefusedError(
            f"the schema cannot be merged: {place.said(error)}",
            where=place.described,
            hint="Only columns are added, and int, float and decimal widened.",
        ) from None
