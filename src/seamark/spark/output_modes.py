"""What Spark allows in an output mode, asked for one output at a time.

Spark looks at a query as a whole. One aggregation anywhere in it makes ``complete`` acceptable for
all of its outputs, and in ``append`` only the watermark of the first aggregation counts. So each
output is checked as if it were alone: what Spark refuses then would show too few rows here.

Tests: ``tests/pipeline/test_output_modes.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from seamark.spark.failures import output_refused, refused
from seamark.spark.plans.plan import analyzed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CHECKED: Final = "spark.sql.streaming.unsupportedOperationCheck"


def require_supported_output(name: str, df: DataFrame, output_mode: str) -> None:
    """:class:`RefusedError` for an output that Spark would not run by itself in this mode."""
    from pyspark.errors import AnalysisException

    try:
        _check(df, output_mode)
    except AnalysisException as error:
        raise output_refused(error, name, output_mode) from error


def require_supported_query(df: DataFrame, output_mode: str) -> None:
    """:class:`RefusedError` for outputs that Spark would run one by one, and not together."""
    from pyspark.errors import AnalysisException

    try:
        _check(df, output_mode)
    except AnalysisException as error:
        raise refused(error) from error


def _check(df: DataFrame, output_mode: str) -> None:
    """Spark's own check at the start of a query, which a session may turn off."""
    spark = df.sparkSession
    if str(spark.conf.get(_CHECKED, "true")).lower() != "true":
        return
    jvm: Any = spark.sparkContext._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    mode = catalyst.streaming.InternalOutputModes.apply(output_mode)
    catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(analyzed(df), mode)
