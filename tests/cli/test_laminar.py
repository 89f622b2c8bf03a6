"""A directory written by LaminarDB lists, shows and verifies, and is not changed by that."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support.stores import Commands, flip

HERE = Path(__file__).parent.parent / "fixtures" / "laminar"
EXPECTED: dict[str, dict[str, Any]] = json.loads((HERE / "expected.json").read_text("utf-8"))
ON_DISK = sorted(name for name in EXPECTED if EXPECTED[name]["layout"] == "filesystem")


@pytest.mark.parametrize("name", ON_DISK)
def test_it_is_read_as_its_own_system_would_read_it(
    seamark: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(HERE / name, "store")
    before = {f: f.read_bytes() for f in Path("store").rglob("*") if f.is_file()}
    checkpoints = EXPECTED[name]["checkpoints"]
    damaged = {about["id"] for about in checkpoints if not about["valid"]}

    broken = damaged or name == "made/pointer-fs-to-nothing"
    listed = seamark.json("list", "store", "--verify", code=3 if broken else 0)
    assert {row["id"] for row in listed["checkpoints"]} >= {about["id"] for about in checkpoints}
    assert listed["newest_valid"] == EXPECTED[name]["newest_valid"]
    seamark("list", "store")

    missing = {r["id"] for r in listed["checkpoints"]} - {about["id"] for about in checkpoints}
    code = 3 if damaged or missing else 0
    verified = seamark.json("verify", "store", "--read-data", code=code)
    found = {row["id"] for row in verified["checkpoints"] if row["status"] == "damaged"}
    assert found == damaged | missing
    if not code:
        assert "written by another system" in seamark("verify", "store")

    for about in checkpoints:
        if about["valid"]:
            shown = seamark.json("show", "store", about["id"])
            sizes = {operator: at["bytes"] for operator, at in shown["operators"].items()}
            expected = about["operator_states"]
            assert sizes == {operator: at["length"] for operator, at in expected.items()}
            assert "another system" in seamark("show", "store", about["id"])
    chosen = seamark.json(
        "recover", "store", "--explain", code=0 if EXPECTED[name]["newest_valid"] else 3
    )
    assert (chosen["chosen"] or {}).get("id") == EXPECTED[name]["newest_valid"]
    assert {f: f.read_bytes() for f in Path("store").rglob("*") if f.is_file()} == before


def copied(tmp_path: Path, name: str) -> Path:
    shutil.copytree(HERE / name, tmp_path / "store")
    return tmp_path / "store"


def stored_bytes(store: Path) -> int:
    files = [*store.glob("checkpoints/*/*"), *store.glob("manifests/manifest-*")]
    return sum(file.stat().st_size for file in files)


@pytest.mark.parametrize("name", ["laminardb-0.17.0", "made/fs-22-external", "made/fs-25-mixed"])
def test_the_sizes_of_another_system_are_what_its_files_take(
    seamark: Commands, tmp_path: Path, name: str
) -> None:
    store = copied(tmp_path, name)
    found = seamark.json("list", store)
    assert found["stored_bytes"] == stored_bytes(store) > 0
    newest = found["checkpoints"][0]
    assert seamark.json("show", store, newest["id"])["size_bytes"] == newest["new_bytes"]
    told = seamark.json("prune", store, "--keep", 1)
    assert told["freed_bytes"] == found["stored_bytes"] - newest["new_bytes"]


def test_what_has_no_checksum_is_never_said_to_be_verified(
    seamark: Commands, tmp_path: Path
) -> None:
    store = copied(tmp_path, "laminardb-0.17.0")
    flip(store / "checkpoints/checkpoint_000004/state.bin")
    explained = " ".join(seamark("recover", store, "--explain").split())
    assert "SHA-256" not in explained
    assert "there in full size, without a checksum" in explained
    assert "A start continues" not in explained
    for words in (["list", store, "--verify"], ["verify", store, "--read-data"]):
        shown = " ".join(seamark(*words).split())
        assert "without a checksum" in shown
        assert "all bytes verified" not in shown
        assert "all bytes read" not in shown
    doctor = seamark("doctor", store, "--read-only")
    assert "every byte was read" not in doctor
    assert "It can be relied on" not in doctor
    assert seamark.json("verify", store, "--read-data")["bytes_read"] == 0


def test_what_has_a_checksum_is_verified_by_it(seamark: Commands, tmp_path: Path) -> None:
    store = copied(tmp_path, "made/fs-25-mixed")
    assert "SHA-256 equal" in seamark("recover", store, "--explain")
    assert "all bytes verified" in " ".join(seamark("list", store, "--verify").split())
    # inline and external state are both counted
    assert seamark.json("verify", store, "--read-data")["bytes_read"] == 226 + 248


def test_nothing_is_told_of_spark_where_spark_never_was(seamark: Commands, tmp_path: Path) -> None:
    store = copied(tmp_path, "made/fs-22-external")
    shown = seamark("show", store, "latest")
    assert "Spark" not in shown
    assert "wal position   8192" in shown
    assert seamark.json("show", store, "latest")["batch"] is None


def test_a_promise_names_all_options_that_it_takes(seamark: Commands, tmp_path: Path) -> None:
    store = copied(tmp_path, "made/fs-22-external")
    for words in (["prune", store, "--keep", 1], ["rollback", store, 1]):
        assert "--yes --force" in seamark(*words), "it promises what is refused"
        seamark(*words, "--yes", code=6)
    assert seamark.json("prune", store, "--keep", 1)["needs"] == ["--yes", "--force"]
    seamark("prune", store, "--keep", 1, "--yes", "--force")


def test_state_that_another_system_has_lost_is_seen_without_reading(
    seamark: Commands, tmp_path: Path
) -> None:
    store = copied(tmp_path, "made/fs-22-external")
    (store / "checkpoints/checkpoint_000002/state.bin").unlink()
    rows = seamark.json("list", store)["checkpoints"]
    assert [row["status"] for row in rows] == ["damaged", "valid"]
