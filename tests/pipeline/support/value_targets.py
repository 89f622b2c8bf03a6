"""The targets that values go to, and how a user reads them again."""

from __future__ import annotations

import math
import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seamark._common.text import backquoted
from tests.pipeline.support.plain_values import (
    Row,
    bytes_of,
    from_json,
    from_key,
    from_plain_text,
    micros,
    number,
    parsed,
    rows_in,
    rows_of,
)
from tests.pipeline.support.random_values import Case

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from seamark.sinks import Sink


@dataclass(frozen=True)
class Services:
    """Servers, by their addresses; without one, its sinks are left out."""

    postgres: Callable[[], str] | None = None
    """Makes a database."""
    redis: str | None = None
    kafka: str | None = None
    """Address and topic, with a slash between."""


class Target(ABC):
    """Where the rows of one case go."""

    def __init__(
        self, spark: SparkSession, case: Case, schema: StructType, root: Path, services: Services
    ) -> None:
        self.spark, self.case, self.schema = spark, case, schema
        self.root, self.services = root, services
        self.dice = random.Random(case.choices)
        self.name = uuid.uuid4().hex
        self.kinds: dict[str, DataType] = {each.name: each.dataType for each in schema.fields}

    @abstractmethod
    def sink(self) -> Sink:
        """The sink; what it needs is made."""

    def unreadable(self) -> bool:
        """Whether docs/ say of a value of the case that this reader cannot read it."""
        return False

    @abstractmethod
    def rows(self) -> list[Row]:
        """What a reader sees."""

    def missed(self) -> list[str]:
        """Conditions by which a reader does not find all rows that meet them."""
        return []

    def stock(self, df: DataFrame) -> list[Row] | None:
        """What a reader sees of what stock Spark writes, where a format does not keep all."""
        return None

    def same_key(self, value: Any) -> Any:
        """What is equal for values of one key."""
        return value

    def kept(self, name: str, value: Any) -> Any:
        """What docs/ say that the target makes of a value of a column."""
        return value


class Files(Target):
    @property
    def format(self) -> Any:
        return self.case.sink.partition("-")[2]

    def sink(self) -> Sink:
        from seamark.sinks import FileSink

        return FileSink(self.root / "out", self.format, partition_by=self.case.partition_by)

    def rows(self) -> list[Row]:
        return self._read(self.root / "out") if list(self.root.glob("out/epoch=*")) else []

    def _read(self, folder: Path) -> list[Row]:
        reader = self.spark.read.schema(self.schema).option("multiLine", self.format == "csv")
        rows = reader.format(self.format).load(str(folder))
        return rows_of(rows.select(*(backquoted(each.name) for each in self.schema)))

    def stock(self, df: DataFrame) -> list[Row] | None:
        folder = self.root / "stock"
        df.write.format(self.format).partitionBy(*self.case.partition_by).save(str(folder))
        return self._read(folder)


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


class View(Target):
    """A KeyValueSink in RocksDB or in Redis."""

    def _url(self) -> str:
        if self.case.sink == "view-redis":
            return f"{self.services.redis}?namespace={self.name}"
        return f"rocksdb://{self.root}/view"

    def sink(self) -> Sink:
        from seamark.sinks import KeyValueSink

        return KeyValueSink(self._url(), key=self.case.keys, staging=self.root / "staging")

    def rows(self) -> list[Row]:
        from seamark.errors import StoreUnavailableError
        from seamark.progress import open_progress

        shown = []
        try:
            with open_progress(self._url(), read_only=True) as view:
                items = [*view.items("view")]
        except StoreUnavailableError:
            return []
        for key, value in items:
            row = dict(from_json(parsed(value), self.schema))
            assert self._key(key) == tuple(row[name] for name in self.case.keys), (key, value)
            shown.append(row)
        return shown

    def _key(self, key: bytes) -> tuple[Any, ...]:
        from pyspark.sql.types import BinaryType, StringType

        kinds = [self.kinds[name] for name in self.case.keys]
        if len(kinds) > 1:
            return tuple(map(from_json, parsed(key), kinds))
        if isinstance(kinds[0], BinaryType):
            return (bytes_of(key),)
        if isinstance(kinds[0], StringType):
            return (("text", key),)
        return (from_key(key.decode(), kinds[0]),)


