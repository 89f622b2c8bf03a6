"""A checkpoint and the earlier ones that it builds on, read back file by file.

A chain of snapshots may hold more than one history of a directory: the query was rolled back, or a
batch was replayed. So a restore takes exactly the files that the newest snapshot lists, in the
version that was stored last, and never chooses among what lies there.

Tests: ``tests/capture/test_cyclic_parents.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from seamark._common.json_documents import UNREADABLE
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


# the list that a snapshot keeps of its files


class FileList(msgspec.Struct, frozen=True):
    """The list in a snapshot's own log pack."""

    taken: dict[str, str]
    """Path → version of the file, as reported by its place, or the SHA-256 of a log."""
    needed: list[str]
    """Every file of the batch."""


def file_list_in(logs: Contents) -> FileList | None:
    """The list among the logs of a checkpoint; None when they have none."""
    data = logs.get(FILE_LIST)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=FileList)
    except UNREADABLE as error:
        raise DamageError(f"the list of a snapshot's files cannot be read: {error}") from None


def logs_of(store: CheckpointStore, manifest: CheckpointManifest) -> Contents:
    """The logs that one checkpoint holds itself; nothing else is read."""
    return {
        path: data
        for _, contents, _ in contents_of(store, manifest, only=LOG)
        for path, data in contents.items()
    }


def needed_files(store: CheckpointStore, chain: Sequence[CheckpointManifest]) -> list[str] | None:
    """What a restore of the newest of a chain writes; None when that is not a snapshot's chain."""
    for manifest in reversed(chain):
        # a checkpoint that a rollback of the store has made holds nothing itself
        if manifest.operator_states:
            listed = file_list_in(logs_of(store, manifest))
            return None if listed is None else listed.needed
    return None
