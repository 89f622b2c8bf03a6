"""Folders of a sink: named, looked at, made durable, removed, while others may do the same.

Tests: ``tests/sinks/test_publish.py``.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import unquote, urlsplit

from seamark._common.checks import check_text
from seamark._common.files import ABSENT, make_folders, require_inside, require_no_link, sync_folder
from seamark.errors import InvalidInputError, StoreUnavailableError

_TRIES: Final = 40
_PAUSE: Final = 0.05
# two letters at least, so that no path of one letter and a colon counts as a URL
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_OTHER_PLACES: Final = (
    "Give it a local or shared file system, or hdfs://. For an object store use a table format: "
    "DeltaSink writes to s3://, gs:// and abfss:// and is exactly once."
)
_OWN: Final = frozenset({"_seamark", "_delta_log"})
"""Folders of a sink's own, inside of the one that readers read."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,199}")


def is_hdfs(path: str | os.PathLike[str]) -> bool:
    """Whether it is the URL of a folder on HDFS."""
    url = _URL.match(path) if isinstance(path, str) else None
    return url is not None and url[1].lower() == "hdfs"


def local_folder(
    path: str | os.PathLike[str], what: str = "a FileSink", hint: str = _OTHER_PLACES
) -> str:
    """The absolute path of a folder that is given as a path or a file URL.

    :class:`InvalidInputError`, which names ``what`` is to write there, for the URL of anything
    else.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    check_text(text, f"the path of {what}")
    if "\x00" in text or not text:
        raise InvalidInputError(f"the path of {what} may not be empty or hold NUL")
    url = _URL.match(text)
    if url is None:
        return os.path.abspath(text)
    if url[1].lower() != "file":
        raise InvalidInputError(
            f"{what} cannot write to {url[1]}://, because nothing there can be renamed at once",
            hint=hint,
        )
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise InvalidInputError(f"a file URL looks like file:///path, not {text!r}")
    return os.path.abspath(unquote(parts.path))


def check_token(token: str, what: str) -> str:
    """A token that is safe as the name of a folder."""
    if not is_token(token):
        raise InvalidInputError(f"{what} must be a plain name of letters and digits, not {token!r}")
    return token


def is_token(name: object) -> bool:
    """Whether it is a name that is safe for a folder, as those of attempts and timelines are."""
    return isinstance(name, str) and _TOKEN.fullmatch(name) is not None


def names_in(folder: str) -> list[str]:
    """The names in a folder, sorted; none when it is not there."""
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        if error.errno in ABSENT:
            return []
        raise


def is_there(path: str) -> bool:
    """Whether the name is taken, by whatever it is."""
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno in ABSENT:
            return False
        raise
    return True


def is_hidden(parts: Sequence[str]) -> bool:
    """Whether readers of a folder, and Delta's vacuum, leave out what has these names below it.

    What a sink keeps there itself is hidden too, and is nobody else's place.
    """
    if not _OWN.isdisjoint(parts):
        return False
    return any(part.startswith(".") or (part[:1] == "_" and "=" not in part) for part in parts)


def sync_if_there(folder: str) -> None:
    """Make the names in a folder durable, unless somebody has removed it."""
    with suppress(FileNotFoundError):
        sync_folder(folder)


def remove_tree(path: str) -> None:
    """Remove a folder and all below it; harmless when others remove it at the same time.

    The Spark of a process that was killed may write there for a moment longer: that is waited for.
    A link is not followed: :class:`StoreUnavailableError`.
    """
    require_no_link(path)
    for _ in range(_TRIES):
        try:
            _remove(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            time.sleep(_PAUSE)
        else:
            return
    raise StoreUnavailableError(
        f"somebody keeps writing to {path}",
        hint="Is the Spark of an earlier run still alive? End it, then start again.",
    )


def _remove(path: str) -> None:
    folders = [path]
    for folder in folders:  # grows while it is walked
        try:
            with os.scandir(folder) as entries:
                inside = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError as error:
            if error.errno not in ABSENT:
                raise
            continue
        for below, is_folder in inside:
            if is_folder:
                folders.append(below)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(below)
    for folder in reversed(folders):
        with suppress(FileNotFoundError):
            os.rmdir(folder)


def make_durable_folder(path: str, below: str) -> None:
    """Make a folder whose name survives a power cut; ``below`` exists and is durable already."""
    require_inside(below, f"{path}/")
    make_folders(path, below)


def make_folder_below(root: str, path: str) -> None:
    """Make a folder at or below ``root`` so that its name survives a power cut.

    :class:`StoreUnavailableError` when a link leads there from ``root``, which may be one itself.
    """
    require_inside(root, f"{path}/")
    there = path
    while not is_there(there):
        there = os.path.dirname(there)
    make_durable_folder(path, there)
    sync_if_there(os.path.dirname(there))


def lost_the_race(error: OSError) -> bool:
    """Whether a rename failed because somebody else has moved the source or made the target."""
    return error.errno in (*ABSENT, errno.EEXIST, errno.ENOTEMPTY)
