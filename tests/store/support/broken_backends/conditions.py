"""Backends that break a rule about creating and replacing."""

from __future__ import annotations

import time
from collections.abc import Hashable

from seamark.blobs.contract import Blob, KeyExists, Tag, TagMismatch
from seamark.blobs.memory import MemoryBlobs
from tests.store.support.broken_backends.registry import breaks


@breaks("a_taken_key_is_refused_and_keeps_its_value")
class CreateOverwrites(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        return self._set(key, data)


@breaks("a_taken_key_is_refused_and_keeps_its_value")
class CreateKeepsTheFirstInSilence(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        there = self.read(key, 1 << 40)
        return there.tag if there else super().create(key, data)


@breaks("a_taken_key_is_refused_and_keeps_its_value")
class CreateRefusesButWrites(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        taken = key in self._values
        tag = self._set(key, data)
        if taken:
            raise KeyExists(key)
        return tag


@breaks("creating_the_same_bytes_again_is_refused_too")
class CreateAcceptsTheSameBytes(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        there = self.read(key, 1 << 40)
        return there.tag if there and there.data == data else super().create(key, data)


@breaks("the_version_that_was_read_can_be_replaced")
class ReplaceDoesNothing(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        return tag


@breaks("a_hint_is_replaced_too")
class HintsAreNotWritten(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        return super().replace(key, data, tag) if durable else tag


@breaks("another_value_has_another_tag")
class ReplaceKeepsTheTag(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        super().replace(key, data, tag)
        assert isinstance(tag, int)
        self._values[key] = (data, tag, time.time())
        return tag


@breaks("another_value_has_another_tag")
class EveryReadHasItsOwnTag(MemoryBlobs):
    def read(self, key: str, limit: int) -> Blob | None:
        blob = super().read(key, limit)
        return blob and Blob(blob.data, self._set(key, blob.data))


@breaks("a_stale_tag_is_refused_and_changes_nothing")
class ReplaceIgnoresTheTag(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        if key not in self._values:
            raise TagMismatch(key)
        return self._set(key, data)


@breaks("a_stale_tag_is_refused_and_changes_nothing")
class ReplaceRefusesButWrites(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        try:
            return super().replace(key, data, tag)
        except TagMismatch:
            self._set(key, data)
            raise


@breaks("a_missing_value_is_not_brought_back_by_a_replace")
class ReplaceCreatesWhatIsMissing(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        return super().replace(key, data, tag) if key in self._values else self._set(key, data)


@breaks("the_tag_of_a_create_serves_a_replace")
class CreateGivesNoTag(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        super().create(key, data)
        return None


@breaks("the_tag_of_a_replace_serves_the_next_one")
class ReplaceGivesTheOldTag(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        super().replace(key, data, tag)
        return tag


@breaks("a_tag_dies_with_its_value")
class TagsCountFromOneAgain(MemoryBlobs):
    def _set(self, key: str, data: bytes) -> int:
        version = self._values[key][1] + 1 if key in self._values else 1
        self._values[key] = (data, version, time.time())
        return version


@breaks("the_version_of_a_write_is_the_one_that_stat_tells")
class VersionOfIsAnother(MemoryBlobs):
    def version_of(self, tag: Tag) -> Hashable:
        return f"version {tag}"
