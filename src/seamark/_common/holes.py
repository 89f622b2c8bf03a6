"""Files that claim far more bytes than are stored.

A file may be made of gigabytes of nothing at no cost. Whoever reads it as a whole would pay for
every byte of it.

Tests: ``tests/common/test_holes.py``.
"""

from __future__ import annotations

import errno
import os
import stat

from seamark.limits import HOLE_FLOOR, HOLE_RATIO


def is_hollow(path: str) -> bool:
    """Whether much less is stored of a file than its length; not when it is no file, or is gone."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size <= HOLE_FLOOR:
            return False
        if found.st_blocks * 512 >= found.st_size // HOLE_RATIO:
            return False
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False  # whoever reads it says why it cannot be read
    try:
        return is_mostly_hole(fd, 0, found.st_size)
    finally:
        os.close(fd)


def is_mostly_hole(fd: int, start: int, end: int) -> bool:
    """Whether much less is stored of a range of a file than its length.

    Blocks are counted first, because that costs nothing. Some file systems count them late or never
    (ZFS, some of FUSE), so only the holes themselves are proof. Leaves the file at ``start`` if it
    had to look for them.
    """
    needed = (end - start) // HOLE_RATIO
    if end - start <= HOLE_FLOOR:
        return False
    found = os.fstat(fd)
    elsewhere = start + max(found.st_size - end, 0)
    if found.st_blocks * 512 - elsewhere >= needed:
        return False
    try:
        return _stored(fd, start, end, needed) < needed
    except OSError:
        return False  # a file system that knows of no holes
    finally:
        os.lseek(fd, start, os.SEEK_SET)


def _stored(fd: int, start: int, end: int, enough: int) -> int:
    """How many bytes of a range are no hole; counting stops when there are enough."""
    stored = 0
    while start < end and stored < enough:
        try:
            first = os.lseek(fd, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break  # nothing but a hole from here on
            raise
        start = os.lseek(fd, first, os.SEEK_HOLE)
        stored += max(min(start, end) - first, 0)
    return stored
