"""Servers shared by a whole test run, and the seed from which its random choices come."""

from __future__ import annotations

import gc
import os
import random
import shutil
import tempfile
from collections.abc import Generator, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

# before they are imported, so that a failed assertion in a helper shows the values
pytest.register_assert_rewrite("tests.support", "tests.state.support", "tests.store.support")

from tests.support.databases import PostgresServer, RedisServer, postgres_server, redis_server  # noqa: E402
from tests.support.processes import ServerUnavailable  # noqa: E402
from tests.support.servers import ObjectServer, azurite_server, s3_server  # noqa: E402
from tests.support.skipped import or_skip, skipped_line  # noqa: E402
from tests.support.spark import local_spark  # noqa: E402
from tests.support.spark_classes import spark_java_options  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = "SEAMARK_SEED"
MEMORY = "/dev/shm"
MEMORY_WANTED = 8 << 30
LONG_CASES = 2
LONG_CASES_ON_SPARK = 1


def _keep_temporary_files_in_memory() -> None:
    """A test waits for a disk at each fsync, and learns nothing from it: the machine stays on."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    if shutil.disk_usage(MEMORY).free >= MEMORY_WANTED:
        os.environ["TMPDIR"] = MEMORY
        tempfile.tempdir = None  # so that it is looked up again


_keep_temporary_files_in_memory()

# The queries of a test are short: half of the CPU time went into the JVM's second compiler.
os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_java_options())

# how long an example takes says nothing on a busy machine
hypothesis.settings.register_profile(
    "seamark", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("seamark")


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


def pytest_sessionstart() -> None:
    # while tests are collected nothing is garbage, and looking for it is half of the time
    gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # the tests themselves stay to the end
    gc.enable()


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


def spread(wanted: int, count: int) -> set[int]:
    """The numbers of so many cases, evenly spread over all of them."""
    wanted = min(wanted, count)
    return {round(number * count / wanted) for number in range(wanted)}


def _leave_to_chaos(items: list[pytest.Item]) -> None:
    """Leave the long cases of a test to ``make chaos``, except two, or n if it is ``sampled(n)``.

    Of a test on Spark it is one.

    They are spread evenly over all its cases, and always the same.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("spark") or item.get_closest_marker("slow"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for group in cases.values():
        mark = group[0].get_closest_marker("sampled")
        on_spark = any(group[0].get_closest_marker(name) for name in ("spark", "warm"))
        usual = LONG_CASES_ON_SPARK if on_spark else LONG_CASES
        kept = spread(usual if mark is None else mark.args[0], len(group))
        for number, item in enumerate(group):
            if number not in kept:
                item.add_marker(pytest.mark.chaos)


@pytest.hookimpl(tryfirst=True)  # before cases are deselected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _leave_to_chaos(items)
    seed = int(os.environ[SEED])
    for item in items:
        function: Any = getattr(item, "obj", None)
        if getattr(function, "is_hypothesis_test", False):
            hypothesis.seed(seed)(getattr(function, "__func__", function))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """A test that starts a server of its own is skipped where there is none."""
    try:
        return (yield)
    except ServerUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def s3() -> Iterator[ObjectServer]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def azurite() -> Iterator[ObjectServer]:
    with or_skip("Azure", azurite_server()) as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """One Redis for all tests, each of which uses names of its own."""
    with or_skip("Redis", redis_server()) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL for all tests, each of which takes a ``new_database()``."""
    with or_skip("PostgreSQL", postgres_server()) as server:
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One warm Spark for all tests that are marked ``warm``."""
    with local_spark(tmp_path_factory.mktemp("warehouse")) as session:
        yield session
