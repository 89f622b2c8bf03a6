"""The same work on many items, in several threads where that helps.

Tests: ``tests/state/test_conformance.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(
    work: Callable[[T], R], items: Collection[T], threads: int, name: str
) -> list[R]:
    """The result of the work for each item, in the order of the items.

    No thread is started for a single item or with ``threads=1``: it would cost more than it saves.
    """
    if threads == 1 or len(items) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads, name) as pool:
        return list(pool.map(work, items))
