"""State of a batch that was run again: the same changes in another order are the same."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from seamark.capture.file_index import StoredFile
from seamark.capture.state_comparison import StateComparison, compare_changes
from seamark.checkpoint_dir.formats.hdfs_state import StateChange
from seamark.checkpoint_dir.places.local import LocalCopy
from tests.checkpoint_dir.test_hdfs_state import change_file

A, B = StateChange(b"a", b"1" * 8), StateChange(b"b", b"2" * 8)
FIRST, SECOND = "state/0/0/7.delta", "state/0/1/7.changelog"
ID, OTHER = "state/0/0/7_aa-1.changelog", "state/0/0/7_bb-2.changelog"


def compared(
    root: Path, stored: dict[str, bytes], own: dict[str, bytes], *, with_bytes: bool = True
) -> StateComparison:
    copy = LocalCopy(root)
    for path, data in own.items():
        copy.write(path, data)
    files = {
        path: StoredFile(len(data), hashlib.sha256(data).digest()) for path, data in stored.items()
    }
    return compare_changes(copy, files, 7, stored.__getitem__ if with_bytes else None)


def test_equal_bytes_are_equal(tmp_path: Path) -> None:
    both = {FIRST: change_file([A, B]), SECOND: change_file([B])}
    found = compared(tmp_path, both, both)
    assert found == StateComparison((FIRST, SECOND))
    assert found.is_equal is True


def test_the_order_of_keys_says_nothing_and_that_of_a_key_does(tmp_path: Path) -> None:
    other_order = compared(
        tmp_path / "1", {FIRST: change_file([A, B])}, {FIRST: change_file([B, A])}
    )
    assert other_order.is_equal is True
    late = StateChange(b"a", None)
    found = compared(
        tmp_path / "2", {SECOND: change_file([A, late])}, {SECOND: change_file([late, A])}
    )
    assert found == StateComparison((), (SECOND,))
    assert found.is_equal is False


@pytest.mark.parametrize("own", [{FIRST: change_file([A])}, {}])
def test_other_changes_and_a_file_that_was_not_written_differ(
    tmp_path: Path, own: dict[str, bytes]
) -> None:
    assert compared(tmp_path, {FIRST: change_file([A, B])}, own).differing == (FIRST,)


def test_files_with_ids_are_compared_by_what_is_in_them(tmp_path: Path) -> None:
    found = compared(tmp_path, {ID: change_file([A], 3)}, {OTHER: change_file([A], 3)})
    assert found.equal == (ID,)
    other = compared(tmp_path / "2", {ID: change_file([A], 3)}, {OTHER: change_file([B], 3)})
    assert other.differing == (ID,)
    lineage = change_file([A], 3)
    blind = compared(tmp_path / "3", {ID: lineage}, {OTHER: change_file([B], 3)}, with_bytes=False)
    assert blind == StateComparison(not_compared=1)


def test_a_stored_file_that_is_gone_meanwhile_is_not_compared(tmp_path: Path) -> None:
    copy = LocalCopy(tmp_path)
    copy.write(FIRST, change_file([A]))
    files = {FIRST: StoredFile(3, hashlib.sha256(b"abc").digest())}
    assert compare_changes(copy, files, 7, lambda _: None) == StateComparison(not_compared=1)


def test_snapshots_and_other_versions_are_not_compared(tmp_path: Path) -> None:
    stored = {"state/0/0/7.zip": b"x", "state/0/0/6.delta": b"y", "state/0/0/SSTs/1.sst": b"z"}
    assert compared(tmp_path, stored, {}).is_equal is None


def test_what_cannot_be_decoded_is_not_called_different(tmp_path: Path) -> None:
    zstd = b"\x28\xb5\x2f\xfd" + b"0" * 40
    found = compared(tmp_path, {FIRST: zstd}, {FIRST: zstd + b"1"})
    assert found == StateComparison(not_compared=1)
    assert found.is_equal is None
