"""Whether a URL can be that of a live view."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from seamark.errors import InvalidInputError

_DATABASE: Final = re.compile(r"/?\d*")


def is_redis(url: str) -> bool:
    """Whether the view is in Redis, and not in RocksDB.

    :class:`InvalidInputError` for any other URL. A password that is not quoted would else be told
    as a part of the path.
    """
    scheme = url.partition(":")[0].lower()
    if scheme in ("redis", "rediss"):
        if not _can_be_read(url):
            raise InvalidInputError(
                "this Redis URL cannot be read; one is redis://user:password@host:6379/0",
                hint="In a password, / ? # and @ are written as %2F %3F %23 and %40.",
            )
        return True
    if scheme != "rocksdb":
        raise InvalidInputError(
            "a KeyValueSink writes to rocksdb:///abs/path or redis://host:port/db",
            hint="For a try-out in memory there is MemorySink.",
        )
    if not url.lower().startswith("rocksdb:///") or "#" in url or "?" in url:
        raise InvalidInputError(
            "a RocksDB URL looks like rocksdb:///abs/path, with nothing behind it",
            hint="seamark.progress.rocksdb_url(path) makes one of any path.",
        )
    return False


def _can_be_read(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.port != 0 and _DATABASE.fullmatch(parts.path) is not None
    except ValueError:
        return False
