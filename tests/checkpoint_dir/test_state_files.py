"""Which files a state version needs: the one rule behind capture, restore and adoption."""

from __future__ import annotations

import io
import json
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.checkpoint_dir.formats.rocksdb_zip import sst_names
from seamark.checkpoint_dir.state_files import (
    MissingVersion,
    closure,
    needed_ssts,
    parse_state_file,
    version_of,
)
from seamark.errors import DamageError


def snapshot(*ssts: str) -> bytes:
    """A RocksDB snapshot as Spark uploads it, as far as we read it."""
    listed = [{"localFileName": sst, "dfsSstFileName": sst, "sizeBytes": 1} for sst in ssts]
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": listed, "numKeys": 1}))
    return data.getvalue()


def never_read(name: str) -> bytes:
    raise AssertionError(f"{name} was read")


def test_changes_reach_back_to_the_newest_snapshot_and_no_further() -> None:
    names = {"1.delta", "2.delta", "3.delta", "3.snapshot", "4.delta", "5.delta"}
    assert sorted(closure(names, 5, never_read)) == ["3.snapshot", "4.delta", "5.delta"]


def test_a_snapshot_newer_than_the_version_is_not_taken() -> None:
    names = {"1.delta", "2.delta", "3.snapshot"}
    assert sorted(closure(names, 2, never_read)) == ["1.delta", "2.delta"]


def test_a_hole_is_told_with_the_version_that_is_missing() -> None:
    with pytest.raises(MissingVersion, match="version 2, which 3 builds on"):
        closure({"1.delta", "3.delta"}, 3, never_read)
    with pytest.raises(MissingVersion, match="version 3 is not there"):
        closure({"1.delta", "2.delta"}, 3, never_read)


def test_a_snapshot_whose_upload_is_not_finished_is_passed_over() -> None:
    zips = {"2.zip": snapshot("a.sst"), "3.zip": snapshot("a.sst", "b.sst")}
    names = {"2.zip", "3.zip", "3.changelog", "SSTs/a.sst"}
    assert sorted(closure(names, 3, zips.__getitem__)) == ["2.zip", "3.changelog", "SSTs/a.sst"]


def test_a_zip_brings_exactly_the_files_that_it_lists() -> None:
    names = {"7.zip", "6.zip", "SSTs/a.sst", "SSTs/b.sst", "SSTs/orphan.sst"}
    zips = {"7.zip": snapshot("a.sst", "b.sst"), "6.zip": snapshot("a.sst")}
    assert sorted(closure(names, 7, zips.__getitem__)) == ["7.zip", "SSTs/a.sst", "SSTs/b.sst"]


def test_ids_choose_among_files_of_one_version() -> None:
    names = {"1_aa.changelog", "1_bb.changelog", "2_cc.changelog", "2_cc.changelog.crc"}
    found = closure(names, 2, never_read, {1: "bb", 2: "cc"})
    assert sorted(found) == ["1_bb.changelog", "2_cc.changelog", "2_cc.changelog.crc"]


@given(
    version=st.integers(1, 30),
    snapshots=st.sets(st.integers(1, 30)),
    missing=st.sets(st.integers(1, 30), max_size=3),
)
def test_what_is_taken_is_always_enough_and_never_a_file_too_many(
    version: int, snapshots: set[int], missing: set[int]
) -> None:
    names = {f"{v}.delta" for v in range(1, 31) if v not in missing}
    names |= {f"{v}.snapshot" for v in snapshots}
    start = max((v for v in snapshots if v <= version), default=0)
    needed = {f"{v}.delta" for v in range(start + 1, version + 1)}
    if start:
        needed.add(f"{start}.snapshot")
    if needed <= names:
        assert set(closure(names, version, never_read)) == needed
    else:
        with pytest.raises(MissingVersion):
            closure(names, version, never_read)


@pytest.mark.parametrize(
    "data",
    [b"", b"PK\x05\x06", b"no zip at all", snapshot()[:40]],
    # a zip holds the time, which would give the test another name in each process
    ids=["empty", "an end only", "no zip", "torn"],
)
def test_something_that_is_no_snapshot_is_damage(data: bytes) -> None:
    with pytest.raises(DamageError):
        needed_ssts(data)


@pytest.mark.parametrize("name", ["x.delta", "1.txt", "1.delta.crc", "_metadata", "1_.zip", ""])
def test_other_files_are_no_state_files(name: str) -> None:
    assert parse_state_file(name) is None


def test_the_version_of_a_file_and_of_the_checksums_beside_it() -> None:
    assert version_of("state/0/1/12.delta") == 12
    assert version_of("state/0/1/.12.delta.crc") == 12
    assert version_of("state/0/1/12_ab-cd.zip.crc") == 12
    assert version_of("state/0/1/_metadata/schema") is None


@pytest.mark.parametrize(
    "name", ["../../../secret", "/etc/passwd", "a/b.sst", "..", "", "a\\b", "\0"]
)
def test_a_snapshot_names_no_file_outside_of_its_store(name: str) -> None:
    with pytest.raises(DamageError, match="not a RocksDB snapshot"):
        needed_ssts(snapshot(name))
    with pytest.raises(DamageError):
        sst_names(snapshot(name))
