"""Java says nothing of an archive that does not fit, and goes on at half the speed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_classes import ARCHIVE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.warm
@pytest.mark.skipif(not ARCHIVE.exists(), reason="there is no archive of Spark's classes")
@pytest.mark.skipif(not Path("/proc").exists(), reason="only Linux tells what is mapped")
def test_the_warm_spark_has_its_classes_from_the_archive(spark: SparkSession) -> None:
    java = spark._jvm
    assert java is not None
    process = java.java.lang.ProcessHandle.current().pid()
    assert ARCHIVE.name in Path(f"/proc/{process}/maps").read_text()
