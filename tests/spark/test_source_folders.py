"""A folder that was made again is told from the one that was read."""

from __future__ import annotations

from pathlib import Path

from seamark.spark.plans.plan import SourceInfo
from seamark.spark.source_folders import fixed_folder, folder_id, folder_ids, other_folders


def test_a_folder_keeps_its_id_and_another_one_at_its_place_has_another(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    before = folder_ids({"in": SourceInfo("json", {"path": str(folder)}, reads_files=True)})
    (folder / "1.json").write_text("{}")
    assert folder_ids({"in": SourceInfo("json", {"path": str(folder)}, reads_files=True)}) == before
    assert folder_id(folder.as_uri()) == folder_id(str(folder))
    folder.rename(tmp_path / "old")
    folder.mkdir()
    after = folder_ids({"in": SourceInfo("json", {"path": str(folder)}, reads_files=True)})
    [told] = other_folders(before, after)
    assert f"source 'in' reads another folder '{folder}'" in told
    assert other_folders({}, after) == other_folders(before, {}) == []


def test_nothing_is_said_about_places_that_have_no_such_id(tmp_path: Path) -> None:
    assert folder_id("s3a://bucket/in") is None
    assert folder_id(f"{tmp_path}/*.json") is None
    assert folder_id(str(tmp_path / "none")) is None
    assert folder_ids({"t": SourceInfo("kafka", {"path": str(tmp_path)})}) == {}


def test_all_files_of_a_pattern_are_below_the_folder_before_it() -> None:
    for path, folder in (
        ("file:/data/in", "file:/data/in"),
        ("file:/data/in/*.json", "file:/data/in"),
        ("file:/data/*/in/*.json", "file:/data"),
        ("hdfs://nn:8020/{a,b/c}/d", "hdfs://nn:8020"),
        ("s3a://b/a b/20[0-9]?/x", "s3a://b/a b"),
        ("file:/data/a\\\\*b/c", "file:/data"),
        ("file:/*", "file:"),
    ):
        assert fixed_folder(path) == folder
