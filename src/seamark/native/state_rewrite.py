"""The rows of a state store on executors: counted with a digest, and written for other partitions.

Spark's runner rewrites RocksDB only. HDFS-backed state is rewritten here: Spark reads the rows,
Spark's own shuffle puts each where the query will look for it, and a task writes each partition as
a snapshot. No row passes Python.

Tests: ``tests/native/test_state_rewrite.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from seamark.checkpoint_dir.operators import StatefulOperator, store_path
from seamark.spark.executor_classes import executor_object

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_HERE: Final = __package__ or ""

KEYED_BY_ALL: Final = frozenset(
    {
        "stateStoreSave",
        "dedupe",
        "dedupeWithinWatermark",
        "flatMapGroupsWithState",
        "applyInPandasWithState",
    }
)
"""Operators of HDFS-backed state whose rows go to partitions by all columns of the state's key."""
SESSIONS: Final = "sessionWindowStateStoreSaveExec"
"""Its key ends with the start of the session, which does not choose the partition."""
_INDEXED: Final = "-keyWithIndexToValue"
"""Such stores of a join have the join's key and, last, a number."""


class RowsDigest(NamedTuple):
    """Rows of a store, in any order."""

    rows: int
    total: int
    """The sum of a hash of each row."""


class StoreRows:
    """The rows of one store of an operator, over all partitions, after a batch."""

    def __init__(
        self,
        session: SparkSession,
        uri: str,
        batch: int,
        operator: StatefulOperator,
        store: str,
        *,
        raw: bool,
    ) -> None:
        """``raw`` has all column families of RocksDB in one, as bytes."""
        reader = session.read.format("statestore").option("batchId", batch)
        reader = reader.option("operatorId", operator.number).option("storeName", store)
        frame = reader.option("_readAllColumnFamilies", raw).load(uri)
        self._session = session
        self._operator = operator
        self._store = store
        self._rows: DataFrame = frame if raw else frame.select("key", "value")

    def digest(self, partitions: int) -> RowsDigest:
        """What the rows are. A directory that once had more partitions keeps their folders."""
        return self._run(self._rows, "", "", "", first=partitions)

    def write(self, root: str, partitions: int, version: int, codec: str) -> RowsDigest:
        """Write them below ``root`` as snapshots of so many partitions; what was written."""
        moved = self._rows.repartition(partitions, *self._partition_columns())
        folder = f"state/{self._operator.number}/"
        below = store_path(self._operator.number, 0, self._store).removeprefix(f"{folder}0")
        return self._run(moved, f"{root}/{folder}", f"{below}/{version}.snapshot", codec)

    def _partition_columns(self) -> list[Column]:
        """What Spark's exchange before the operator hashes."""
        from pyspark.sql import functions as f

        key = f.col("key")
        if self._operator.name == SESSIONS or self._store.endswith(_INDEXED):
            return [key.getField(name) for name in self._fields("key").names[:-1]]
        return [key]  # a struct has the hash of its fields, one after the other

    def _fields(self, column: str) -> StructType:
        from pyspark.sql.types import StructType

        fields = self._rows.schema[column].dataType
        assert isinstance(fields, StructType)
        return fields

    def _run(
        self, frame: DataFrame, before: str, after: str, codec: str, first: int | None = None
    ) -> RowsDigest:
        context: Any = self._session.sparkContext
        settings = context._jvm.org.apache.spark.util.SerializableConfiguration(
            context._jsc.hadoopConfiguration()
        )
        fields = [len(self._fields(column)) if after else 0 for column in ("key", "value")]
        rows = executor_object(
            self._session, _HERE, "StateRows", settings, before, after, codec, *fields
        )
        java: Any = frame._jdf
        partitions = java.queryExecution().toRdd()
        if first is not None:
            chosen = executor_object(self._session, _HERE, "FirstPartitions", first)
            pruned = context._jvm.org.apache.spark.rdd.PartitionPruningRDD
            partitions = pruned.create(partitions, chosen)
        lines = partitions.toJavaRDD().mapPartitionsWithIndex(rows, True).collect()
        found = [line.split() for line in lines]
        total = sum(int(each) for _, each in found) % (1 << 64)
        return RowsDigest(sum(int(count) for count, _ in found), total)
