"""A local Spark session for tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def local_spark(
    warehouse: Path, settings: dict[str, str] | None = None, *, log_level: str = "ERROR"
) -> Iterator[SparkSession]:
    """Start a Spark with two threads on loopback, and stop it and its JVM at the end."""
    from pyspark.sql import SparkSession

    from seamark.spark.java import use_java

    use_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's own choice is 'python3'
    all_settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(settings or {}),
    }
    session = SparkSession.builder.master("local[2]").config(map=all_settings).getOrCreate()
    session.sparkContext.setLogLevel(log_level)
    yield session
    session.stop()
    _end_jvm()


def _end_jvm() -> None:
    """The next session would run in this JVM, which does not take its jars (``spark.jars``)."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()  # it runs until then
    gateway.proc.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None
