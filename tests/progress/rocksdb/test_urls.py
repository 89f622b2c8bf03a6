"""Whatever characters a path has, its URL leads back to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark import open_store
from seamark.pipeline.telemetry.progress_record import ProgressRecord, progress_url
from seamark.progress import open_progress, rocksdb_url

NAMES = ["plain", "with space", "50%41", "a#b", "a?b=c", "Ärger", "a@b"]


@pytest.mark.parametrize("name", NAMES)
def test_a_store_is_made_in_the_folder_that_was_meant(name: str, tmp_path: Path) -> None:
    with open_progress(rocksdb_url(tmp_path / name)) as store, store.session() as session:
        session.put("view", b"key", b"value")
    assert [each.name for each in tmp_path.iterdir()] == [name]
    with open_progress(rocksdb_url(tmp_path / name), read_only=True) as store:
        assert store.get("view", b"key") == b"value"


def test_a_path_that_is_relative_counts_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert rocksdb_url("views/latest") == f"rocksdb://{tmp_path}/views/latest"


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_records_its_progress_inside_its_store(name: str, tmp_path: Path) -> None:
    with open_store(tmp_path / name) as store:
        record = ProgressRecord(progress_url("auto", store), "trades")
        assert record.bring_to(None) is None
        record.close()
    assert (tmp_path / name / "progress" / "CURRENT").exists()
    assert [each.name for each in tmp_path.iterdir()] == [name]
