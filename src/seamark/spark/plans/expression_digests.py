"""A digest of what expressions compute, beside the words that are made of their SQL.

Spark's SQL of an expression leaves out some of what decides its results. What is known of that is
told in words (``hidden_parameters``); a digest of all that the objects hold notices the rest. It
cannot say what differs, and other versions of Spark have other objects, so it refuses nothing.

Tests: ``tests/spark/test_expression_digests.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from py4j.protocol import Py4JError

from seamark._common.logs import logger_named
from seamark.spark.java_classes import class_if_any
from seamark.spark.plans.trees import each

log = logger_named("seamark.pipeline")

_HERE: Final = __package__ or ""


class ExpressionDigests:
    """Digests of expressions in one plan; empty ones where Spark's objects are not as expected."""

    def __init__(self, plan: Any, name_of: Callable[[Any], str]) -> None:
        """``name_of`` names a leaf of the plan."""
        from pyspark import SparkContext

        context: Any = SparkContext._active_spark_context
        compiled = class_if_any(context._gateway, _HERE, "ExpressionDigest", plan)
        self._version = str(context.version)
        self._digest = None
        if compiled is not None:
            leaves = [name_of(leaf) for leaf in each(plan.collectLeaves())]
            self._digest = compiled.new(plan, context._jvm.java.util.ArrayList(leaves))

    def of(self, expressions: Sequence[Any], below: Any) -> str:
        """One for all expressions over the columns of the plan ``below``, in whatever order.

        It begins with the version of Spark.
        """
        if self._digest is None:
            return ""
        try:
            found = str(self._digest.of(list(expressions), below))
        except Py4JError as error:
            log.info("expressions have no digest: %s", str(error).partition("\n")[0])
            return ""
        return f"{self._version}:{found}" if found else ""


def differ(old: str, new: str) -> bool:
    """Whether digests differ that can be compared, because one Spark has made them. Pure."""
    return old != new and old.partition(":")[0] == new.partition(":")[0]
