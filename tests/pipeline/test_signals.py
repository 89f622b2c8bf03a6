"""SIGTERM and Ctrl-C let the epoch finish; a second one does not wait."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from seamark.store import open_store
from tests.pipeline.support.drivers import FILES, start, visible, wait_for, write_input

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_finishes_the_epoch_and_exits_0(
    number: signal.Signals, tmp_path: Path
) -> None:
    base = tmp_path / "pipeline"
    write_input(base / "in")
    driver = start(base, "forever", "2")
    wait_for(base / "dawdling", driver)
    driver.send_signal(number)
    output, _ = driver.communicate(timeout=280)
    assert driver.returncode == 0, output
    newest = open_store(base / "store").load_latest()
    assert newest is not None
    assert newest.epoch == 2
    assert all(status.is_committed for status in newest.sink_commit_statuses.values())
    assert (base / "store/working/g1/commits/1").exists()


def test_the_second_signal_ends_it_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    base = tmp_path / "pipeline"
    expected = write_input(base / "in")
    driver = start(base, "until-killed", "2")
    wait_for(base / "dawdling", driver)
    driver.send_signal(signal.SIGTERM)
    wait_for(base / "signalled", driver)
    driver.send_signal(signal.SIGTERM)
    driver.communicate(timeout=280)
    assert driver.returncode == -signal.SIGTERM
    again = start(base)
    output, _ = again.communicate(timeout=280)
    assert again.returncode == 0, output
    assert visible(base / "all") == expected
    assert sum(visible(base / "sums").values()) == (FILES * 4 - 1) * 5
