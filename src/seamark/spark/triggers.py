"""Which of Spark's triggers a pipeline can have.

Tests: ``tests/spark/test_triggers.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from seamark.errors import InvalidInputError, RefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BATCHES: Final = ("processingTime", "availableNow", "once")
_NO_BATCHES: Final = ("realTime", "continuous")


def check_trigger(df: DataFrame, trigger: Mapping[str, Any]) -> None:
    """Refuse a trigger that Spark would refuse, or that plans no rows before they are read.

    To be asked before a store is claimed: Spark looks at it when the query is started.
    """
    from pyspark.errors import PySparkException

    hint = f"A pipeline takes one of {', '.join(_BATCHES)}."
    if odd := sorted(trigger.keys() & {*_NO_BATCHES}):
        raise RefusedError(
            f"a pipeline cannot run with the trigger {odd[0]}: it has no micro-batches, of which "
            "each is planned before its rows are read",
            hint=hint,
        )
    try:
        df.writeStream.trigger(**trigger)
    except (PySparkException, TypeError, ValueError) as error:
        raise InvalidInputError(f"the trigger cannot be used: {error}", hint=hint) from error
