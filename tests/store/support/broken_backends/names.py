"""Backends that follow a key wherever it leads."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from seamark.blobs.contract import Blob, Entry, Tag
from seamark.blobs.memory import MemoryBlobs
from tests.store.support.broken_backends.registry import breaks


@breaks("a_key_that_leads_out_of_the_root_is_refused_by_every_verb")
class AnyKeyIsRead(MemoryBlobs):
    def read(self, key: str, limit: int) -> Blob | None:
        value = self._values.get(key)
        return Blob(value[0], value[1]) if value else None


@breaks("a_key_that_leads_out_of_the_root_is_refused_by_every_verb")
class AnyKeyIsCreated(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        return self._set(key, data)


@breaks("a_key_that_leads_out_of_the_root_is_refused_by_every_verb")
class SomeAreDeletedBeforeTheKeyIsLookedAt(MemoryBlobs):
    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            super().delete([key])


@breaks("no_folder_above_the_root_is_listed")
class AnyFolderIsListed(MemoryBlobs):
    def entries(self, prefix: str) -> list[Entry]:
        return [entry for entry in super().entries("") if entry.key.startswith(prefix)]


@breaks("a_percent_sign_means_nothing")
class KeysAreDecoded(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        return self._set(unquote(key), data)
