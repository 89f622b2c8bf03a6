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
    from seamark.sinks.contract import (
        Committable,
        Description,
        Epoch,
        Guarantee,
        Receipt,
        Sink,
    )
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

_HOME = {
    "Committable": "seamark.sinks.contract",
    "ConsoleSink": "seamark.sinks.small_sinks",
    "Description": "seamark.sinks.contract",
    "Epoch": "seamark.sinks.contract",
    "FileSink": "seamark.sinks.files",
    "ForeachBatchSink": "seamark.sinks.foreach",
    "Guarantee": "seamark.sinks.contract",
    "KeyValueSink": "seamark.sinks.keyvalue.sink",
    "MemorySink": "seamark.sinks.small_sinks",
    "Plan": "seamark.spark.batch_log",
    "Receipt": "seamark.sinks.contract",
    "Sink": "seamark.sinks.contract",
    "read_receipts": "seamark.sinks.publish",
}

if not TYPE_CHECKING:  # otherwise a type checker would accept misspelt names
    __getattr__ = lazy_names(__name__, _HOME, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
