"""Reading a file takes no more memory and time than its bytes do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seamark._common.files import read_all


@pytest.mark.parametrize("at_once", [1 << 20, 400, 1])
@pytest.mark.parametrize(("size", "most"), [(1000, 1001), (1000, 1000), (1000, 10), (0, 1), (5, 0)])
def test_bytes_are_read_to_the_end_or_the_limit_and_one_piece_is_not_copied(
    at_once: int, size: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read, pieces = tmp_path / "file", os.read, []
    path.write_bytes(content := os.urandom(size))

    def recorded(fd: int, count: int) -> bytes:
        pieces.append(read(fd, min(count, at_once)))
        return pieces[-1]

    fd = os.open(path, os.O_RDONLY)
    monkeypatch.setattr(os, "read", recorded)
    try:
        found = read_all(fd, most)
    finally:
        monkeypatch.undo()
        os.close(fd)
    assert found == content[:most]
    if len([piece for piece in pieces if piece]) == 1:
        # owner.json is read again for each damaged checkpoint: a copy took longer than the read
        assert found is pieces[0]
