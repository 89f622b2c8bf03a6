"""The files that a checkpoint consists of: how large they are, where they are, which are new.

Tests: ``tests/pipeline/test_costs.py``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from seamark.capture.checkpoint_contents import Chain
from seamark.capture.file_index import FileIndex
from seamark.checkpoint_dir.state_files import is_state
from seamark.errors import CheckpointNotFoundError, DamageError
from seamark.manifest import CheckpointManifest
from seamark.manifest.facts import SharedObject
from seamark.reports.document import Document
from seamark.store import CheckpointStore
from seamark.store.index_parts import LOG

_PARTITION: Final = re.compile(r"state/[0-9]+/([0-9]{1,9})/")


@dataclass
class OperatorFiles:
    """What is known of one operator's state over a chain of checkpoints."""

    places: set[str] = field(default_factory=set)
    new_bytes: int = 0
    """Stored by the newest checkpoint itself."""
    beside_bytes: int = 0
    """The share of that which is partitioned state."""
    stored_bytes: int = 0
    """Stored by all of the chain."""
    files: dict[str, int] = field(default_factory=dict)
    """Unpacked size of each file that a restore writes."""
    by_partition: dict[int, int] = field(default_factory=dict)

    def document(self) -> Document:
        """What is printed as JSON."""
        partitions = self.by_partition or _partition_sizes(self.files)
        return {
            "place": " and ".join(sorted(self.places)),
            "new_bytes": self.new_bytes,
            "stored_bytes": self.stored_bytes,
            "files": len(self.files) or None,
            "bytes": sum(self.files.values()) if self.files else self.stored_bytes,
            "partitions": {str(number): size for number, size in sorted(partitions.items())},
        }


def _partition_sizes(files: dict[str, int]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for path, size in files.items():
        if match := _PARTITION.match(path):
            sizes[int(match[1])] = sizes.get(int(match[1]), 0) + size
    return sizes


@dataclass(frozen=True)
class IndexedFiles:
    """The files of a checkpoint that has an index, and the objects that hold them."""

    index: FileIndex
    new: Collection[str]
    """Paths that the checkpoint lists itself."""
    new_objects: frozenset[SharedObject]
    """Objects that were stored for it."""

    @classmethod
    def of(cls, store: CheckpointStore, chain: Chain, index: FileIndex) -> IndexedFiles:
        """What an index says of the newest checkpoint of a chain."""
        return cls(index, chain.new, _new_objects(store, chain.manifests[-1]))

    @property
    def object_bytes(self) -> int:
        """Bytes of the objects that a restore reads, with what is dead in them."""
        return sum(each.size for each in self.index.shared_objects)

    @property
    def new_object_bytes(self) -> int:
        """Bytes of the objects that were stored for it."""
        return sum(each.size for each in self.new_objects)

    @property
    def referenced_bytes(self) -> int:
        """Bytes of the objects that a restore reads and that were stored before it."""
        return sum(each.size for each in set(self.index.shared_objects) - self.new_objects)

    def by_operator(self) -> dict[str, OperatorFiles]:
        """The files of each operator."""
        operators = {label: OperatorFiles() for label in (LOG, *self.index.operators)}
        for path, file in self.index.files.items():
            is_of_operator = is_state(path)
            label = self.index.label_of(path) if is_of_operator else LOG
            about = operators.setdefault(label, OperatorFiles())
            about.places.add("inline" if file.shared is None else "shared")
            about.stored_bytes += file.size
            is_new = path in self.new and (file.shared is None or file.shared in self.new_objects)
            about.new_bytes += file.size if is_new else 0
            about.files[path] = file.size
            if is_of_operator:
                partition = int(path.split("/")[2])
                about.by_partition[partition] = about.by_partition.get(partition, 0) + file.size
        return operators


def _new_objects(store: CheckpointStore, manifest: CheckpointManifest) -> frozenset[SharedObject]:
    """Of the objects that a checkpoint names those that were stored for it.

    One that builds on no other names all that it needs. What is new in it is told by the checkpoint
    before it; when that is gone, nothing tells.
    """
    named = frozenset(manifest.shared_objects)
    if sum(each.size for each in named) == manifest.added_bytes:
        return named
    before = max((i for i in store.list_ids() if i < manifest.checkpoint_id), default=None)
    if manifest.added_bytes == 0 or before is None:
        return frozenset()
    try:
        older = store.load_by_id(before)
        if older is None:
            return frozenset()
        index = Chain.load(store, older, with_contents=False).index
    except (CheckpointNotFoundError, DamageError):
        return frozenset()
    return named - frozenset(index.shared_objects) if index is not None else named
