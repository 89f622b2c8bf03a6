"""A file system that only Hadoop knows, with a local folder behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def mounted_folder(spark: SparkSession, folder: Path) -> Iterator[str]:
    """A URI of a scheme that neither we nor any object store know, leading to a local folder."""
    java: Any = spark.sparkContext._jsc
    conf = java.hadoopConfiguration()
    key = "fs.viewfs.mounttable.seamark.link./data"
    folder.mkdir(parents=True, exist_ok=True)
    conf.set(key, folder.as_uri())
    conf.set("fs.viewfs.impl.disable.cache", "true")
    try:
        yield "viewfs://seamark/data"
    finally:
        conf.unset(key)
