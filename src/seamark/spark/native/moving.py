"""Moving a file of one directory to the same place in another one."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from seamark.spark.native.directory import Directory
from seamark.spark.native.local import LocalDirectory
from seamark.store.os_errors import telling


def move(source: Directory, path: str, target: Directory, below: str = "") -> None:
    """Take a file out of ``source`` and keep it in ``target``; none there is fine.

    It is there before it is gone here. On one disk it is renamed.
    """
    there = f"{below}{path}"
    if (
        isinstance(source, LocalDirectory)
        and isinstance(target, LocalDirectory)
        and _renamed(source, path, target, there)
    ):
        return
    try:
        data = source.read(path)
    except FileNotFoundError:
        return
    target.write(there, data)
    source.remove([path])


def keep_copy(source: Directory, path: str, target: Directory) -> None:
    """Put what a file holds into ``target``, before it is written anew."""
    with suppress(FileNotFoundError):
        target.write(path, source.read(path))


def _renamed(source: LocalDirectory, path: str, target: LocalDirectory, there: str) -> bool:
    old, new = source.copy.path(path), target.copy.path(there)
    with telling("moving a file to", new):
        os.makedirs(os.path.dirname(new), exist_ok=True)
        try:
            os.replace(old, new)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno == errno.EXDEV:
                return False
            raise
    return True
