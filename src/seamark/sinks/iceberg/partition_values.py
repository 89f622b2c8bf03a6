"""Values that cannot be put into a partition of an Iceberg table where others find them again.

They are refused while an epoch is staged: rows that are there already are not judged.

Tests: ``tests/sinks/test_iceberg_partition_values.py``.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from seamark._common.arrow_tables import is_readable
from seamark.errors import RefusedError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import IcebergType


def require_partition_values(rows: pa.Table, metadata: TableMetadata) -> None:
    """:class:`RefusedError` for a value whose partition would be a wrong one, or none."""
    from pyiceberg.transforms import DayTransform, IdentityTransform, TruncateTransform

    schema = metadata.schema()
    for part in metadata.spec().fields:
        name = schema.find_column_name(part.source_id) or ""
        values = _values_of(rows, name)
        if values is None:
            continue
        kind = schema.find_type(part.source_id)
        _require_readable(values, name)
        if isinstance(part.transform, TruncateTransform):
            _require_multiple(values, kind, name, part.transform)
        elif isinstance(part.transform, DayTransform):
            _require_day(values, kind, name)
        elif isinstance(part.transform, IdentityTransform):
            _require_single(values, kind, name)


def _require_readable(values: pa.ChunkedArray, name: str) -> None:
    """A text that is not UTF-8: pyiceberg ends the process at one when it works out a partition."""
    if not is_readable(values):
        raise RefusedError(
            f"column {name!r} has a text that is not UTF-8, and the table is partitioned by it",
            hint="Mend it in the output with make_valid_utf8(), or write it as binary.",
        )


def _require_multiple(
    values: pa.ChunkedArray, kind: IcebergType, name: str, transform: Any
) -> None:
    """A number that is none of its type when cut down to a multiple.

    Its partition is not found again by those that look for its rows, or cannot be committed.
    """
    import pyarrow.compute as pc

    lowest = _lowest_number(kind)
    least = None if lowest is None else pc.min(values).as_py()
    if lowest is None or least is None:
        return
    number = _unscaled(least)
    if number - number % transform.width < lowest:
        raise RefusedError(
            f"column {name!r} holds {least}, and the table is partitioned by {transform} "
            f"of it, which is less than any {kind}",
            hint="Filter such rows out, or partition the table in another way.",
        )


def _require_single(values: pa.ChunkedArray, kind: IcebergType, name: str) -> None:
    """A number with more digits than a float of 32 bits has.

    pyiceberg 0.12 has no more of them in the partition, and whoever looks for it finds no rows.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyiceberg.types import DoubleType

    if not isinstance(kind, DoubleType):
        return
    wide = values.cast(pa.float64())
    wrong = wide.filter(pc.not_equal(wide.cast(pa.float32(), safe=False).cast(pa.float64()), wide))
    wrong = wrong.filter(pc.invert(pc.is_nan(wrong)))
    if len(wrong):
        raise RefusedError(
            f"column {name!r} holds {wrong[0].as_py()}, of which pyiceberg keeps only the digits "
            "of a float in the partition",
            hint="Partition the table by another column, or by one of whole numbers.",
        )


def _require_day(values: pa.ChunkedArray, kind: IcebergType, name: str) -> None:
    """A time before 1970 in the last second of its day, with a fraction.

    pyiceberg 0.12 puts it into the next day, where no upsert and no reader looks for it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyiceberg.transforms import DayTransform
    from pyiceberg.types import TimestampType, TimestamptzType

    if not isinstance(kind, TimestampType | TimestamptzType):
        return
    times = values.cast(pa.timestamp("us")).filter(pc.is_valid(values))
    times = times.filter(pc.less(times.cast(pa.int64()), 0))
    if not len(times):
        return
    found = DayTransform().pyarrow_transform(TimestampType())(times).cast(pa.int32())
    days = pc.floor_temporal(times, unit="day").cast(pa.date32()).cast(pa.int32())
    wrong = times.filter(pc.not_equal(found, days))
    if len(wrong):
        raise RefusedError(
            f"column {name!r} holds {wrong[0].as_py()}, for which pyiceberg works out the "
            "partition of the next day",
            hint="Leave out the fraction of its second, or partition the table by hour or month.",
        )


def _values_of(rows: pa.Table, name: str) -> pa.ChunkedArray | None:
    """The values of a column, or of a field inside one; None when the rows lack it."""
    import pyarrow.compute as pc

    if name in rows.column_names:
        return rows.column(name)
    column, *fields = name.split(".")
    return pc.struct_field(rows.column(column), fields) if column in rows.column_names else None


def _lowest_number(kind: IcebergType) -> int | None:
    """The lowest number of a type, without a decimal's point; None for what is no number."""
    from pyiceberg.types import DecimalType, IntegerType, LongType

    if isinstance(kind, DecimalType):
        lowest: int = 1 - 10**kind.precision
        return lowest
    if isinstance(kind, IntegerType):
        return -(1 << 31)
    return -(1 << 63) if isinstance(kind, LongType) else None


def _unscaled(number: int | Decimal) -> int:
    if isinstance(number, int):
        return number
    sign, digits, _ = number.as_tuple()
    value = int("".join(map(str, digits)))
    return -value if sign else value
