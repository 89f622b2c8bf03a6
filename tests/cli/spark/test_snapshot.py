"""``seamark spark snapshot`` and ``restore``: what is printed, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.cli.app import run
from tests.checkpoint_dir.support.directories import make_copy
from tests.support.servers import ObjectServer


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = run(["spark", *args])
    out, err = capsys.readouterr()
    if "--json" not in args:
        assert all(len(line) <= 80 for line in out.splitlines() if "/" not in line), out
    return code, out, err


def test_a_directory_goes_into_a_store_and_comes_out_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_copy(tmp_path / "ck", 3)
    ck, store, new = (str(tmp_path / name) for name in ("ck", "store", "new"))
    code, out, _ = printed(capsys, "snapshot", ck, store)
    assert code == 0
    assert "checkpoint 1 · batch 2 · full" in out
    assert f"seamark spark restore {store} 1" in out
    code, out, _ = printed(capsys, "snapshot", ck, store)
    assert (code, "was there already" in out) == (0, True)
    code, out, _ = printed(capsys, "restore", store, "latest", new, "--query-id", "keep")
    assert code == 0
    assert "as after batch 2" in out
    assert LocalCopy(new).batches("commits") == [1, 2]


def test_json_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_copy(tmp_path / "ck", 3)
    ck, store, new = (str(tmp_path / name) for name in ("ck", "store", "new"))
    _, out, _ = printed(capsys, "snapshot", ck, store, "--json")
    taken = json.loads(out)
    assert (taken["id"], taken["batch"], taken["full"], taken["new"]) == (1, 2, True, True)
    _, out, _ = printed(capsys, "restore", store, "1", new, "--query-id", "new", "--json")
    assert json.loads(out)["batch"] == 2


def test_what_cannot_be_done_has_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_copy(tmp_path / "ck", 3)
    ck, store, new = (str(tmp_path / name) for name in ("ck", "store", "new"))
    missing = str(tmp_path / "missing")
    assert printed(capsys, "snapshot", missing, store)[0] == 4
    assert printed(capsys, "restore", missing, "1", new)[0] == 4
    assert printed(capsys, "snapshot", ck, store, "--batch", "99")[0] == 6
    assert printed(capsys, "snapshot", ck, store)[0] == 0
    assert printed(capsys, "restore", store, "7", new)[0] == 4
    assert printed(capsys, "restore", store, "1", ck)[0] == 6
    assert printed(capsys, "restore", store, "1", new, "--move-input", "nonsense")[0] == 2
    (tmp_path / "ck" / "state" / "0" / "1" / "3.delta").unlink()
    (tmp_path / "ck" / "commits" / "3").write_bytes(b'v1\n{"nextBatchWatermarkMs":0}')
    code, _, err = printed(capsys, "snapshot", ck, str(tmp_path / "other"))
    assert code == 3
    assert "seamark spark inspect" in err


def test_a_directory_on_s3_is_taken_with_options_that_are_never_shown(
    tmp_path: Path, s3: ObjectServer, capsys: pytest.CaptureFixture[str]
) -> None:
    from seamark.checkpoint_dir.places.directory import open_directory

    url = s3.new_url("jobs/ck")
    there = open_directory(url, s3.storage_options)
    local = make_copy(tmp_path / "ck", 2)
    for path in local.files_below("."):
        there.write(path, local.read(path))
    flat = {name: str(value).lower() for name, value in s3.storage_options.items()}
    flat |= {"allow_http": "true", "secret_access_key": "a-very-secret-value"}
    del flat["client_options"]
    options = [f"--storage-option={name}={value}" for name, value in flat.items()]
    code, out, err = printed(capsys, "snapshot", url, str(tmp_path / "store"), *options, "-vv")
    assert code == 0, err
    assert "batch 1" in out
    assert "a-very-secret-value" not in out + err
    code, out, err = printed(capsys, "snapshot", f"{url}-no", str(tmp_path / "x"), *options, "-vv")
    assert code == 4
    assert "a-very-secret-value" not in out + err
