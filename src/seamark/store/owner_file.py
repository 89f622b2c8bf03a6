"""``owner.json`` as it is read: very often, also once for each doubtful checkpoint of a listing.

It seldom changes. One that is large is not read again as long as its version stays the same.

Tests: ``tests/store/test_owner_file.py``.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

from seamark.blobs.contract import Blob, Blobs, Tag
from seamark.errors import SeamarkError
from seamark.store.layout import OWNER_KEY
from seamark.store.owner import Owner, decode_owner

OWNER_LIMIT: Final = 16 << 20
_LARGE: Final = 64 << 10
"""From so many bytes on, asking for the version costs less than reading."""


class _Known(NamedTuple):
    blob: Blob
    owner: Owner
    version: Hashable | None
    """Of before the reading, so it may be older than what was read, and never newer."""


class OwnerFile:
    """``owner.json`` of one store."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._known: _Known | None = None

    def read(self) -> tuple[Owner, Tag] | None:
        """What it says now, and its tag; None when there is none."""
        known, version = self._known, None
        if known is not None and len(known.blob.data) >= _LARGE:
            entry = self._blobs.stat(OWNER_KEY)
            version = None if entry is None else entry.version
            if version is not None and version == known.version:
                return known.owner, known.blob.tag
        blob = self._blobs.read(OWNER_KEY, OWNER_LIMIT)
        if blob is None:
            return None
        if known is not None and blob.data == known.blob.data:
            owner = known.owner
        else:
            try:
                owner = decode_owner(blob.data)
            except SeamarkError as error:
                error.where = error.where or self._blobs.url
                raise
        self._known = _Known(blob, owner, version)
        return owner, blob.tag