class Function(Target):
    def sink(self) -> Sink:
        from seamark.sinks import ForeachBatchSink

        self.seen: list[list[Row]] = []
        return ForeachBatchSink(lambda df, _: self.seen.append(rows_of(df)), idempotent=True)

    def rows(self) -> list[Row]:
        return [row for rows in self.seen for row in rows]


_COLUMNS: Final = {
    "boolean": ("boolean",),
    "tinyint": ("smallint", "integer", "bigint", "numeric"),
    "smallint": ("smallint", "integer", "bigint", "numeric"),
    "int": ("integer", "bigint", "numeric", "numeric(12,2)"),
    "bigint": ("bigint", "numeric", "numeric(30,5)"),
    "float": ("real", "double precision"),
    "double": ("double precision",),
    "string": ("text", "text", "varchar", "varchar(300)"),
    "binary": ("bytea",),
    "date": ("date",),
    "timestamp": ("timestamptz",),
    "timestamp_ntz": ("timestamp",),
}


class Postgres(Target):
    """A table whose columns are of any types that fit."""

    def sink(self) -> Sink:
        import psycopg
        from psycopg.sql import SQL, Identifier

        from seamark.sinks import PostgresSink

        assert self.services.postgres is not None
        self.dsn = self.services.postgres()
        self.columns = {name: self._column(kind) for name, kind in self.kinds.items()}
        definitions = [
            SQL("{} {}").format(Identifier(name), SQL(kind)) for name, kind in self.columns.items()
        ]
        if self.case.keys:
            keys = SQL(", ").join(map(Identifier, self.case.keys))
            definitions.append(SQL("UNIQUE ({})").format(keys))
        with psycopg.connect(self.dsn) as db:
            db.execute(SQL("CREATE TABLE rows ({})").format(SQL(", ").join(definitions)))
        mode: Any = self.case.mode
        return PostgresSink(self.dsn, "rows", mode=mode, keys=self.case.keys)

    def _column(self, kind: DataType) -> str:
        from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

        if isinstance(kind, ArrayType):
            return f"{self._column(kind.elementType).removesuffix('[]')}[]"
        if isinstance(kind, StructType | MapType):
            return self.dice.choice(("json", "jsonb"))
        if isinstance(kind, DecimalType):
            exact = f"numeric({kind.precision},{kind.scale})"
            return self.dice.choice(("numeric", exact))
        return self.dice.choice(_COLUMNS[kind.simpleString().partition(" ")[0]])

    columns: dict[str, str] = {}  # noqa: RUF012 - as long as there is no table

    def rows(self) -> list[Row]:
        import psycopg
        from psycopg.sql import SQL, Identifier

        if not self.columns:
            return []
        picked = SQL(", ").join(
            SQL("{}::text{}").format(Identifier(name), SQL("[]" if "[]" in kind else ""))
            if "json" in kind
            else Identifier(name)
            for name, kind in self.columns.items()
        )
        with psycopg.connect(self.dsn, options="-c timezone=UTC -c extra_float_digits=1") as db:
            found = db.execute(SQL("SELECT {} FROM rows").format(picked)).fetchall()
        return [
            {
                name: from_postgres(value, self.kinds[name], self.columns[name])
                for name, value in zip(self.columns, row, strict=True)
            }
            for row in found
        ]

    def kept(self, name: str, value: Any) -> Any:
        return with_one_zero(value) if self.columns.get(name) == "jsonb" else value

    def same_key(self, value: Any) -> Any:
        return ("float", "0x0.0p+0") if value == ("float", "-0x0.0p+0") else value


def with_one_zero(value: Any) -> Any:
    """A value with 0.0 for each -0.0 inside."""
    if value == ("float", "-0x0.0p+0"):
        return ("float", "0x0.0p+0")
    return tuple(map(with_one_zero, value)) if isinstance(value, tuple) else value


