"""Rewriting the values in the state of an operator: another row for each key, made by Spark.

Tests: ``tests/pipeline/test_upgrade_values.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from seamark._common.json_documents import require_few_values
from seamark.errors import DamageError
from seamark.spark.executor_classes import executor_object
from seamark.spark.failures import explained, is_of_spark
from seamark.spark.session import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE: Final = __package__ or ""
_CHUNK: Final = 65_535
"""Characters of a text that Spark writes in one part."""
_STATE: Final = "org.apache.spark.sql.execution.streaming.state"
CHANGELOGS: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


class SchemaField(msgspec.Struct, frozen=True):
    """A column, as Spark describes it."""

    name: str
    type: Any


class RowSchema(msgspec.Struct, frozen=True):
    """The columns of a row."""

    fields: list[SchemaField]


@dataclass(frozen=True)
class StateSchema:
    """Spark's description of the rows in a store, as JSON: of the key and of the value."""

    key: str
    value: str

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Name and type of each column of the value."""
        row = msgspec.json.decode(self.value, type=RowSchema)
        return [(field.name, _type_text(field.type)) for field in row.fields]


def _type_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def parse_schema(data: bytes) -> StateSchema:
    """What the file ``_metadata/schema`` of a store says; :class:`DamageError` when unreadable."""
    try:
        version, rest = _text(memoryview(data))
        if version != "v2":
            raise ValueError(f"its version is {version!r}")
        key, rest = _chunks(rest)
        value, rest = _chunks(rest)
        require_few_values(value)
        schema = StateSchema(key, value)
        _ = schema.columns
    except (ValueError, struct.error, msgspec.MsgspecError, RecursionError) as error:
        raise DamageError(f"the schema of a state store cannot be read: {error}") from None
    return schema


def _text(data: memoryview) -> tuple[str, memoryview]:
    (length,) = struct.unpack_from(">H", data)
    if len(data) < 2 + length:
        raise ValueError("it ends too early")
    return bytes(data[2 : 2 + length]).decode(), data[2 + length :]


def _chunks(data: memoryview) -> tuple[str, memoryview]:
    (count,) = struct.unpack_from(">i", data)
    data = data[4:]
    if not 0 < count <= 1 + len(data) // _CHUNK:  # all but the last one are full
        raise ValueError(f"it has {count} parts")
    texts = []
    for _ in range(count):
        text, data = _text(data)
        texts.append(text)
    return "".join(texts), data


@dataclass(frozen=True, kw_only=True)
class ValueRewrite:
    """One operator's state, to be written with other values."""

    operator: int
    """Its number where it is read."""
    target: int
    """Its number where it is written."""
    version: int
    partitions: Sequence[int]
    ids: Sequence[str]
    """By partition: the id of its state, in checkpoint format 2; else nothing."""
    before: StateSchema
    after: StateSchema
    columns: Sequence[Any]
    """For each column of the new value: the number of an old one, or an expression of Spark's."""
    settings: Mapping[str, str]
    """Spark's settings for stores, as the checkpoint has pinned them."""
    has_changelogs: bool


@dataclass(frozen=True)
class RewrittenPartition:
    """What was written."""

    rows: int
    id: str | None


def rewrite_values(
    spark: SparkSession, source: str, target: str, rewrite: ValueRewrite
) -> dict[int, RewrittenPartition]:
    """Write the state below the folder ``source`` again below ``target``, as version 1, whole.

    Both are roots of checkpoint directories; tasks of Spark do it, a partition each. An error of
    Spark is raised in our words.
    """
    context: Any = spark.sparkContext
    jvm, gateway = context._jvm, context._gateway
    reading = {**rewrite.settings, CHANGELOGS: str(rewrite.has_changelogs).lower()}
    ids = gateway.new_array(jvm.java.lang.String, len(rewrite.ids))
    for place, each in enumerate(rewrite.ids):
        ids[place] = each
    types = jvm.org.apache.spark.sql.types.DataType
    before, after = types.fromJson(rewrite.before.value), types.fromJson(rewrite.after.value)
    try:
        task = executor_object(
            spark,
            _HERE,
            "RewriteValues",
            jvm.org.apache.spark.util.SerializableConfiguration(context._jsc.hadoopConfiguration()),
            _store_conf(spark, reading),
            # a change alone is not a whole state
            _store_conf(spark, {**rewrite.settings, CHANGELOGS: "false"}),
            f"{source}/state",
            f"{target}/state",
            rewrite.operator,
            rewrite.target,
            rewrite.version,
            ids,
            types.fromJson(rewrite.before.key),
            before,
            after,
            _expressions(jvm, rewrite.columns, before),
        )
        partitions = context._jsc.parallelize(list(rewrite.partitions), len(rewrite.partitions))
        lines = [str(line).split(" ") for line in partitions.map(task).collect()]
    except Exception as error:
        if is_of_spark(error):
            raise explained(error) from error
        raise
    return {
        int(partition): RewrittenPartition(int(rows), id_[0] if id_ else None)
        for partition, rows, *id_ in lines
    }


def _store_conf(spark: SparkSession, settings: Mapping[str, str]) -> Any:
    any_spark: Any = spark
    jvm = any_spark.sparkContext._jvm
    with session_settings(spark, settings):
        conf = any_spark._jsparkSession.sessionState().conf()
        none = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({})
        return getattr(jvm, f"{_STATE}.StateStoreConf")(conf, none)


def _expressions(jvm: Any, columns: Sequence[Any], before: Any) -> Any:
    """The new value as expressions over the old one."""
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    made = jvm.java.util.ArrayList()
    fields = before.fields()
    for column in columns:
        if isinstance(column, int):
            made.add(expressions.BoundReference(column, fields[column].dataType(), True))
        else:
            made.add(column)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(made).toSeq()
