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
    from seamark.sinks.contract import Committable, Description, Epoch, Guarantee, Receipt, Sink
    from seamark.sinks.files import FileSink
    from seamark.sinks.foreach import ForeachBatchSink
    from seamark.sinks.keyvalue.sink import KeyValueSink
    from seamark.sinks.publish import read_receipts
    from seamark.sinks.small_sinks import ConsoleSink, MemorySink
    from seamark.spark.batch_log import Plan

__all__ = [
    "Committable",
    "ConsoleSink",
    "Description",
    "Epoch",
    "FileSink",
    "ForeachBatchSink",
    "Guarantee",
    "KeyValueSink",
    "MemorySink",
    "Plan",
    "Receipt",
    "Sink",
    "read_receipts",
]

_HOMES = {
    "seamark.sinks.contract": "Committable Description Epoch Guarantee Receipt Sink",
    "seamark.sinks.files": "FileSink",
    "seamark.sinks.foreach": "ForeachBatchSink",
    "seamark.sinks.keyvalue.sink": "KeyValueSink",
    "seamark.sinks.publish": "read_receipts",
    "seamark.sinks.small_sinks": "ConsoleSink MemorySink",
    "seamark.spark.batch_log": "Plan",
}

if not TYPE_CHECKING:  # otherwise a type checker would accept misspelt names
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, globals())
