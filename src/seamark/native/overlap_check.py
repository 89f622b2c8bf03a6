"""A store and the directory that it holds must lie apart."""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from seamark.errors import InvalidInputError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_KINDS: Final = {"s3a": "s3", "abfs": "az", "abfss": "az", "azure": "az", "adl": "az"}


def require_apart(directory_url: str, store_url: str) -> None:
    """See that neither lies inside the other; :class:`InvalidInputError` when one does.

    Each may be a path or a URL free of secrets: links are followed, and names under which the same
    bucket or container goes are known. Nothing has to exist.

    >>> require_apart("s3a://bucket/query", "s3://bucket/query-store")
    """
    directory, store = _place(_as_spark_reads(directory_url)), _place(_as_a_store(store_url))
    if directory.kind != store.kind or not _may_be_one(directory.host, store.host):
        return
    shared = min(len(directory.parts), len(store.parts))
    if directory.parts[:shared] == store.parts[:shared]:
        raise InvalidInputError(
            "the store and the directory must not contain each other",
            where=f"{store_url} and {directory_url}",
            hint="Spark must find nothing of ours in its directory, nor we of Spark's in ours.",
        )


def local_store_path(url: str) -> str | None:
    """The path that a store's path or ``file:`` URL means; None for anything else."""
    path = _as_a_store(url)
    return None if "://" in path else path


class _Place(NamedTuple):
    kind: str
    host: tuple[str, str]
    """A bucket or container, and the account that it belongs to where that is said."""
    parts: tuple[str, ...]


def _as_spark_reads(url: str) -> str:
    return "/" + url[5:].lstrip("/") if url.startswith("file:/") else url  # nothing is escaped


def _as_a_store(url: str) -> str:
    return unquote(urlsplit(url).path) if url.startswith("file:") else url


def _place(url: str) -> _Place:
    match = _SCHEME.match(url)
    if match is None:
        return _Place("file", ("", ""), _parts(os.path.realpath(url)))
    parts = urlsplit(url)
    scheme = match[1].lower()
    container, _, account = parts.netloc.rpartition("@")
    host = (container, account) if container else (parts.netloc, "")
    return _Place(_KINDS.get(scheme, scheme), host, _parts(unquote(parts.path)))


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _may_be_one(one: tuple[str, str], other: tuple[str, str]) -> bool:
    # az:// leaves the account to the settings, so it may be any
    return one[0] == other[0] and (one[1] == other[1] or not (one[1] and other[1]))
