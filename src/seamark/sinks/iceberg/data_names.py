"""The names of data files tell which attempt wrote them.

pyiceberg puts a UUID into each name. Half of ours comes from the output and its attempt, so that
whoever clears away after an attempt needs no other proof, whatever a journal says. Pure.

Tests: ``tests/sinks/test_iceberg_staging.py``.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Collection, Mapping
from typing import Final

_OWNER_BYTES: Final = 8
_TOKEN: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME: Final = re.compile(
    # a table for object stores has a hash before it
    rf"(?:[01]+-)?[0-9]{{5}}-[0-9]+-({_TOKEN.pattern})\.parquet"
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.=@+-]{1,255}")
_NOT_IN_PATHS: Final = re.compile(r"[?#\\\x00-\x1f]")


def new_token(output: str, attempt: str) -> uuid.UUID:
    """A token that no other writer has, and that says whose it is."""
    return uuid.UUID(bytes=_owner(output, attempt) + os.urandom(16 - _OWNER_BYTES))


def _owner(output: str, attempt: str) -> bytes:
    return hashlib.sha256(f"{output}\n{attempt}".encode()).digest()[:_OWNER_BYTES]


def data_folders(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Where the data files of a table are."""
    named = properties.get("write.data.path", "").rstrip("/")
    usual = f"{location.rstrip('/')}/data"
    return (named, usual) if named else (usual,)


def says_attempt(path: str, output: str, attempt: str) -> bool:
    """Whether a file's name says that the attempt wrote it, wherever the file is.

    A table may choose the places of its files, and have chosen others when they were written.
    """
    folder, _, name = path.rpartition("/")
    # what a URL ends with may be no part of the path
    if _PLAIN.fullmatch(name) is None or not {"?", "#"}.isdisjoint(folder):
        return False
    owner = _owner(output, attempt)
    return any(uuid.UUID(token).bytes.startswith(owner) for token in _TOKEN.findall(name))


def is_of_attempt(path: str, folders: Collection[str], output: str, attempt: str) -> bool:
    """Whether a file is in one of the folders, and its name says that the attempt wrote it."""
    for folder in folders:
        if path.startswith(f"{folder}/"):
            *between, name = path[len(folder) + 1 :].split("/")
            match = _NAME.fullmatch(name)
            return (
                match is not None
                and uuid.UUID(match[1]).bytes.startswith(_owner(output, attempt))
                and {"", ".", ".."}.isdisjoint(between)
                and _NOT_IN_PATHS.search(path, len(folder)) is None
            )
    return False
