"""Servers shared by a whole test run, and the seed from which its random choices come."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

import hypothesis
import pytest

from tests.databases import PostgresServer, RedisServer, postgres_server, redis_server
from tests.processes import ServerUnavailable
from tests.servers import ObjectServer, azurite_server, s3_server
from tests.skipped import skipped_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = "SEAMARK_SEED"
MEMORY = "/dev/shm"
MEMORY_WANTED = 8 << 30
Started = TypeVar("Started")


def _keep_temporary_files_in_memory() -> None:
    """A test waits for a disk at each fsync, and learns nothing from it: the machine stays on."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    if shutil.disk_usage(MEMORY).free >= MEMORY_WANTED:
        os.environ["TMPDIR"] = MEMORY
        tempfile.tempdir = None  # to be found anew


_keep_temporary_files_in_memory()


def pytest_configure(config: pytest.Config) -> None:
    # the same every time unless asked for; set before any worker starts, so that all share it
    if os.environ.setdefault(SEED, "1") == "random":
        os.environ[SEED] = str(random.SystemRandom().randrange(2**32))
    if version("pyspark").startswith("4.0."):
        # it leaves the sockets of collect() to the garbage collector
        unclosed = r"ignore:Exception ignored in. <socket\.socket"
        config.addinivalue_line(
            "filterwarnings", f"{unclosed}:pytest.PytestUnraisableExceptionWarning"
        )
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


def pytest_report_header() -> str:
    seed = f"seamark seed: {SEED}={os.environ[SEED]} (or {SEED}=random for another one)"
    return f"{seed}, temporary files in {tempfile.gettempdir()}"


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the output with a count of the tests that a missing server has left out."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    reports = reporter.stats.get("skipped", [])
    if line := skipped_line(str(report.longrepr[2]) for report in reports):
        reporter.write_line(line, yellow=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seed = int(os.environ[SEED])
    for item in items:
        function: Any = getattr(item, "obj", None)
        if getattr(function, "is_hypothesis_test", False):
            hypothesis.seed(seed)(getattr(function, "__func__", function))


@pytest.fixture(scope="session")
def s3() -> Iterator[ObjectServer]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def azurite() -> Iterator[ObjectServer]:
    with _or_skipped("Azure", azurite_server()) as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """One Redis for all tests, each of which uses names of its own."""
    with _or_skipped("Redis", redis_server()) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL for all tests, each of which takes a ``new_database()``."""
    with _or_skipped("PostgreSQL", postgres_server()) as server:
        yield server


@contextmanager
def _or_skipped(what: str, server: AbstractContextManager[Started]) -> Iterator[Started]:
    """Run a server; where it cannot be had, skip the tests that want it, and say so loudly."""
    try:
        with server as started:
            yield started
    except ServerUnavailable as error:
        with warnings.catch_warnings():
            warnings.simplefilter("always")  # to be seen in the summary, not to fail the tests
            warnings.warn(f"{what} is NOT tested here: {error}", stacklevel=1)
        pytest.skip(f"{what} cannot be had: {error}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One warm Spark for all tests that are marked ``warm``."""
    from pyspark.sql import SparkSession

    from seamark.spark.java import use_java

    use_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's own choice is 'python3'
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
