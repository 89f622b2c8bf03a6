"""Walking the trees of Spark's plans and expressions, which are objects of Scala.

Tests: ``tests/spark/test_computation.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def each(seq: Any) -> Iterator[Any]:
    """The members of a sequence of Scala's."""
    iterator = seq.iterator()
    while iterator.hasNext():
        yield iterator.next()


def class_name(node: Any) -> str:
    """The name of a node's class, without its package."""
    return str(node.getClass().getSimpleName())
