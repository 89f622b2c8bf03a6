"""A Spark session for commands: the one of this process, or a small one that is started quietly.

Tests: ``tests/spark/test_own_session.py``, ``tests/cli/spark/test_state.py``.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from seamark._common.logs import logger_named
from seamark.errors import SeamarkError
from seamark.spark.java import use_java
from seamark.spark.session import installed_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logger_named("seamark.spark")

_SAFE_PATH: Final = "PYTHONSAFEPATH"
_STARTING = threading.Lock()
"""Two threads that start Spark at once would take each other's standard error."""


def a_session(*, imports_from_here: bool = False) -> SparkSession:
    """The Spark session of this process, or a small local one with the installation's settings.

    Its Python workers import from the current folder only if ``imports_from_here``, for a program
    of the user's: otherwise that may be a folder of unknown origin, which is being looked into.
    """
    installed_spark()
    with _STARTING, nullcontext() if imports_from_here else _without_this_folder():
        return _session()


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    use_java()
    builder = SparkSession.builder.appName("seamark")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    if "SPARK_REMOTE" not in os.environ and "MASTER" not in os.environ:
        builder = builder.master("local[2]")
    with _quiet_start():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def _without_this_folder() -> Iterator[None]:
    """Have a JVM that is started, and the workers that it starts, import from elsewhere only."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


@contextmanager
def _quiet_start() -> Iterator[None]:
    """Keep to ourselves what a JVM says while it starts, unless it does not start."""
    if log.isEnabledFor(logging.INFO):
        yield
        return
    before = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)  # the JVM keeps it for life
        try:
            yield
        except Exception as error:
            said.seek(0)
            last = said.read().decode(errors="replace").strip().splitlines()[-3:]
            raise SeamarkError(
                f"Spark does not start: {str(error).splitlines()[0]}",
                where=" ".join(last) or None,
                hint="'seamark version' shows what is installed; -v shows all that Spark says.",
            ) from error
        finally:
            os.dup2(before, 2)
            os.close(before)
