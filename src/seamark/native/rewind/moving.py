"""Moving files of one directory to the same place in another one.

Tests: ``tests/native/test_rewind.py``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Final

from seamark._common.files import make_folders, sync_folders
from seamark._common.os_errors import translate_os_errors
from seamark.checkpoint_dir.places.directory import Directory
from seamark.checkpoint_dir.places.local import LocalDirectory

_AT_A_TIME: Final = 8
_TOGETHER: Final = 128
"""Files that are removed by one call: object stores take many in one request."""


def move_all(source: Directory, paths: Iterable[str], target: Directory, below: str = "") -> None:
    """Take files out of ``source``, in their order, and keep them in ``target`` below a folder.

    Each is there before it is gone here. On one disk they are renamed. Files that are not there
    are passed over. On a local disk a power cut does not undo it.
    """
    waiting = iter(paths)
    with ThreadPoolExecutor(_AT_A_TIME, "seamark-move") as pool:
        while some := list(islice(waiting, _TOGETHER)):
            left = [p for p in some if not _renamed(source, p, target, f"{below}{p}")]
            if isinstance(source, LocalDirectory) and isinstance(target, LocalDirectory):
                there = [target.copy.path(f"{below}{path}") for path in some]
                _sync_names([*there, *map(source.copy.path, some)])
            for _ in pool.map(lambda path: keep_copy(source, path, target, below), left):
                pass
            if left:
                source.remove(left)


def keep_copy(source: Directory, path: str, target: Directory, below: str = "") -> None:
    """Put what a file holds into ``target``."""
    with suppress(FileNotFoundError):
        target.write(f"{below}{path}", source.read(path))


def _renamed(source: Directory, path: str, target: Directory, there: str) -> bool:
    """Whether a rename has moved the file, or there is none."""
    if not isinstance(source, LocalDirectory) or not isinstance(target, LocalDirectory):
        return False
    old, new = source.copy.path(path), target.copy.path(there)
    with translate_os_errors("moving a file to", new):
        make_folders(os.path.dirname(new))
        try:
            os.replace(old, new)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno == errno.EXDEV:  # on another disk
                return False
            raise
    return True


def _sync_names(paths: list[str]) -> None:
    folders = dict.fromkeys(map(os.path.dirname, paths))
    with translate_os_errors("moving files of", paths[-1]):
        sync_folders(folders)
