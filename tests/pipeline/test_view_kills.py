"""Real ``kill -9`` of a process that writes live views, with readers beside it all the time."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.support import views
from tests.pipeline.support.crashing import wipe
from tests.pipeline.support.killing import child, killed_at
from tests.pipeline.support.views import run, shown, shown_in, url_of, watch
from tests.pipeline.support.workloads import write_input
from tests.pipeline.test_kills import seeded
from tests.progress.support.children import running
from tests.support.databases import RedisServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
POINTS = ("save:after:2", "commit:before:3", "commit:after:4", "record:after:5")


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_killed_at_any_point_the_views_on_both_servers_are_the_same_in_the_end(
    spark: SparkSession, input_folder: Path, tmp_path: Path, redis: RedisServer
) -> None:
    killed = tmp_path / "killed"
    views.use_redis(killed, redis, "slots")
    for number, point in enumerate(POINTS):
        killed_at("views", "hdfs", input_folder, killed, point)
        if number % 2:
            wipe(killed)
        redis.restart()
    assert run(spark, input_folder, killed).report.epoch == 5
    run(spark, input_folder, tmp_path / "calm")
    assert shown(killed) == shown(tmp_path / "calm")


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_I2_readers_beside_the_kills_never_see_half_an_epoch(
    spark: SparkSession, tmp_path: Path, redis: RedisServer
) -> None:
    root, folder, dice = tmp_path / "killed", write_input(tmp_path / "input", 40), seeded()
    views.use_redis(root, redis, "again")
    urls = [url_of(root, name) for name in ("whole", "again")]
    with running(watch, urls[0]) as first, running(watch, urls[1]) as second:
        for _ in range(2):
            with child("whole-view", "hdfs", folder, root) as dying:
                dying.wait_until_running()
                _wait_for_an_epoch(urls[0])
                time.sleep(dice.uniform(0.1, 2.0))
                dying.process.send_signal(signal.SIGKILL)
                dying.wait_until_killed()
        run(spark, folder, root, kind="whole-view")
        for reader in (first, second):
            reader.tell("stop")
            saw = reader.hear()
            assert not isinstance(saw, str), saw
            looks, epochs = saw
            assert looks > epochs > 10
    for url in urls:
        slots = {slot: row["id"] for slot, row in shown_in(url).items()}
        assert slots == {"0": 2400, **{str(slot): 39 * 60 + slot for slot in range(1, 60)}}


def _wait_for_an_epoch(url: str) -> None:
    """Until the one who is to be killed has shown something more."""
    before, deadline = _epoch(url), time.monotonic() + 280
    while _epoch(url) == before:
        assert time.monotonic() < deadline, "no epoch within a minute"
        time.sleep(0.02)


def _epoch(url: str) -> int:
    from seamark.errors import StoreUnavailableError

    try:
        source = views.source_of(url)
    except StoreUnavailableError:
        return 0
    return source.sequence if source is not None else 0
