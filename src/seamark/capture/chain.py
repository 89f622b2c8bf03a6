"""A checkpoint and the earlier ones that it builds on, read back file by file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from seamark.capture.capture import FILE_LIST, LOG
from seamark.capture.placement import contents_of
from seamark.capture.readers import Contents
from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore
from seamark.store.inspection import pruned_or


def chain_of(store: CheckpointStore, manifest: CheckpointManifest) -> list[CheckpointManifest]:
    """A checkpoint and what it builds on, oldest first; :class:`DamageError` for a broken chain."""
    chain = [manifest]
    while (parent_id := chain[-1].builds_on) is not None:
        parent = store.load_by_id(parent_id)
        if parent is None:
            gone = f"parent {parent_id} of checkpoint {chain[-1].checkpoint_id} is gone"
            raise pruned_or(store, manifest.checkpoint_id, DamageError(gone, where=store.url))
        chain.append(parent)
    return chain[::-1]


@dataclass
class Chain:
    """A checkpoint and what it builds on, oldest first, and what was read of it."""

    manifests: list[CheckpointManifest]
    digests: dict[str, bytes] = field(default_factory=dict)
    logs: Contents = field(default_factory=dict)
    size: int = 0

    @property
    def leaves(self) -> list[str]:
        """The source of each line of the offset log, when the newest of them was saved."""
        return self.manifests[-1].leaves or []

    @property
    def batch(self) -> int:
        """The batch that the newest checkpoint of the chain is of."""
        return self.manifests[-1].batch

    def read(self, store: CheckpointStore) -> Iterator[Contents]:
        """Every file, verified; what they are is noted on the way."""
        self.digests, self.logs, self.size = {}, {}, 0
        for manifest in self.manifests:
            for label, contents, digests in contents_of(store, manifest):
                self.digests |= digests
                files = {path: data for path, data in contents.items() if path != FILE_LIST}
                self.size += sum(map(len, files.values()))
                if label == LOG:
                    self.logs |= files
                yield files
