"""A checkpoint directory on S3, Google Cloud Storage or Azure, without Spark and without Hadoop.

Tests: ``tests/checkpoint_dir/test_places.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from seamark.blobs.addresses import open_blobs
from seamark.blobs.contract import Buffer, KeyExists
from seamark.blobs.streams import PIECE
from seamark.checkpoint_dir.files import largest_read
from seamark.checkpoint_dir.places.directory import Directory, FileEntry, newest_of
from seamark.errors import InvalidInputError
from seamark.limits import LARGEST_FILE


class ObjectDirectory(Directory):
    """Objects below a prefix."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._given = url.rstrip("/")
        self._options = dict(options)
        # Spark relies on no conditions here, so none are asked for
        self._blobs = open_blobs(self._given, self._options or None, conditional=False)
        self.url = self._blobs.url
        # Hadoop's connector for S3 goes by another name than everybody else
        self.uri = self._given.replace("s3://", "s3a://", 1)

    def listing(self) -> dict[str, FileEntry]:
        return {
            entry.key: FileEntry(entry.size, entry.modified, f"{entry.version}-{entry.size}")
            for entry in self._blobs.entries("")
            if not entry.key.endswith("/")  # a marker for a folder
        }

    def newest_commit(self) -> int | None:
        below = "commits/"
        return newest_of(e.key.removeprefix(below) for e in self._blobs.entries(below))

    def read(self, path: str) -> bytes:
        blob = self._blobs.read(path, largest_read(path))
        if blob is None:
            raise FileNotFoundError(path)
        return blob.data

    def stream(self, path: str) -> Iterator[Buffer]:
        """See :class:`Directory`."""
        stream = self._blobs.stream(path, PIECE)
        if stream is None:
            raise FileNotFoundError(path)
        yield from stream

    def write(self, path: str, data: bytes) -> None:
        if self._blobs.max_put is not None and len(data) > self._blobs.max_put:
            self._blobs.create_stream(path, [data])
            return
        try:
            self._blobs.create(path, data)
        except KeyExists:
            there = self._blobs.read(path, LARGEST_FILE)
            if there is not None and there.data != data:
                self._blobs.replace(path, data, there.tag)

    def remove(self, paths: Iterable[str]) -> None:
        self._blobs.delete(list(paths))

    def sibling(self, suffix: str) -> ObjectDirectory:
        if "/" not in self._given.partition("://")[2]:
            raise InvalidInputError(
                "nothing can be put next to a whole bucket", where=self.url, hint="Use a prefix."
            )
        return ObjectDirectory(f"{self._given}{suffix}", self._options)

    def close(self) -> None:
        self._blobs.close()
