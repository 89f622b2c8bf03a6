"""Where the rows of a pipeline go, all sinks in step with one checkpoint.

::

    from seamark.sinks import FileSink

    pipeline.sink("bars", bars, FileSink("/data/bars", format="parquet"))

Names are loaded on first use; none of them needs Spark before rows are written.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seamark.sinks.console import ConsoleSink
    from seamark.sinks.contract import (
        Committable,
        Description,
        Epoch,
        Guarantee,
        Plan,
        Receipt,
        Sink,
    )
    from seamark.sinks.files import FileSink
    from seamark.sinks.foreach import ForeachBatchSink
    from seamark.sinks.memory import MemorySink
    from seamark.sinks.published import read_receipts

__all__ = [
    "Committable",
    "ConsoleSink",
    "Description",
    "Epoch",
    "FileSink",
    "ForeachBatchSink",
    "Guarantee",
    "MemorySink",
    "Plan",
    "Receipt",
    "Sink",
    "read_receipts",
]

_HOME = {
    "Committable": "contract",
    "ConsoleSink": "console",
    "Description": "contract",
    "Epoch": "contract",
    "FileSink": "files",
    "ForeachBatchSink": "foreach",
    "Guarantee": "contract",
    "MemorySink": "memory",
    "Plan": "contract",
    "Receipt": "contract",
    "Sink": "contract",
    "read_receipts": "published",
}

if not TYPE_CHECKING:  # a type checker would take every misspelt name for an object

    def __getattr__(name: str) -> object:
        """Load a public name from its module on first use."""
        module = _HOME.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{module}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
