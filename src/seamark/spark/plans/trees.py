"""Walking the trees of Spark's plans and expressions, which are objects of Scala.

Tests: ``tests/spark/test_computation.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from seamark.errors import RefusedError

_MOST_CALLS: Final = 5_000
"""Calls inside each other for the walks through a plan: some five for each of its steps. What is
left of a thread's stack is far more."""


@contextmanager
def room_for_deep_plans() -> Iterator[None]:
    """Let plans be walked through that have more steps than Python has calls inside each other.

    Spark runs a column that is computed from another one in hundreds of steps.
    :class:`RefusedError` for a plan that is deeper still.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _MOST_CALLS))
    try:
        yield
    except RecursionError:
        raise RefusedError(
            "the plan of an output has too many steps, one on the other, to be described",
            hint="Compute columns in one select instead of withColumn in a loop.",
        ) from None
    finally:
        sys.setrecursionlimit(before)


def each(seq: Any) -> Iterator[Any]:
    """The members of a sequence of Scala's."""
    iterator = seq.iterator()
    while iterator.hasNext():
        yield iterator.next()


def class_name(node: Any) -> str:
    """The name of a node's class, without its package."""
    return str(node.getClass().getSimpleName())
