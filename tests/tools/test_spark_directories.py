"""The tool that holds Spark's own checkpoint directories against what is restored of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.native.support.inspected import (
    Make,
    drop,
    make_checksummed,
    make_format_2,
    make_hdfs,
    make_replaying,
    make_rocksdb,
    name_schema,
    put,
)
from tools.spark_directories import differences, directories_below, main, tried

NEWEST = 7
"""The newest batch of the directories that ``make_hdfs`` makes."""


def make_moved(root: Path) -> None:
    """Copied from elsewhere, and its schemas are named there."""
    make_hdfs(root)
    name_schema(root, str(root.parent / "elsewhere"))


@pytest.mark.parametrize(
    "make", [make_checksummed, make_format_2, make_hdfs, make_moved, make_replaying, make_rocksdb]
)
def test_what_is_restored_is_equal(make: Make, tmp_path: Path) -> None:
    make(tmp_path / "here")
    outcome = tried(tmp_path / "here", "here", tmp_path / "scratch")
    assert (outcome.is_equal, outcome.reason) == (True, "")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (drop("metadata"), "metadata is missing"),
        (drop("offsets/6"), "offsets/6 is missing"),
        (drop("commits/7"), "commits/7 is missing"),
        (drop("sources/0/3"), "sources/0/3 is missing"),
        (drop("state/0/_metadata/metadata"), "state/0/_metadata/metadata is missing"),
        (drop("state/0/1/8.delta"), "state/0/1/8.delta is missing"),
        (put("state/0/1/8.delta", b"other"), "state/0/1/8.delta differs"),
        (put("offsets/8", "v1"), "offsets/8 is new"),
        (lambda root: shutil.rmtree(root / "state/0/1"), "state/0/1/1.delta is missing"),
    ],
)
def test_what_a_restart_would_miss_is_told(change: Make, reason: str, tmp_path: Path) -> None:
    make_hdfs(tmp_path / "original")
    make_hdfs(tmp_path / "restored")
    change(tmp_path / "restored")
    assert reason in set(differences(tmp_path / "original", tmp_path / "restored", NEWEST))


def test_what_no_restart_reads_need_not_come_back(tmp_path: Path) -> None:
    make_replaying(tmp_path / "original")
    make_replaying(tmp_path / "restored")
    older = ("offsets/5", "commits/5", "state/0/1/5.delta", "state/0/0/9.delta")
    drop(*older)(tmp_path / "restored")
    assert list(differences(tmp_path / "original", tmp_path / "restored", NEWEST)) == []


def test_an_sst_file_that_a_snapshot_names_is_missed(tmp_path: Path) -> None:
    make_rocksdb(tmp_path / "original")
    make_rocksdb(tmp_path / "restored")
    first = min((tmp_path / "restored/state/0/0/SSTs").iterdir())
    first.unlink()
    (told,) = differences(tmp_path / "original", tmp_path / "restored", 2)
    assert told.startswith(f"state/0/0/SSTs/{first.name} has not the ")


def test_a_hole_that_both_have_is_told(tmp_path: Path) -> None:
    for name in ("original", "restored"):
        make_hdfs(tmp_path / name)
        drop("state/0/1/7.delta")(tmp_path / name)
    (told,) = differences(tmp_path / "original", tmp_path / "restored", NEWEST)
    assert told == "state/0/1/ lacks the changes of version 7"


def test_all_directories_are_found_and_one_that_fails_is_in_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resources = tmp_path / "resources"
    make_hdfs(resources / "agg")
    assert main([str(resources), "--keep", str(tmp_path / "kept")]) == 0
    assert "1 of 1 directories restored equal" in capsys.readouterr().out
    assert (tmp_path / "kept/agg/restored/metadata").is_file()
    make_hdfs(resources / "more/lost")
    drop("state/0/1/8.delta")(resources / "more/lost")
    assert [path.name for path in directories_below(resources)] == ["agg", "lost"]
    assert main([str(resources)]) == 1
    out = capsys.readouterr().out
    (row,) = [line for line in out.splitlines() if line.startswith("more/lost ")]
    assert "batch-not-consumed" in row or "state-missing" in row
    assert "1 of 2 directories restored equal" in out


def test_a_folder_without_any_is_an_error(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 2
