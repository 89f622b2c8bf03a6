"""A directory written by LaminarDB lists, shows and verifies, and is not changed by that."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stores import Commands

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
