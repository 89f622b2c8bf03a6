"""An audit of anybody's store opens no Delta table that takes too much memory or time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seamark import limits, open_store
from seamark._common.limited_process import ask_process
from seamark.audit.auditing import Access, _Reading
from seamark.audit.delta import opened_table
from seamark.audit.delta_limits import DeltaLimits, OpenedTable
from seamark.audit.verdicts import Shown
from seamark.errors import RefusedError, StoreUnavailableError
from tests.audit.test_logins import of_table
from tests.sources.support.delta_logs import swell_checkpoint
from tests.sources.test_delta import append


def read(store: Path, table: Path, **targets: str) -> list[Shown]:
    found = replace(of_table("delta", str(table), version=0), columns=(("n", "struct<a b:int>"),))
    with open_store(store) as opened:
        access = Access(targets=targets)
        return list(_Reading(opened, lambda: None, access, None, [found])._read(found))  # type: ignore[arg-type, return-value]


@pytest.mark.slow
def test_a_small_log_that_unpacks_to_gigabytes_is_opened_only_if_the_user_names_the_table(
    tmp_path: Path,
) -> None:
    append(tmp_path / "t", 0)
    swell_checkpoint(tmp_path / "t", 3_000_000)
    (sink,) = [of_table("delta", "").sink]
    with pytest.raises(RefusedError, match="cannot be read with 512 MiB of memory") as caught:
        read(tmp_path / "store", tmp_path / "t")
    assert f"--target {sink}=" in str(caught.value)
    (shown,) = read(tmp_path / "store", tmp_path / "t", **{sink: str(tmp_path / "t")})
    assert "types of its columns" in shown.note  # it was not refused


def test_all_tables_of_a_store_are_tried_by_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "t", 0)
    asked: list[bytes] = []

    def counted(module: str, question: bytes, **options: Any) -> Any:
        asked.append(question)
        return ask_process(module, question, **options)

    monkeypatch.setattr("seamark.audit.delta_limits.ask_process", counted)
    table = OpenedTable(str(tmp_path / "t"), {}, (None, 0))
    gone = OpenedTable(str(tmp_path / "gone"), {}, (None,))
    tried = DeltaLimits({"a": table, "b": table, "gone": gone})
    for sink in ("a", "b", "gone", "unknown"):
        tried.require(sink)
    assert len(asked) == 1
    assert asked[0].count(b'"path"') == 2


def test_a_table_that_never_answers_is_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TABLE_PATIENCE", 0)
    tried = DeltaLimits({"a": OpenedTable(str(tmp_path), {}, (None,))})
    with pytest.raises(StoreUnavailableError, match="'a' has not answered"):
        tried.require("a")


def test_the_versions_that_are_tried_are_those_that_are_opened(tmp_path: Path) -> None:
    found = of_table("delta", str(tmp_path), version=7)
    assert opened_table(found, {}) == OpenedTable(str(tmp_path), {}, (None, 7))
    every = replace(found, options={"mode": "overwrite"}, epochs=found.epochs * 2)
    assert opened_table(every, {}) == OpenedTable(str(tmp_path), {}, (None, 7))
    assert opened_table(replace(found, target="http://x/t"), {}) is None
    assert opened_table(replace(found, epochs=()), {}) is None
