"""Spark jobs that are given up when they take too long.

Tests: ``tests/audit/test_limited_jobs.py``.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from seamark import limits
from seamark.errors import StoreUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AGAIN: Final = 0.5


@contextmanager
def limited_jobs(
    spark: SparkSession, folders: Iterable[str], place: str, option: str | None
) -> Iterator[None]:
    """Cancel the jobs of the block when they take longer than files of that size do.

    :class:`StoreUnavailableError` then. ``option`` is that by which a user names the folder; None
    when there is no limit.
    """
    if option is None:
        yield
        return
    seconds = limits.job_seconds(sum(map(_stored, folders)))
    context, tag = spark.sparkContext, f"seamark-{uuid.uuid4().hex}"
    has_ended, is_over = threading.Event(), threading.Event()

    def watch() -> None:
        patience: float = seconds
        while not has_ended.wait(patience):
            is_over.set()
            context.cancelJobsWithTag(tag)
            patience = _AGAIN  # only jobs that run are cancelled, and one may not have begun

    context.addJobTag(tag)
    watcher = threading.Thread(target=watch, name="seamark-limited-jobs", daemon=True)
    watcher.start()
    try:
        yield
    except Exception as error:
        if is_over.is_set():
            raise StoreUnavailableError(
                f"Spark has not read its files within {seconds} s",
                where=place,
                hint=f"Is it the right folder? One that you name is read without limits: {option}",
            ) from error
        raise
    finally:
        has_ended.set()
        watcher.join()
        context.removeJobTag(tag)


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
