"""Files and folders of a local disk: reached without following links, made durable by fsync."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from seamark._common.holes import is_mostly_hole
from seamark._common.parallel import map_in_threads
from seamark.errors import DamageError, RefusedError, StoreUnavailableError
from seamark.limits import LARGEST_FILE

Buffer = bytes | bytearray | memoryview

ABSENT: Final = (errno.ENOENT, errno.ENOTDIR)
_FOLDERS_REMEMBERED: Final = 1000
_SYNCED_AT_A_TIME: Final = 8
_WORTH_A_POOL: Final = 16


def version_of_file(found: os.stat_result) -> tuple[int, int, int]:
    """Changes whenever the file is written."""
    return (found.st_ino, found.st_mtime_ns, found.st_size)


# files that another program may have put there


def a_link(path: str) -> StoreUnavailableError:
    """The error for a link inside a folder of ours. It proves nothing about what it leads to."""
    return StoreUnavailableError(
        f"{path} is a link, and links are not followed here",
        hint="Put the file or folder itself in its place, or mount the other disk there "
        "(mount --bind). Only the folder that you name yourself may be a link.",
    )


def require_inside(root: str, path: str) -> None:
    """:class:`StoreUnavailableError` when a folder on the way from ``root`` to a file is a link.

    :class:`DamageError` when the path climbs: no file of ours has such a name.
    """
    _refuse_climbing(root, path)
    folder = os.path.dirname(path)
    while len(folder) > len(root):
        require_no_link(folder)
        folder = os.path.dirname(folder)


def _refuse_climbing(root: str, path: str) -> None:
    if ".." in path[len(root) :].split("/"):
        raise DamageError(f"{path} leads out of {root}")


def require_no_link(path: str) -> None:
    """:class:`StoreUnavailableError` when the name is a link; fine when it is not taken."""
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise a_link(path)
    except OSError as error:
        if isinstance(error, StoreUnavailableError) or error.errno not in ABSENT:
            raise


def open_no_follow(path: str, flags: int, mode: int = 0o666) -> int:
    """A descriptor of what has the name itself: no link is followed, no pipe is waited for."""
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            require_no_link(path)
        raise


def open_to_read(path: str) -> int | None:
    """A descriptor of a regular file, or None when there is no such file."""
    try:
        fd = open_no_follow(path, os.O_RDONLY)
    except OSError as error:
        if isinstance(error, StoreUnavailableError) or error.errno not in ABSENT:
            # a socket cannot even be opened
            if error.errno == errno.ENXIO:
                raise _not_a_file(path) from None
            raise
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_a_file(path)
    return fd


def _not_a_file(path: str) -> DamageError:
    return DamageError(f"{path} is not a regular file")


class Inside:
    """Files below a folder, reached without a link on the way. A folder is looked at once."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._plain: set[str] = set()

    def require(self, path: str) -> None:
        """:class:`StoreUnavailableError` when a link leads to the folder of a file."""
        folder = os.path.dirname(path)
        if folder not in self._plain:
            require_inside(self._root, path)
            if len(self._plain) >= _FOLDERS_REMEMBERED:
                self._plain.clear()
            self._plain.add(folder)

    def forget(self, folder: str) -> None:
        """Forget a folder that may have been replaced."""
        self._plain.discard(folder)

    def open(self, path: str) -> int | None:
        """As :func:`open_to_read`."""
        fd = open_to_read(path)
        if fd is not None:
            try:
                self.require(path)
            except BaseException:
                os.close(fd)
                raise
        return fd

    def read(self, relative: str, largest: int = LARGEST_FILE) -> bytes:
        """The bytes of a regular file below the folder; FileNotFoundError when there is none.

        :class:`RefusedError` for one that is too large, or that is mostly a hole.
        """
        path = f"{self._root}/{relative}"
        _refuse_climbing(self._root, path)
        fd = self.open(path)
        if fd is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        try:
            size = os.fstat(fd).st_size
            if size > largest:
                raise RefusedError(f"{path} has {size} bytes, and {largest} is the most")
            refuse_hole(fd, path, size)
            return read_all(fd, size + 1)
        finally:
            os.close(fd)

    def stat(self, path: str) -> os.stat_result | None:
        """What the system knows about a file; None when there is none."""
        try:
            found = os.stat(path, follow_symlinks=False)
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise
        if stat.S_ISLNK(found.st_mode):
            raise a_link(path)
        self.require(path)
        return found


