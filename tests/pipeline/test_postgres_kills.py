"""Pipelines into PostgreSQL stay exact when processes are killed or hang, and nothing is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from seamark.errors import FencedError
from tests.pipeline.support import postgres as example
from tests.pipeline.support.drivers import visible, wait_for, wait_until_stopped, write_input
from tests.pipeline.test_kills import seeded
from tests.sinks.support.postgres import with_options
from tests.support.cutting_proxy import cutting_proxy

if TYPE_CHECKING:
    from collections import Counter

    from pyspark.sql import SparkSession

    from tests.support.databases import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

PASSWORD = "hunter2-and-more"


@pytest.fixture
def dsn(postgres: PostgresServer) -> str:
    made = postgres.new_database()
    example.make_tables(made)
    # the server asks nobody for it
    return made.replace("postgres@", f"postgres:{PASSWORD}@", 1)


def check(base: Path, dsn: str, rows: Counter[tuple[object, ...]]) -> None:
    """All three sinks show the same, once, and neither rows nor secrets were left anywhere."""
    assert example.shown(dsn) == rows
    assert visible(base / "files") == rows
    assert example.sums(dsn) == example.sums_of(rows)
    assert example.leftovers(dsn) == []
    for path in (base / "store").rglob("*"):
        if path.is_file():
            assert PASSWORD.encode() not in path.read_bytes(), path


def killed_at(base: Path, dsn: str, *point: str) -> None:
    """Run until the process kills itself at a point."""
    (base / "marker").unlink(missing_ok=True)
    process = example.start(base, dsn, "kill", *point)
    said, _ = process.communicate(timeout=280)
    assert process.returncode == -signal.SIGKILL, said
    assert (base / "marker").read_text() == f"reached {':'.join(point)}\n"
    assert PASSWORD not in said


def test_killed_at_any_point_the_tables_are_exact_in_the_end(
    spark: SparkSession, tmp_path: Path, dsn: str
) -> None:
    rows = write_input(tmp_path / "in")
    for point in (("prepare", "after", "2"), ("save", "after", "3")):
        killed_at(tmp_path, dsn, *point)
    assert example.pipeline(spark, tmp_path, dsn).run().epoch == 5
    check(tmp_path, dsn, rows)


def test_answers_that_are_lost_while_a_target_is_looked_at_and_prepared_do_not_end_the_start(
    spark: SparkSession, tmp_path: Path, dsn: str
) -> None:
    rows = write_input(tmp_path / "in")
    with cutting_proxy("127.0.0.1", urlsplit(dsn).port or 0) as proxy:
        pipeline = example.pipeline(spark, tmp_path, with_options(dsn, port=proxy.port))
        # the first ones: it looks for what is staged, then it makes its ledger
        proxy.lose_answer_to(b"COMMIT\0", times=2)
        pipeline.run()
        assert proxy.cuts == 2
    check(tmp_path, dsn, rows)


@pytest.mark.chaos
def test_killed_at_random_moments_the_tables_are_exact_in_the_end(
    spark: SparkSession, tmp_path: Path, dsn: str
) -> None:
    rows, dice = write_input(tmp_path / "in"), seeded()
    for _ in range(20):
        process = example.start(tmp_path, dsn)
        wait_for(tmp_path / "started", process)
        kill_after(process, dice)
    example.pipeline(spark, tmp_path, dsn).run()
    check(tmp_path, dsn, rows)


def kill_after(process: subprocess.Popen[str], dice: random.Random) -> None:
    time.sleep(dice.uniform(0.0, 12.0))
    process.kill()
    process.communicate(timeout=280)


@pytest.mark.chaos
@pytest.mark.parametrize(
    "point",
    [
        ("commit", "inside", "3"),
        ("commit", "before", "3"),
        ("commit", "after", "3"),
        ("save", "before", "3"),
    ],
    ids="-".join,
)
def test_a_driver_that_hangs_across_its_commit_is_told_and_adds_nothing(
    point: tuple[str, str, str], tmp_path: Path, dsn: str
) -> None:
    rows = write_input(tmp_path / "in")
    loser = example.start(tmp_path, dsn, "stop", *point)
    pids: list[int] = []
    try:
        wait_for(tmp_path / "stopped", loser)
        pids = [int(pid) for pid in (tmp_path / "stopped").read_text().split()]
        for pid in pids:
            wait_until_stopped(pid)
        winner = example.start(tmp_path, dsn)
        said, _ = winner.communicate(timeout=280)
        assert winner.returncode == 0, said
        check(tmp_path, dsn, rows)
        (tmp_path / "resumed").touch()
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)
        said, _ = loser.communicate(timeout=280)
    finally:
        for pid in pids:
            if loser.poll() is None:
                os.kill(pid, signal.SIGKILL)
        loser.communicate(timeout=280)
    assert loser.returncode == FencedError.exit_code, said
    check(tmp_path, dsn, rows)
