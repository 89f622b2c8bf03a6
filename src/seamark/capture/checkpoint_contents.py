"""What a checkpoint holds of a directory: files placed by size, and read back along its chain.

Files of one operator are one pack. A small pack is inlined in the manifest, larger ones are chunks
of the sidecar, and what would make that too large becomes a partitioned state checkpoint of its
own.

A chain of snapshots may hold more than one history of a directory: the query was rolled back, or a
batch was replayed. So a restore takes exactly the files that the newest snapshot lists, in the
version that was stored last, and never chooses among what lies there.

Tests: ``tests/capture/test_capture_and_restore.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from seamark._common.json_documents import UNREADABLE
from seamark.capture.capture import FILE_LIST, LOG, Captured
from seamark.capture.readers import Contents
from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest, OperatorCheckpoint
from seamark.state import StateStore
from seamark.state.pack import PackBuilder, unpack_all
from seamark.store import CheckpointStore
from seamark.store.inspection import pruned_or
from seamark.store.partitioned_state import STATE_PREFIX, named_state

_WRITERS: Final = 3
"""Parts in memory at a time; each is hashed and written without Python's lock."""

_PARTITION: Final = re.compile(r"state/\d+/(\d+)/")


class Sizes(msgspec.Struct, frozen=True):
    """The limits between the three places."""

    inline_operator: int = 64 << 10
    inline_manifest: int = 256 << 10
    sidecar: int = 32 << 20


@dataclass(frozen=True)
class PlacedState:
    """What goes into a manifest, and into its sidecar."""

    operator_states: dict[str, OperatorCheckpoint]
    chunks: list[bytes]
    state_checkpoint: str | None
    size: int
    """Bytes as stored."""
    digests: dict[str, bytes]
    """SHA-256 of every file, by path."""


Part = tuple[str, int, Callable[[], Contents]]
"""Operator, partition, and how to read a share of its files."""


def place(
    captured: Captured,
    sizes: Sizes,
    states: StateStore,
    epoch: int,
    large: Iterable[Part] | None = None,
) -> PlacedState:
    """Pack what was captured. Only a partitioned state checkpoint is written here already.

    ``large`` is state that is known to be too much for one sidecar, and is read when it is its
    turn to be written.
    """
    digests: dict[str, bytes] = {}
    small = dict(captured.files)
    path, beside = None, 0
    if large is None and captured.size > sizes.sidecar:
        large = _parts({label: small.pop(label) for label in captured.files if label != LOG})
    if large is not None:
        path, beside = _partitioned(large, states, epoch, digests)
    packs = {label: _pack(contents, digests) for label, contents in small.items() if contents}
    placed: dict[str, OperatorCheckpoint] = {}
    chunks: list[bytes] = []
    inlined = offset = 0
    for label, pack in packs.items():
        if len(pack) <= sizes.inline_operator and inlined + len(pack) <= sizes.inline_manifest:
            placed[label] = OperatorCheckpoint.inline(pack)
            inlined += len(pack)
            continue
        placed[label] = OperatorCheckpoint.in_sidecar(offset, len(pack))
        chunks.append(pack)
        offset += len(pack)
    return PlacedState(placed, chunks, path, inlined + offset + beside, digests)


def _pack(contents: Contents, digests: dict[str, bytes], *, compress: bool = True) -> bytes:
    builder = PackBuilder()
    placed = builder.add_all(list(contents), list(contents.values()), compress=compress)
    digests.update(zip(contents, placed.digests, strict=True))
    return b"".join(builder.finish())


def _parts(files: Mapping[str, Contents]) -> Iterator[Part]:
    for label, contents in files.items():
        by_partition: dict[int, Contents] = {}
        for path, data in contents.items():
            by_partition.setdefault(partition_of(path), {})[path] = data
        for partition, part in by_partition.items():
            yield label, partition, partial(_given, part)


def _given(contents: Contents) -> Contents:
    return contents


def partition_of(path: str) -> int:
    """The partition that a state file belongs to."""
    match = _PARTITION.match(path)
    return int(match[1]) if match else 0


def _partitioned(
    parts: Iterable[Part], states: StateStore, epoch: int, digests: dict[str, bytes]
) -> tuple[str, int]:
    """Write parts side by side, each one packed; the state checkpoint's path and its size."""

    def write(part: Part) -> int:
        label, partition, read = part
        # Spark compresses its state files itself
        pack = _pack(read(), digests, compress=False)
        writer.put(label, partition, pack)
        return len(pack)

    with states.begin(epoch) as writer:
        with ThreadPoolExecutor(_WRITERS, "seamark-place") as pool:
            size = sum(pool.map(write, parts))
        written = writer.commit()
    return f"{STATE_PREFIX}{written.checkpoint_id}", size


Unpacked = tuple[str, Contents, dict[str, bytes]]
"""Label of an operator or of Spark's logs, some of its files, and the SHA-256 of each."""


def _unpacked(label: str, pack: bytes) -> Unpacked:
    entries = unpack_all(pack)
    contents = {entry.key: data for entry, data in entries}
    return label, contents, {entry.key: entry.sha256 for entry, _ in entries}


def contents_of(
    store: CheckpointStore,
    manifest: CheckpointManifest,
    *,
    only: str | None = None,
) -> Iterator[Unpacked]:
    """What one checkpoint holds itself, each file verified by its SHA-256.

    ``only`` is the label of one pack, and nothing else is read.
    """
    packs = {
        label: operator
        for label, operator in manifest.operator_states.items()
        if only in (None, label)
    }
    sidecar = b""
    if any(operator.external for operator in packs.values()):
        state_data = store.load_state_data(manifest.checkpoint_id)
        if state_data is None:  # taken for an empty one, its operators would begin from nothing
            gone = f"the state of checkpoint {manifest.checkpoint_id} is gone"
            raise pruned_or(store, manifest.checkpoint_id, DamageError(gone, where=store.url))
        sidecar = state_data
    for label, operator in packs.items():
        if operator.external:
            end = operator.external_offset + operator.external_length
            pack: bytes | None = sidecar[operator.external_offset : end]
        else:
            pack = operator.decode_inline()
        if pack:
            yield _unpacked(label, pack)
    if only is None and (partitioned := named_state(manifest)) is not None:
        for label, _, state in store.partitioned_state.restore_all(partitioned):
            yield _unpacked(label, state.snapshot)


# a checkpoint and the earlier ones that it builds on


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