def from_postgres(value: Any, kind: DataType, column: str) -> Any:
    """A value as psycopg gives it, as what it was in Spark."""
    import datetime as dt

    from pyspark.sql import types as spark

    if value is None:
        return None
    if isinstance(kind, spark.ArrayType):
        return tuple(from_postgres(each, kind.elementType, column) for each in value)
    if "json" in column:
        return from_json(_sorted_as(parsed(value), kind), kind)
    if isinstance(kind, spark.BinaryType):
        return bytes_of(bytes(value))
    if isinstance(kind, spark.FloatType | spark.DoubleType):
        return from_plain_text(repr(value), kind)
    if isinstance(kind, spark.DecimalType):
        return number(Decimal(value))
    if isinstance(kind, spark.IntegralType):
        assert value == int(value)
        return int(value)
    if isinstance(kind, spark.DateType):
        return "date", (value - dt.date(1970, 1, 1)).days
    if isinstance(kind, spark.TimestampType):
        return "time", micros(
            value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
        )
    if isinstance(kind, spark.TimestampNTZType):
        return "local", micros(value.isoformat(timespec="microseconds"))
    return ("text", value.encode()) if isinstance(value, str) else value


def _sorted_as(value: Any, kind: DataType) -> Any:
    """The same with the members of structs in their order, which jsonb does not keep."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if value is None:
        return None
    if isinstance(kind, StructType):
        members = dict(value.members)
        assert sorted(members) == sorted(kind.names)
        value.members = [
            (each.name, _sorted_as(members[each.name], each.dataType)) for each in kind
        ]
    elif isinstance(kind, MapType):
        value.members = [(name, _sorted_as(item, kind.valueType)) for name, item in value.members]
    elif isinstance(kind, ArrayType):
        return [_sorted_as(each, kind.elementType) for each in value]
    return value


class Records(Target):
    """Records of Kafka: every column in the JSON, and perhaps one as key and one as headers."""

    def sink(self) -> Sink:
        from seamark.sinks import KafkaSink

        address, self.topic = (self.services.kafka or "").split("/")
        self.key = next((each.name for each in self.schema if is_payload(each.dataType)), None)
        self.headers = next((each.name for each in self.schema if is_headers(each.dataType)), None)
        return KafkaSink(
            address,
            self.topic,
            key=self.key,
            headers=self.headers,
            value=[name for name in self.kinds if name != self.headers],
            staging=str(self.root / "staging"),
        )

    def rows(self) -> list[Row]:
        from pyspark.sql.types import StructType

        from tests.sinks.support.kafka_records import Broker

        broker = Broker(int((self.services.kafka or "").partition("/")[0].partition(":")[2]))
        kind = StructType([each for each in self.schema if each.name != self.headers])
        shown = []
        for record in broker.records(self.topic):
            row = dict(from_json(parsed(record.value()), kind))
            if self.headers is not None:
                row[self.headers] = self._headers(record.headers())
            if self.key is not None:
                assert self._key(record.key()) == row[self.key], record.key()
            shown.append(row)
        return shown

    def _headers(self, found: Any) -> Any:
        kind: Any = self.kinds[self.headers or ""]
        names = kind.elementType.names
        values = [None if value is None else bytes_of(value) for _, value in found or ()]
        pairs = zip([("text", name.encode()) for name, _ in found or ()], values, strict=True)
        return tuple(tuple(zip(names, pair, strict=True)) for pair in pairs)

    def _key(self, key: bytes | None) -> Any:
        from pyspark.sql.types import BinaryType, StringType

        kind = self.kinds[self.key or ""]
        if key is None or isinstance(kind, BinaryType):
            return None if key is None else bytes_of(key)
        return ("text", key) if isinstance(kind, StringType) else from_json(parsed(key), kind)


def is_payload(kind: DataType) -> bool:
    """Whether a column can be the key of a record."""
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

    return isinstance(kind, ArrayType | MapType | StructType | BinaryType) or kind == StringType()


def is_headers(kind: DataType) -> bool:
    return kind.simpleString() == "array<struct<key:string,value:binary>>"


TARGETS: Final[dict[str, type[Target]]] = {
    **dict.fromkeys(("files-parquet", "files-json", "files-csv", "files-orc"), Files),
    "delta": Delta,
    "iceberg": Iceberg,
    "view-rocksdb": View,
    "view-redis": View,
    "postgres": Postgres,
    "function": Function,
    "kafka": Records,
}
