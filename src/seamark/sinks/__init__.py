"""Where the rows of a pipeline go, all sinks in step with one checkpoint.

::

    from seamark.sinks import FileSink

    pipeline.sink("bars", bars, FileSink("/data/bars", format="parquet"))

Names are loaded on first use; none of them needs Spark before rows are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seamark._common.lazy import lazy_names

if TYPE_CHECKING:
    from seamark.sinks.consistent_cut import Cut, SinkCut
    from seamark.sinks.contract import Committable, Description, Epoch, Guarantee, Receipt, Sink
    from seamark.sinks.delta.sink import DeltaSink
    from seamark.sinks.files import FileSink
    from seamark.sinks.foreach import ForeachBatchSink
    from seamark.sinks.iceberg.reading import iceberg_table
    from seamark.sinks.iceberg.sink import IcebergSink
    from seamark.sinks.kafka.reading import kafka_records
    from seamark.sinks.kafka.sink import KafkaSink
    from seamark.sinks.keyvalue.sink import KeyValueSink
    from seamark.sinks.postgres.sink import PostgresSink
    from seamark.sinks.publish import read_receipts
    from seamark.sinks.read_point import ReadPoint
    from seamark.sinks.small_sinks import ConsoleSink, MemorySink
    from seamark.spark.batch_log import Plan

__all__ = [
    "Committable",
    "ConsoleSink",
    "Cut",
    "DeltaSink",
    "Description",
    "Epoch",
    "FileSink",
    "ForeachBatchSink",
    "Guarantee",
    "IcebergSink",
    "KafkaSink",
    "KeyValueSink",
    "MemorySink",
    "Plan",
    "PostgresSink",
    "ReadPoint",
    "Receipt",
    "Sink",
    "SinkCut",
    "iceberg_table",
    "kafka_records",
    "read_receipts",
]

_HOMES = {
    "seamark.sinks.consistent_cut": "Cut SinkCut",
    "seamark.sinks.contract": "Committable Description Epoch Guarantee Receipt Sink",
    "seamark.sinks.delta.sink": "DeltaSink",
    "seamark.sinks.files": "FileSink",
    "seamark.sinks.foreach": "ForeachBatchSink",
    "seamark.sinks.kafka.reading": "kafka_records",
    "seamark.sinks.kafka.sink": "KafkaSink",
    "seamark.sinks.iceberg.reading": "iceberg_table",
    "seamark.sinks.iceberg.sink": "IcebergSink",
    "seamark.sinks.keyvalue.sink": "KeyValueSink",
    "seamark.sinks.postgres.sink": "PostgresSink",
    "seamark.sinks.publish": "read_receipts",
    "seamark.sinks.read_point": "ReadPoint",
    "seamark.sinks.small_sinks": "ConsoleSink MemorySink",
    "seamark.spark.batch_log": "Plan",
}

if not TYPE_CHECKING:  # otherwise a type checker would accept misspelt names
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, globals())
