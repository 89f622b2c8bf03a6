"""Real file systems that are full or read-only, for tests. They take root, or they are skipped."""

from __future__ import annotations

import os
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """A file system of a few hundred KiB in memory, mounted on a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Use up every byte that is left."""
        with open(self.path / "filler", "ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1 << 8, 1):
                try:
                    while file.write(b"\0" * size):
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        """Take the filler away again."""
        (self.path / "filler").unlink()

    def make_read_only(self) -> None:
        """Mount it again, for reading only."""
        _run("mount", "-o", "remount,ro", str(self.path))


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[SmallDisk]:
    """A disk of that many bytes; the test is skipped, loudly, where none can be mounted."""
    path.mkdir(parents=True)
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path))
    except (OSError, subprocess.CalledProcessError) as error:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(f"a full disk is NOT tested here: {error}", stacklevel=1)
        pytest.skip(f"no file system can be mounted: {error}")
    try:
        yield SmallDisk(path)
    finally:
        _run("umount", "-l", str(path))


def _run(*command: str) -> None:
    if os.geteuid() != 0:
        raise PermissionError("mounting takes root")
    subprocess.run(command, check=True, capture_output=True)
