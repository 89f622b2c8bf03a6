"""The user's Spark session: its version, what that changes or refuses, and settings for a while.

Tests: ``tests/pipeline/test_pipeline.py``.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from seamark.errors import InvalidInputError, RefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OLDEST: Final = (4, 0)
FILE_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
STATE_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
WATERMARK_POLICY: Final = "spark.sql.streaming.multipleWatermarkPolicy"
_WITHOUT_RETRIES: Final = re.compile(r"local(\[[^,\]]*\])?")
IGNORE_MISSING_FILES: Final = "spark.sql.files.ignoreMissingFiles"


def installed_spark() -> tuple[int, int]:
    """Major and minor version of the Spark that is installed, without starting it."""
    try:
        from pyspark.version import __version__
    except ModuleNotFoundError:
        raise InvalidInputError(
            "this needs a Spark installation", hint="pip install 'seamark[spark]'"
        ) from None
    return _major_and_minor(__version__)


def spark_version(spark: SparkSession) -> tuple[int, int]:
    """Major and minor version of a session."""
    return _major_and_minor(spark.version)


def _major_and_minor(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def session_of(df: DataFrame) -> SparkSession:
    """The classic session of a DataFrame; :class:`RefusedError` where a pipeline cannot run."""
    if not hasattr(df, "_jdf"):
        raise RefusedError(
            "a pipeline needs a classic Spark session, and this is Spark Connect",
            hint="Connect runs the epoch's function in another process, without access to the "
            "query. Use SparkSession.builder.master(...) or spark-submit; a query on Connect can "
            "still be protected from outside, by its checkpoint directory.",
        )
    spark = df.sparkSession
    if spark_version(spark) < OLDEST:
        raise RefusedError(
            f"a pipeline needs Spark {OLDEST[0]}.{OLDEST[1]} or newer, and this is {spark.version}"
        )
    return spark


def active_session() -> SparkSession:
    """The session of this thread; :class:`InvalidInputError` when there is none."""
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None:
        raise InvalidInputError(
            "there is no Spark session", hint="Start one: SparkSession.builder.getOrCreate()."
        )
    return spark


def is_local(spark: SparkSession) -> bool:
    """Whether driver and executors are one process."""
    master = str(spark.sparkContext.master)
    return master.startswith("local") and not master.startswith("local-cluster")


def retries_tasks(master: str) -> bool:
    """Whether Spark tries a failed task again: not with ``local[4]``, and with ``local[4,2]``."""
    return _WITHOUT_RETRIES.fullmatch(master) is None


def use_own_python(spark: SparkSession) -> None:
    """Have Python workers on this machine be what this process is, with the packages that it has.

    Spark's choice is the first ``python3`` on the path, which is another one when a virtual
    environment is used without being activated. What the user has chosen is kept.
    """
    chosen = os.environ.get("PYSPARK_PYTHON") or spark.conf.get("spark.pyspark.python", None)
    if is_local(spark) and not chosen:
        spark.sparkContext.pythonExec = sys.executable


def fast_file_manager(spark: SparkSession) -> str:
    """The class that writes a checkpoint file by rename, without what FileContext adds to it."""
    package = "org.apache.spark.sql.execution.streaming"
    if spark_version(spark) >= (4, 1):
        package += ".checkpointing"
    return f"{package}.FileSystemBasedCheckpointFileManager"


def may_mix_state_in_a_task(spark: SparkSession) -> bool:
    """Whether a task may write state of an aggregation and then of something else.

    RocksDB's provider hands the store that an aggregation has read to whoever in the task writes
    next, and fails when that is another operator (seen in 4.3).
    """
    return "HDFSBacked" in str(spark.conf.get(STATE_PROVIDER))


def watermark_policy(spark: SparkSession) -> str:
    """Which of several watermarks becomes that of a new query: ``min`` or ``max``."""
    return str(spark.conf.get(WATERMARK_POLICY)).lower()


_lock: Final = threading.Lock()


@contextmanager
def session_settings(
    spark: SparkSession, changes: Mapping[str, str], defaults: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Change settings within the block. A query keeps the ones that it is started with.

    ``defaults`` apply only where the user has set nothing. One thread at a time changes a session:
    another one would take these values for the user's own.
    """
    with _lock:
        unset = {k: v for k, v in (defaults or {}).items() if spark.conf.get(k, None) is None}
        changes = {**unset, **changes}
        before = {name: spark.conf.get(name, None) for name in changes}
        for name, value in changes.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)
