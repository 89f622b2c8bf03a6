"""A declared source as a stream: given as one, or as a reader that is loaded here.

Tests: ``tests/pipeline/test_pipeline.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seamark.errors import InvalidInputError
from seamark.sources.patience import asked_again
from seamark.spark.failures import explained, is_of_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def loaded(reader: Any, patience: float) -> DataFrame:
    """The stream; a table that does not answer, and has to say its columns, is waited for."""
    if hasattr(reader, "isStreaming"):
        stream: DataFrame = reader
        return stream
    if not hasattr(reader, "load"):
        raise InvalidInputError(
            f"a source is a stream, not {type(reader).__name__}",
            hint="Give source() what spark.readStream…load() returns.",
        )

    def load() -> DataFrame:
        try:
            loaded: DataFrame = reader.load()
        except Exception as error:
            if is_of_spark(error):
                raise explained(error) from error
            raise
        return loaded

    return asked_again(patience, load)
