"""Where a Delta table may be: a path, or a bucket of a cloud.

``deltalake`` speaks to servers of many other kinds too, and connects to whatever a URL names.

Tests: ``tests/sources/test_delta.py``.
"""

from __future__ import annotations

import re
from typing import Final

from seamark._redaction import without_user
from seamark.errors import InvalidInputError

_BUCKETS: Final = ("s3://", "s3a://", "gs://", "az://", "azure://", "adl://", "abfs://", "abfss://")
_LOCAL_URL: Final = re.compile(r"file:(?:/[^/]|//(?:localhost)?/[^/])", re.IGNORECASE)
_IGNORED: Final = re.compile(r"^[\x00-\x20]+|[\t\r\n]")
"""What a reader of URLs leaves out of them."""
_SCHEME: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*:")


def is_bucket(table: str) -> bool:
    """Whether a table is in a bucket, or container, of S3, Google Cloud Storage or Azure."""
    return table.lower().startswith(_BUCKETS)


def is_known_address(table: str) -> bool:
    """Whether a table is at a path or in a bucket, and not at a server of another kind."""
    if is_bucket(table) or _LOCAL_URL.match(table):
        return True
    return not _SCHEME.match(_IGNORED.sub("", table))


def unknown_address(table: str) -> InvalidInputError:
    """The error for a table that is anywhere else."""
    return InvalidInputError(
        f"no Delta table can be at {without_user(table)}",
        hint="Give a path, or a URL with s3://, gs:// or abfss://.",
    )
