"""``seamark spark inspect`` lays out what it found, and its exit code says whether it is damage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seamark.cli.app import run
from tests.checkpoint_dir.support.directories import source_entry
from tests.native.support.inspected import make_hdfs, make_logs, offsets, write


def inspected(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = run(["spark", "inspect", *map(str, args)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_healthy_directory_is_told_on_eighty_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_hdfs(tmp_path / "ck")
    write(root, "offsets/8", offsets(8))
    write(root, "sources/0/8", source_entry(8))
    code, out, _ = inspected(capsys, root, "-q")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "query 6f1c0000" in out
    assert "0 … 8, committed to 7, batch 8 planned, not finished" in out
    assert "files of file:///in  logOffset 8" in out
    assert "2 partitions · HDFS-backed · version 8 complete" in " ".join(out.split())
    assert "a restart runs batch 8 again from the same offsets" in out
    assert "possible to batch 0 to 7" in out
    assert "findings   none" in out


def test_damage_is_exit_code_3_with_its_code_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_hdfs(tmp_path / "ck")
    (root / "state/0/1/8.delta").unlink()
    code, out, _ = inspected(capsys, root)
    assert code == 3
    flat = " ".join(out.split())
    assert "damage: batch 7 was committed and 1 of 2 lack its state" in flat
    assert "[batch-not-consumed]" in flat
    assert "seamark spark rollback" in flat
    assert "--to-batch 6" in flat
    assert "version 8 INCOMPLETE" in flat


def test_warnings_alone_are_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_hdfs(tmp_path / "ck")
    (root / "commits/3").unlink()
    code, out, _ = inspected(capsys, root)
    assert code == 0
    assert "warning: batch 3 of the commit log" in out


def test_the_json_has_the_documented_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_hdfs(tmp_path / "ck")
    (root / "offsets/6").unlink()
    code, out, _ = inspected(capsys, root, "--json", "--read-data")
    found = json.loads(out)
    assert code == 3
    assert found["batches"] == {"first": 0, "last": 7, "kept": 7}
    assert (found["committed"], found["planned"]) == (7, None)
    assert found["sources"][0]["offset"] == {"logOffset": "7"}
    assert found["operators"][0]["complete"] is True
    assert set(found["operators"][0]["partition_bytes"]) == {"0", "1"}
    assert found["would_do"]["action"] == "fail"
    assert found["restorable"] == [0, 1, 2, 3, 4, 5]
    assert [set(each) for each in found["findings"]] == [
        {"code", "severity", "path", "message", "advice"}
    ]
    assert found["findings"][0]["code"] == "offsets-previous-missing"


def test_many_findings_are_cut_short_for_people_and_whole_for_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_logs(tmp_path / "ck", 60)
    for batch in range(30):
        write(root, f"commits/{batch}", "")
    assert "and 10 more" in inspected(capsys, root)[1]
    assert len(json.loads(inspected(capsys, root, "--json")[1])["findings"]) == 30


def test_what_is_no_checkpoint_is_exit_code_4_and_says_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = inspected(capsys, tmp_path / "nowhere")
    assert (code, out) == (4, "")
    assert "nowhere" in err
    code, _, err = inspected(capsys, tmp_path)
    assert code == 4
    assert "this is not a checkpoint directory of Spark" in err
    write(tmp_path, "manifests/1.json", b"{}")
    code, _, err = inspected(capsys, tmp_path)
    assert code == 4
    assert f"seamark list {tmp_path}" in " ".join(err.split())
