"""The same work on many things, several at a time where that helps."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(work: Callable[[T], R], items: Collection[T], threads: int, name: str) -> list[R]:
    """What the work gives for each item, in their order.

    For a single one, or with a single thread, none is started: that would cost more than it saves.
    """
    if threads == 1 or len(items) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads, name) as pool:
        return list(pool.map(work, items))
