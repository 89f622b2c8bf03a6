"""Which service a table or store is in: what a login for the one may be sent to for the other.

Tests: ``tests/audit/test_logins.py``.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from seamark.blobs.addresses import OBJECT_STORES


def is_same_service(one: str, other: str) -> bool:
    """Whether two URLs are of buckets in one service, by the URLs alone.

    Settings say which server of S3 or Google that is. A URL of Azure may name the account, and with
    it the server: then it must be the same one.
    """
    here = _service_of(one)
    return here is not None and here == _service_of(other)


def is_path_or_bucket(url: str) -> bool:
    """Whether a URL, as pyiceberg reads it, is of this machine or of a bucket: no other server."""
    try:
        return urlsplit(url).scheme in ("", "file", *OBJECT_STORES)
    except ValueError:
        return False


def is_path_or_bucket_alone(url: str) -> bool:
    """The same, without a query or fragment: readers take settings from those of a bucket's URL.

    ``s3://bucket/key?s3_endpoint=host`` sends DuckDB to that host.
    """
    is_local = url.startswith(("/", "file:///"))
    return is_path_or_bucket(url) and (is_local or not {"?", "#"} & {*url})


def _service_of(url: str) -> tuple[str, str] | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    kind = OBJECT_STORES.get(parts.scheme.lower())
    if kind is None:
        return None
    account = parts.netloc.rpartition("@")[2] if "@" in parts.netloc else ""
    return kind, account.lower() if kind == "azure" else ""