def write_file(path: str, data: Buffer, *, durable: bool) -> None:
    """Write a regular file, new or not; ``durable`` is about its bytes, not about its name."""
    fd = open_no_follow(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _not_a_file(path)
        write_all(fd, data)
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def create_beside(path: str, mode: int = 0o666) -> tuple[int, str]:
    """A new file in the folder of ``path``, to be renamed to it: its descriptor and its path.

    Nobody can foresee its name, and nothing that has the name already is opened.
    """
    folder, name = os.path.split(path)
    temporary = f"{folder}/.{name[:180]}.{os.urandom(8).hex()}.seamark.tmp"
    return open_no_follow(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), temporary


def read_file(root: str, relative: str, largest: int = LARGEST_FILE) -> bytes:
    """As :meth:`Inside.read`, for a single file."""
    return Inside(root).read(relative, largest)


def stream_file(root: str, relative: str, piece: int) -> Iterator[memoryview]:
    """The bytes of a file of any size in pieces. A piece is valid until the next is asked for."""
    path = f"{root}/{relative}"
    _refuse_climbing(root, path)
    fd = open_to_read(path)
    if fd is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    with open(fd, "rb", buffering=0) as file:
        require_inside(root, path)
        size = os.fstat(fd).st_size
        refuse_hole(fd, path, size)
        buffer = memoryview(bytearray(min(piece, size + 1)))
        while count := file.readinto(buffer):
            yield buffer[:count]


def refuse_hole(fd: int, path: str, size: int) -> None:
    """:class:`RefusedError` for a file of so many bytes that is mostly a hole."""
    if is_mostly_hole(fd, 0, size):
        raise RefusedError(f"{path} has {size} bytes, and most of them are a hole")


def read_all(fd: int, most: int) -> bytes:
    """Up to ``most`` bytes, in as many reads as it takes."""
    parts: list[bytes] = []
    while most > 0 and (data := os.read(fd, most)):
        parts.append(data)
        most -= len(data)
    # what came in one piece, as most files do, is not copied
    return parts[0] if len(parts) == 1 else b"".join(parts)


def write_all(fd: int, piece: Buffer) -> None:
    """All of a piece, in as many writes as it takes."""
    written = os.write(fd, piece)
    view = memoryview(piece)
    while written < len(view):
        more = os.write(fd, view[written:])
        if more == 0:
            raise OSError(errno.EIO, "the disk takes no more bytes and does not say why")
        written += more


def clock_at(path: str) -> float:
    """The file system's time, by a file that is made there for a moment.

    Where none can be made, as on a full disk, this machine's: what is old has to go all the same.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        return os.stat(path).st_mtime
    except OSError:
        return time.time()
    finally:
        with suppress(OSError):
            os.unlink(path)


# what a power cut does not take back


def replace_file(
    path: str,
    data: Buffer | Iterable[Buffer],
    *,
    durable: bool = True,
    stale: str | None = None,
) -> None:
    """Put a file in place of whatever has its name, whole or not at all; makes its folders.

    ``data`` are the bytes, or pieces of them as they come.

    With ``durable`` a power cut takes back neither the file nor its folders. ``stale`` is a file
    that describes the old bytes: it is removed just before the new ones appear.
    """
    folder = os.path.dirname(path)
    if durable:
        make_folders(folder)
    else:
        os.makedirs(folder, exist_ok=True)
    fd, temporary = create_beside(path)
    try:
        try:
            for piece in (data,) if isinstance(data, Buffer) else data:
                write_all(fd, piece)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        if stale is not None:
            with suppress(FileNotFoundError):
                os.unlink(stale)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        sync_folder(folder)


def make_folders(folder: str, below: str | None = None) -> None:
    """Make a folder durably, and those above it that are missing.

    Folders below ``below`` are made durable even if they exist: the process that made them may
    have died before its fsync.
    """
    if folder != below and (below is not None or not os.path.isdir(folder)):
        make_folders(os.path.dirname(folder), below)
        make_folder(folder)


def make_folder(folder: str, mode: int = 0o777) -> None:
    """Make one folder, or keep the one that exists; either way its name is durable afterwards."""
    try:
        os.mkdir(folder, mode)
    except FileExistsError:
        require_no_link(folder)
    sync_folder(os.path.dirname(folder))


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable."""
    # the folder itself may be a link: the root of a store is one now and then
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folders(folders: Iterable[str]) -> None:
    """Make the names in some folders durable. Folders that do not exist are skipped."""
    for folder in folders:
        with suppress(FileNotFoundError, NotADirectoryError):
            sync_folder(folder)


def folders_below(root: str) -> Iterator[tuple[str, list[str]]]:
    """Every folder from one on, each before what is in it, with the names of its files.

    Links are files here, and a folder that cannot be read is left out. Folders may be deeper than
    Python can call itself.
    """
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        names: list[str] = []
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    names.append(entry.name)
            yield folder, names


def remove_tree(root: str) -> None:
    """Remove a folder with all that is in it, as far as that can be done. No link is followed."""
    try:
        shutil.rmtree(root, ignore_errors=True)
    except RecursionError:
        folders = list(folders_below(root))
        for folder, names in reversed(folders):
            with suppress(OSError):
                for name in names:
                    os.unlink(f"{folder}/{name}")
                os.rmdir(folder)


def sync_tree(root: str) -> None:
    """Make every file and every name below a folder durable."""
    folders: list[str] = []
    files: list[str] = []
    for folder, names in folders_below(root):
        folders.append(folder)
        files += [f"{folder}/{name}" for name in names]
    threads = 1 if len(files) < _WORTH_A_POOL else _SYNCED_AT_A_TIME
    map_in_threads(_sync_file, files, threads, "seamark-sync")
    for folder in reversed(folders):  # a folder after what is in it
        sync_folder(folder)


def _sync_file(path: str) -> None:
    fd = open_to_read(path)
    if fd is None:
        return  # removed in the meantime
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_above(path: str) -> None:
    """Make the name of a file or folder durable, and the folders that lead to it."""
    folder = os.path.dirname(path)
    sync_folder(folder)
    with suppress(OSError):  # folders further up may belong to others, who made them durable
        while not os.path.ismount(folder):
            folder = os.path.dirname(folder)
            sync_folder(folder)
