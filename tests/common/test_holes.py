"""A file costs what is stored of it, not what it claims."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seamark._common.files import read_file
from seamark._common.holes import is_mostly_hole
from seamark.errors import RefusedError
from seamark.limits import HOLE_FLOOR, HOLE_RATIO, MIB


def _made(path: Path, size: int, stored: dict[int, bytes]) -> Path:
    with open(path, "wb") as file:
        file.truncate(size)
        for offset, data in stored.items():
            file.seek(offset)
            file.write(data)
    return path


def _is_mostly_hole(path: Path, start: int = 0, end: int | None = None) -> bool:
    fd = os.open(path, os.O_RDONLY)
    try:
        return is_mostly_hole(fd, start, path.stat().st_size if end is None else end)
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    "stored", [{}, {0: b'{"a": 1}'}, {63 * MIB: b"x"}, {n * MIB: b"x" for n in range(64)}]
)
def test_a_file_of_which_little_is_stored_is_mostly_a_hole(
    tmp_path: Path, stored: dict[int, bytes]
) -> None:
    path = _made(tmp_path / "file", 64 * MIB, stored)
    assert _is_mostly_hole(path)
    with pytest.raises(RefusedError, match="a hole"):
        read_file(str(tmp_path), "file")


@pytest.mark.parametrize(
    ("size", "stored"),
    [
        (HOLE_FLOOR, {}),
        (64 * MIB, {0: b"x" * (64 * MIB // HOLE_RATIO)}),
        (64 * MIB, {n * MIB: b"x" * (MIB // HOLE_RATIO) for n in range(64)}),
        (3 * MIB, {0: bytes(3 * MIB)}),
    ],
)
def test_a_file_with_some_holes_is_read_as_it_is(
    tmp_path: Path, size: int, stored: dict[int, bytes]
) -> None:
    path = _made(tmp_path / "file", size, stored)
    assert not _is_mostly_hole(path)
    assert read_file(str(tmp_path), "file") == path.read_bytes()


def test_a_range_is_looked_at_by_itself(tmp_path: Path) -> None:
    path = _made(tmp_path / "file", 64 * MIB, {0: b"x" * (8 * MIB)})
    assert not _is_mostly_hole(path)
    assert not _is_mostly_hole(path, 0, 8 * MIB)
    assert _is_mostly_hole(path, 8 * MIB)
    assert _is_mostly_hole(path, 9 * MIB, 20 * MIB)


def test_a_file_system_that_counts_no_blocks_is_asked_for_holes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _made(tmp_path / "file", 4 * MIB, {0: b"x" * (4 * MIB)})
    real = os.fstat

    def without_blocks(fd: int) -> os.stat_result:
        return os.stat_result(tuple(real(fd))[:10], {"st_blocks": 0})  # as FUSE and ZFS may do

    monkeypatch.setattr(os, "fstat", without_blocks)
    assert os.fstat(0).st_blocks == 0
    assert not _is_mostly_hole(path)


def test_a_file_system_that_knows_of_no_holes_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _made(tmp_path / "file", 4 * MIB, {})
    real = os.lseek

    def knows_none(fd: int, position: int, how: int) -> int:
        if how in (os.SEEK_DATA, os.SEEK_HOLE):
            raise OSError(22, "Invalid argument")
        return real(fd, position, how)

    monkeypatch.setattr(os, "lseek", knows_none)
    assert not _is_mostly_hole(path)
    assert read_file(str(tmp_path), "file") == bytes(4 * MIB)
