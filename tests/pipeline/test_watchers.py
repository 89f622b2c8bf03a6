"""Whoever watches a pipeline may fail: an epoch does not fail of it."""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

import seamark
from seamark._common.logs import logger_named
from seamark.errors import RefusedError
from seamark.pipeline.telemetry import progress_record
from seamark.pipeline.telemetry.display import Display
from seamark.pipeline.telemetry.metrics import PipelineMetrics
from seamark.pipeline.telemetry.progress_record import ProgressRecord
from tests.pipeline.support.epochs import EPOCH_14, RECOVERY


class Broken(logging.Handler):
    """A handler that keeps nothing to itself, as many do that send records over a network."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError("the log server is gone")


@pytest.fixture
def broken_handler() -> Iterator[None]:
    handler, top = Broken(), logging.getLogger("seamark")
    top.addHandler(handler)
    yield
    top.removeHandler(handler)


@pytest.mark.usefixtures("broken_handler")
def test_a_log_handler_that_fails_costs_its_record_and_nothing_else(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "seamark.pipeline")
    display = Display("trades", io.StringIO())
    display.show_epoch(EPOCH_14)
    display.show_recovery(RECOVERY)
    logger_named("seamark.store.anything").warning("told")
    said = capsys.readouterr().err
    assert said.count("a log handler failed:") == 3
    assert "the log server is gone" in said


@pytest.mark.usefixtures("broken_handler")
def test_a_log_handler_that_fails_where_nobody_can_be_told_is_harmless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = io.StringIO()
    closed.close()
    for stderr in (None, closed):
        monkeypatch.setattr(sys, "stderr", stderr)
        logger_named("seamark.store.anything").warning("told")


def test_no_logger_of_the_library_can_stop_its_work() -> None:
    root = Path(seamark.__file__).parent
    unsteady = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r"^\w+(: Final)? = logging\.getLogger", path.read_text(), re.M)
    ]
    assert unsteady == []


def test_a_logger_class_of_the_users_own_is_left_alone() -> None:
    class Own(logging.Logger):
        pass

    before = logging.getLoggerClass()
    logging.setLoggerClass(Own)
    try:
        assert type(logger_named("seamark.test.own")) is Own
    finally:
        logging.setLoggerClass(before)


def test_metrics_whose_files_are_gone_are_told_of_and_raise_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    code = (
        "import logging, shutil, sys\n"
        "logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        "from prometheus_client import CollectorRegistry\n"
        "from seamark.pipeline.telemetry.metrics import PipelineMetrics\n"
        "from tests.pipeline.support.epochs import EPOCH_14\n"
        "metrics = PipelineMetrics('trades', CollectorRegistry())\n"
        f"shutil.rmtree({str(folder)!r})\n"
        # a process of another number opens its own files
        "import os; os.fork() and os._exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
        "metrics.epoch_done(EPOCH_14)\n"
        "metrics.sink_prepared('bars', 0.1)\n"
        "metrics.sink_committed('bars', 0.1)\n"
        "metrics.sink_failed('bars', 'commit')\n"
        "metrics.epoch_failed()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PROMETHEUS_MULTIPROC_DIR": str(folder),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "sink_prepared was not counted in the metrics: " in done.stdout


def test_a_registry_with_metrics_of_these_names_is_refused_with_advice() -> None:
    registry = CollectorRegistry()
    Counter("seamark_recoveries_total", "somebody else's", registry=registry)
    with pytest.raises(RefusedError, match="seamark_recoveries") as caught:
        PipelineMetrics("trades", registry)
    assert "registry of its own" in str(caught.value.hint)


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "too many open files"), MemoryError()])
def test_a_progress_record_that_cannot_be_opened_costs_a_warning(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(progress_record, "open_progress", fails)
    record = ProgressRecord("memory://", "trades")
    assert record.bring_to(None) is None
    record._next_try = 0.0
    record.note(1, {"s": b"1"}, 7)
    assert caplog.text.count("was not recorded") == 2


def test_a_terminal_with_errors_of_its_own_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, _: str) -> int:
            raise LookupError("unknown encoding: x-odd")

    with caplog.at_level(logging.INFO, "seamark.pipeline"):
        Display("trades", Odd()).show_epoch(EPOCH_14)
    assert "the terminal is gone" in caplog.text
    assert "epoch=14" in caplog.text
