"""Values in tables of Delta and Iceberg, as their own readers see them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.pipeline.support.plain_values import (
    Row,
    rows_in,
)
from tests.pipeline.support.value_target import Target

if TYPE_CHECKING:
    from seamark.sinks import Sink


class Delta(Target):
    def sink(self) -> Sink:
        from seamark.sinks import DeltaSink

        case = self.case
        mode: Any = case.mode
        return DeltaSink(
            self.root / "table", mode=mode, keys=case.keys, partition_by=case.partition_by
        )

    def unreadable(self) -> bool:
        return any(
            each.name in self.case.partition_by
            and each.kind.startswith("decimal")
            and "'-" in "".join(each.values)
            for each in self.case.columns
        )

    def _read(self, **how: Any) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(str(self.root / "table")).to_pyarrow_table(**how)

    def rows(self) -> list[Row]:
        return rows_in(self._read()) if (self.root / "table" / "_delta_log").is_dir() else []

    def missed(self) -> list[str]:
        if self.case.mode == "upsert" or not (self.root / "table" / "_delta_log").is_dir():
            return []  # of a merge deltalake writes statistics by which it does not find infinity
        import pyarrow as pa
        import pyarrow.compute as pc

        table = self._read()

        def found(name: str, value: Any) -> Any:
            literal = pa.scalar(value, table.schema.field(name).type)
            return self._read(filters=pc.equal(pc.field(name), literal))

        return missed_in(table, found)

    def same_key(self, value: Any) -> Any:
        return ("float", "0x0.0p+0") if value == ("float", "-0x0.0p+0") else value


def missed_in(table: Any, found: Callable[[str, Any], Any]) -> list[str]:
    """Rows that a reader does not find by one of their values: files are left out by statistics."""
    import pyarrow as pa
    from pyarrow import types

    failed = []
    for name in table.column_names:
        kind = table.schema.field(name).type
        if types.is_nested(kind) or types.is_boolean(kind):
            continue
        try:
            found_values = set(table[name].to_pylist()) - {None}
        except (UnicodeDecodeError, pa.ArrowInvalid):
            continue
        for value in [each for each in found_values if each == each][:6]:  # noqa: PLR0124 - NaN
            wanted = sum(each == value for each in table[name].to_pylist())
            got = sum(each == value for each in found(name, value)[name].to_pylist())
            if got != wanted:
                failed.append(f"{name!r} = {value!r}: {got} rows of {wanted}")
    return failed


class Iceberg(Target):
    def _catalog(self) -> Any:
        from tests.sinks.support.iceberg import properties

        return properties(self.root)

    def sink(self) -> Sink:
        from pyiceberg.catalog import load_catalog

        from seamark.sinks import IcebergSink
        from seamark.sinks.iceberg.kept_nulls import keep_nulls

        keep_nulls()  # pyiceberg reads null lists of structs as empty ones, and Spark does not
        given = self._catalog()
        self.catalog = load_catalog(given.pop("name"), **given)
        self.catalog.create_namespace_if_not_exists("db")
        schema = self._table_schema()
        self.catalog.create_table("db.rows", schema, partition_spec=self._spec(schema))
        mode: Any = self.case.mode
        return IcebergSink(self._catalog(), "db.rows", mode=mode, keys=self.case.keys)

    def _table_schema(self) -> Any:
        from pyiceberg import types
        from pyiceberg.schema import Schema
        from pyiceberg.types import NestedField

        from seamark.sinks.iceberg.columns import as_iceberg

        made = []
        for each in as_iceberg(self.schema, None, "here").fields:
            kind = each.field_type
            if self.dice.random() < 0.5:
                wider = {"int": types.LongType(), "float": types.DoubleType()}.get(str(kind))
                kind = wider or kind
                if isinstance(kind, types.DecimalType):
                    kind = types.DecimalType(min(38, kind.precision + 3), kind.scale)
            made.append(NestedField(each.field_id, each.name, kind, required=False))
        return Schema(*made)

    def _spec(self, schema: Any) -> Any:
        from pyiceberg import transforms
        from pyiceberg.partitioning import PartitionField, PartitionSpec

        fields = []
        for place, name in enumerate(self.case.partition_by):
            kind = schema.find_type(name)
            possible: list[Any] = [
                transforms.IdentityTransform(), transforms.BucketTransform(4),
                transforms.TruncateTransform(3), transforms.YearTransform(),
                transforms.MonthTransform(), transforms.DayTransform(), transforms.HourTransform(),
            ]  # fmt: skip
            fitting = [each for each in possible if each.can_transform(kind)]
            fields.append(
                PartitionField(
                    schema.find_field(name).field_id,
                    1000 + place,
                    self.dice.choice(fitting),
                    f"part_{place}",
                )
            )
        return PartitionSpec(*fields)

    def rows(self) -> list[Row]:
        table = self.catalog.load_table("db.rows")
        return self._narrowed(rows_in(table.scan().to_arrow()))

    def _narrowed(self, rows: list[Row]) -> list[Row]:
        return rows

    def missed(self) -> list[str]:
        from pyiceberg.expressions import EqualTo

        table = self.catalog.load_table("db.rows")
        rows = table.scan().to_arrow()
        equal: Any = EqualTo  # its own types do not know how it is called

        def found(name: str, value: Any) -> Any:
            if isinstance(value, float) and math.isinf(value):
                return rows  # pyiceberg takes it for less or more than any value
            return table.scan(row_filter=equal(name, value)).to_arrow()

        return missed_in(rows, found)
