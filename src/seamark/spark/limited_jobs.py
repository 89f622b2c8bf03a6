"""Spark jobs that are given up when they take too long.

Some hundred bytes can keep Spark busy for hours, and it gives up for no reason of its own.

Tests: ``tests/spark/test_limited_jobs.py``.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from seamark.errors import SeamarkError
from seamark.spark.failures import is_of_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AGAIN: Final = 0.5


@contextmanager
def limited_jobs(
    spark: SparkSession, seconds: float, too_late: Callable[[], SeamarkError]
) -> Iterator[None]:
    """Cancel the jobs that this thread runs in the block when they take longer than that.

    What Spark says to that becomes the error of ``too_late``.
    """
    context, tag = spark.sparkContext, f"seamark-{uuid.uuid4().hex}"
    has_ended, is_over = threading.Event(), threading.Event()

    def watch() -> None:
        patience = seconds
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
        if is_over.is_set() and is_of_spark(error):
            raise too_late() from error
        raise
    finally:
        has_ended.set()
        watcher.join()
        context.removeJobTag(tag)
