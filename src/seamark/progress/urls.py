"""What the URL of a progress store means: which backend, and where."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import quote, unquote_to_bytes, urlsplit

from seamark._common.checks import check_text
from seamark.errors import InvalidInputError
from seamark.progress.ledger import Ledger
from seamark.progress.memory import MemoryLedger
from seamark.progress.store import SourceCheckpointStore

_KNOWN: Final = "memory://, rocksdb:///abs/path, redis://host/0?namespace=name and rediss://…"


def open_progress(
    url: str, *, namespace: str | None = None, read_only: bool = False
) -> SourceCheckpointStore:
    """Open the store of source checkpoints at a URL.

    ``memory://`` (shared under a name: ``memory://name``), ``rocksdb:///abs/path``,
    ``redis://host:port/db`` and ``rediss://…``. A Redis store has a ``namespace``, given here or
    as ``?namespace=`` of the URL; its keys are in one slot of a cluster. Opening a store to write
    takes it: RocksDB refuses a second process, and on Redis the one before is fenced.
    ``read_only`` reads alongside a running writer and does not disturb it.
    """
    return SourceCheckpointStore(
        open_ledger(url, namespace=namespace, read_only=read_only), read_only=read_only
    )


def rocksdb_url(path: str | os.PathLike[str]) -> str:
    """The URL of a folder, whatever characters its path has."""
    return f"rocksdb://{quote(os.fsencode(os.path.abspath(path)))}"


def rocksdb_path(url: str) -> str:
    """The folder of a ``rocksdb:///abs/path``."""
    return os.fsdecode(unquote_to_bytes(urlsplit(url).path))


def open_ledger(
    url: str, *, namespace: str | None = None, read_only: bool = False, claim: bool = True
) -> Ledger:
    """The backend at a URL. Without ``claim``, several writers can share one Redis namespace:
    they do not fence each other, and of two sessions that overlap one has to be done again."""
    check_text(url, "a progress store's URL")
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises when it is none
    except ValueError:
        raise InvalidInputError("the progress store's URL cannot be read") from None
    scheme = parts.scheme.lower()
    if scheme in ("redis", "rediss"):
        from seamark.progress.redis.ledger import RedisLedger

        return RedisLedger.open(url, namespace, read_only=read_only, claim=claim)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise InvalidInputError(f"a {scheme}:// URL has no user, no query and no fragment")
    if scheme == "memory":
        return MemoryLedger.named(parts.netloc + parts.path.rstrip("/"))
    if scheme == "rocksdb":
        path = rocksdb_path(url)
        if parts.netloc or not path.startswith("/") or "\x00" in path:
            raise InvalidInputError(
                "a RocksDB URL looks like rocksdb:///abs/path",
                hint="Three slashes: the path begins with one.",
            )
        from seamark.progress.rocksdb.ledger import RocksDBLedger

        return RocksDBLedger(os.path.realpath(path), read_only=read_only)
    raise InvalidInputError(
        f"no progress store can be opened by {scheme or 'a path'}", hint=f"Known are {_KNOWN}."
    )
