"""Whole pipelines into Delta tables: killed and stopped inside commits, read by others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from seamark.errors import FencedError
from seamark.spark.java import java_home
from tests.pipeline.support.drivers import FILES, ROWS, wait_for, wait_until_stopped, write_input
from tests.sinks.support.delta_driver import run
from tests.sinks.support.deltas import data_files, files_in_log, rows_in
from tests.test_docs import printed_by, program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


def start(base: Path, *point: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.sinks.support.delta_driver", str(base), *point]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def check_tables(base: Path, expected: Counter[tuple[object, ...]]) -> None:
    assert Counter((row["k"], row["v"]) for row in rows_in(base / "all")) == expected
    newest = {row["k"]: (row["v"], row["rows"]) for row in rows_in(base / "newest")}
    last = (FILES - 1) * ROWS
    assert newest == {k: (last + ROWS - 5 + k, FILES * ROWS // 5) for k in range(5)}
    assert data_files(base / "all") == files_in_log(base / "all"), "no litter"
    assert len([*(base / "all" / "_seamark").rglob("epoch.json")]) == 1


def test_a_pipeline_killed_inside_its_commits_shows_every_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    base = tmp_path / "pipeline"
    expected = write_input(base / "in")
    for point in (("kill", "before", "2"), ("kill", "after", "4")):
        killed = start(base, *point)
        killed.communicate(timeout=280)
        assert killed.returncode == -signal.SIGKILL
    assert run(spark, base).epoch == FILES
    check_tables(base, expected)
    _check_other_readers(spark, base, expected)


def _check_other_readers(
    spark: SparkSession, base: Path, expected: Counter[tuple[object, ...]]
) -> None:
    """Spark reads the files that the log names; the partitions are in the log."""
    table = DeltaTable(str(base / "all"))
    actions = table.get_add_actions(flatten=True)
    names = actions.column("path").to_pylist()
    keys = dict(zip(names, actions.column("partition.k").to_pylist(), strict=True))
    found: Counter[tuple[object, ...]] = Counter()
    for name, key in keys.items():
        read = spark.read.parquet(str(base / "all" / name))
        assert dict(read.dtypes) == {"v": "int", "t": "timestamp"}
        found.update((key, row.v) for row in read.collect())
    assert found == expected


@pytest.mark.chaos
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_driver_stopped_inside_its_commit_is_told_and_adds_nothing(
    tmp_path: Path, when: str
) -> None:
    base = tmp_path / "pipeline"
    expected = write_input(base / "in")
    loser = start(base, "stop", when, "3")
    pids: list[int] = []
    try:
        wait_for(base / "stopped", loser)
        pids = [int(pid) for pid in (base / "stopped").read_text().split()]
        for pid in pids:
            wait_until_stopped(pid)
        winner = start(base)
        output, _ = winner.communicate(timeout=280)
        assert winner.returncode == 0, output
        version = DeltaTable(str(base / "all")).version()
        (base / "resumed").touch()
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)
        told, _ = loser.communicate(timeout=280)
    finally:
        for pid in pids:
            if loser.poll() is None:
                os.kill(pid, signal.SIGKILL)
        loser.wait(280)
    assert loser.returncode == FencedError.exit_code, told
    assert DeltaTable(str(base / "all")).version() == version
    check_tables(base, expected)


def test_the_program_of_the_page_runs_as_it_stands_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home()))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    (incoming / "1.json").write_text('{"symbol":"ALDR","price":103.27,"day":"2026-01-05"}\n' * 2)
    code = program("docs/delta.md", "trades_to_delta.py").replace("/data/", f"{tmp_path}/")
    assert printed_by(code) == ["epoch 1 is version 1", "ALDR 2 103.2700"]
    trades = rows_in(tmp_path / "lake" / "trades")
    assert [str(row["day"]) for row in trades] == ["2026-01-05"] * 2
