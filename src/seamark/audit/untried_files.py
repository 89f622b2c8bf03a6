"""Time for Spark to read files of which nobody knows what they take.

Tests: ``tests/audit/test_untried_files.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from seamark import limits_by_size
from seamark.audit.expectations import SinkHistory
from seamark.errors import StoreUnavailableError
from seamark.spark.limited_jobs import limited_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_TEXT: Final = ("json", "csv")


def may_take_long(history: SinkHistory) -> bool:
    """Whether a few characters may keep Spark busy for as long as they like.

    Of a text such as ``1e400000000`` it computes every digit where a decimal number is declared.
    """
    return history.file_format in _OF_TEXT and has_decimals(history)


def has_decimals(history: SinkHistory) -> bool:
    """Whether a decimal number is declared, be it inside of another type."""
    return any("dec" in kind.lower() for _, kind in history.columns)


def reading_untried(
    spark: SparkSession, folders: Iterable[str], place: str, option: str | None
) -> AbstractContextManager[None]:
    """:class:`StoreUnavailableError` when Spark takes longer for these folders than is usual.

    ``option`` is that by which a user names the target; None when there is no limit.
    """
    if option is None:
        return nullcontext()
    seconds = limits_by_size.job_seconds(sum(map(_stored, folders)))
    return limited_jobs(
        spark,
        seconds,
        lambda: StoreUnavailableError(
            f"Spark has not read its files within {seconds} s",
            where=place,
            hint=f"Is it the right folder? One that you name is read without limits: {option}",
        ),
    )


def _stored(folder: str) -> int:
    """What the files of a folder take; those that are gone meanwhile take nothing."""
    found = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                found += os.lstat(f"{root}/{name}").st_size
            except FileNotFoundError:
                continue
    return found
