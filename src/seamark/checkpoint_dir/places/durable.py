"""Files and folders of a local disk that a power cut does not take back."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from seamark._common.files import create_beside, open_to_read, sync_folder, write_all

_AT_A_TIME: Final = 8
_FEW: Final = 16


def write_durably(path: str, data: bytes) -> None:
    """Put a file in place of whatever is there, and its name on the disk; so are its folders."""
    folder, name = os.path.split(path)
    make_folders(folder)
    fd, temporary = create_beside(path)
    try:
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        # Hadoop's checksum of the old bytes would make the new ones unreadable
        with suppress(FileNotFoundError):
            os.unlink(f"{folder}/.{name}.crc")
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(folder)


def make_folders(folder: str) -> None:
    """Make a folder and those above it that are not there."""
    missing = []
    above = folder
    while above and not os.path.isdir(above):
        missing.append(above)
        above = os.path.dirname(above)
    os.makedirs(folder, exist_ok=True)
    for made in reversed(missing):
        sync_folder(os.path.dirname(made))


def sync_folders(folders: Iterable[str]) -> None:
    """Make the names in some folders durable; one that is not there has none."""
    for folder in folders:
        with suppress(FileNotFoundError, NotADirectoryError):
            sync_folder(folder)


def sync_tree(root: str) -> None:
    """Make every file and every name below a folder durable."""
    folders: list[str] = []
    files: list[str] = []
    for folder, _, names in os.walk(root):
        folders.append(folder)
        files += [f"{folder}/{name}" for name in names]
    if len(files) < _FEW:
        for path in files:
            _sync_file(path)
    else:
        with ThreadPoolExecutor(_AT_A_TIME, "seamark-sync") as pool:
            for _ in pool.map(_sync_file, files):
                pass
    for folder in reversed(folders):  # a folder after what is in it
        sync_folder(folder)


def sync_above(path: str) -> None:
    """Make the name of a file or folder durable, and the folders that lead to it."""
    folder = os.path.dirname(path)
    sync_folder(folder)
    with suppress(OSError):  # those further up may belong to others, who have seen to it
        while not os.path.ismount(folder):
            folder = os.path.dirname(folder)
            sync_folder(folder)


def _sync_file(path: str) -> None:
    fd = open_to_read(path)
    if fd is None:
        return  # somebody has removed it
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
