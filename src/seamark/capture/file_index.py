"""Which files a checkpoint consists of, and where in the store each of them is.

A file is stored once: with the small files of its checkpoint, or in a shared object that later
checkpoints refer to. The part of the index that a checkpoint holds itself says what has changed
since its parent; a checkpoint without a parent holds the whole index. Files in the checkpoint's own
packs need no entry. How a part looks in the store is in ``seamark.store.index_parts``.

Tests: ``tests/capture/test_capture_and_restore.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import msgspec

from seamark.manifest.facts import SharedObject
from seamark.store.index_parts import (
    IndexEntry,
    IndexPart,
    check_folders,
    check_holders,
    decode_index,
)


class StoredFile(NamedTuple):
    """Where a file is, and what its bytes must be."""

    size: int
    sha256: bytes
    shared: SharedObject | None = None
    """The object that holds it; None when a checkpoint of the chain holds it itself."""
    is_packed: bool = False
    """Whether the object is a pack of several files, and not this file alone."""


@dataclass
class FileIndex:
    """The files of the newest checkpoint, by path."""

    files: dict[str, StoredFile] = field(default_factory=dict)
    operators: list[str] = field(default_factory=list)
    """The label of each stateful operator, which begins with its number."""

    def part(
        self,
        added: Mapping[str, StoredFile],
        removed: Iterable[str],
        operators: Iterable[str] = (),
    ) -> bytes:
        """What a checkpoint holds of the index: files in shared objects, and what is gone."""
        numbers: dict[str, int] = {}
        entries = [
            IndexEntry(
                path,
                numbers.setdefault(file.shared.name, len(numbers)),
                file.size,
                file.sha256,
                file.is_packed,
            )
            for path, file in added.items()
            if file.shared is not None
        ]
        return msgspec.msgpack.encode(
            IndexPart(list(numbers), entries, sorted(removed), sorted(operators))
        )

    def apply(self, part: bytes, objects: Iterable[SharedObject]) -> set[str]:
        """Go on to the next checkpoint of the chain, which names these objects; what it adds."""
        decoded, named = decode_index(part, objects)
        self.operators = decoded.operators
        self.__dict__.pop("_labels", None)
        for path in decoded.removed:
            self.files.pop(path, None)
        for entry in decoded.added:
            self.files[entry.path] = StoredFile(
                entry.size, entry.sha256, named[entry.object], entry.is_packed
            )
        return {entry.path for entry in decoded.added}

    def check(self) -> None:
        """:class:`DamageError` when files of several checkpoints do not go together."""
        check_holders(
            (path, file.shared, file.size, file.is_packed)
            for path, file in self.files.items()
            if file.shared is not None
        )
        check_folders(self.files)

    def label_of(self, path: str) -> str:
        """The operator that a state file belongs to."""
        number = path.split("/", 2)[1]
        return self._labels.get(number, number)

    @cached_property
    def _labels(self) -> dict[str, str]:
        return {label.partition("-")[0]: label for label in reversed(self.operators)}

    @property
    def shared_objects(self) -> list[SharedObject]:
        """Every object that holds one of the files."""
        return objects_of(self.files.values())

    @property
    def digests(self) -> dict[str, bytes]:
        """SHA-256 of each file."""
        return {path: file.sha256 for path, file in self.files.items()}

    @cached_property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())

    def after(
        self, removed: Iterable[str], added: Mapping[str, StoredFile], *, full: bool = False
    ) -> FileIndex:
        """The index of the next checkpoint. A full one keeps only what shared objects hold.

        This costs as much as what changes.
        """
        files = self.files.copy()
        size = self.size
        gone = [*removed]
        if full:
            gone += [path for path, file in files.items() if file.shared is None]
        for path in gone:
            if (file := files.pop(path, None)) is not None:
                size -= file.size
        for path, file in added.items():
            size += file.size - (files[path].size if path in files else 0)
        files.update(added)
        following = FileIndex(files, self.operators)
        following.size = size
        return following


def objects_of(files: Iterable[StoredFile]) -> list[SharedObject]:
    """Every object that holds one of these files, each once."""
    return list(dict.fromkeys(file.shared for file in files if file.shared is not None))


class PackUse(NamedTuple):
    """A pack, and how much of it is needed."""

    shared: SharedObject
    living: int
    """Bytes of the files in it that the index names, before compression."""

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return self.shared.size


def packs_in(index: FileIndex) -> list[PackUse]:
    """Every pack that holds a file of an index."""
    living: dict[SharedObject, int] = {}
    for file in index.files.values():
        if file.shared is not None and file.is_packed:
            living[file.shared] = living.get(file.shared, 0) + file.size
    return [PackUse(*each) for each in living.items()]
