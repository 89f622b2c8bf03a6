"""The targets that values go to: files, views, functions and records; tables stand aside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seamark._common.text import backquoted
from seamark.sinks.read_point import needed_to_read
from tests.pipeline.support.plain_values import (
    Row,
    bytes_of,
    from_json,
    from_key,
    parsed,
    rows_of,
)
from tests.pipeline.support.value_target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from seamark.sinks import Sink


from tests.pipeline.support.value_postgres import Postgres
from tests.pipeline.support.value_tables import Delta, Iceberg


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
        reader = self.spark.read.schema(self.schema).options(**needed_to_read(self.format, {}))
        rows = reader.format(self.format).load(str(folder))
        return rows_of(rows.select(*(backquoted(each.name) for each in self.schema)))

    def stock(self, df: DataFrame) -> list[Row] | None:
        folder = self.root / "stock"
        df.write.format(self.format).partitionBy(*self.case.partition_by).save(str(folder))
        return self._read(folder)


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


class Records(Target):
    """Records of Kafka: every column in the JSON, and perhaps one as key and one as headers."""

    def sink(self) -> Sink:
        from seamark.sinks import KafkaSink

        address, self.topic = (self.services.kafka or "").split("/")
        self.headers = next((each.name for each in self.schema if is_headers(each.dataType)), None)
        left = [each for each in self.schema if each.name != self.headers]
        self.key = next((each.name for each in left if is_payload(each.dataType)), None)
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

    def kept(self, name: str, value: Any) -> Any:
        return () if name == self.headers and value is None else value  # a record has no null there

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
