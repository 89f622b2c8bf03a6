"""Whether a URL can be that of a live view."""

from __future__ import annotations

from seamark.errors import InvalidInputError
from seamark.progress.redis_client import check_url


def is_redis(url: str) -> bool:
    """Whether the view is in Redis, and not in RocksDB.

    :class:`InvalidInputError` for any other URL. A password that is not quoted would else be told
    as a part of the path.
    """
    scheme = url.partition(":")[0].lower()
    if scheme in ("redis", "rediss"):
        check_url(url)
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
