"""What a checkpoint holds of a directory: files placed by size, and read back along its chain.

Files of one operator are one pack. A small pack is inlined in the manifest. All larger ones
together become one shared object, which later checkpoints can refer to. Spark's logs and the index
go into the sidecar when they are too large for the manifest.

A chain of snapshots may hold more than one history of a directory: the query was rolled back, or a
batch was replayed. So a restore takes exactly the files that the index or the newest snapshot
lists, in the version that was stored last, and never chooses among what lies there.

Tests: ``tests/capture/test_capture_and_restore.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from seamark import limits, limits_by_size
from seamark._common.json_documents import UNREADABLE
from seamark.capture.epoch_files import FILE_LIST, Captured
from seamark.capture.file_index import FileIndex, StoredFile, objects_of
from seamark.capture.movers import Contents, ObjectWriter, store_packed
from seamark.capture.unpack_budget import UnpackBudget
from seamark.checkpoint_dir.state_files import is_state
from seamark.errors import DamageError, RefusedError
from seamark.manifest import CheckpointManifest, OperatorCheckpoint
from seamark.manifest.facts import SharedObject
from seamark.state import ReadStates
from seamark.state.lcb1 import BATCH_LIMIT
from seamark.state.pack import PackBuilder, PackedEntry, read_index, unpack_all, unpack_entry
from seamark.store import CheckpointStore
from seamark.store.index_parts import INDEX, LOG, check_path, find_index
from seamark.store.inspection import pruned_or
from seamark.store.references import named_state


class Sizes(msgspec.Struct, frozen=True):
    """What fits into a manifest."""

    inline_operator: int = 64 << 10
    inline_manifest: int = 256 << 10


@dataclass(frozen=True, kw_only=True)
class PlacedState:
    """What goes into a manifest, and into its sidecar."""

    operator_states: dict[str, OperatorCheckpoint]
    chunks: list[bytes]
    shared_objects: list[SharedObject]
    """What the manifest has to name."""
    size: int
    """Bytes that were stored for it."""
    added_bytes: int
    """Those of them that are in shared objects."""
    restore_size: int
    """Bytes of all files that a restore writes."""
    files: dict[str, StoredFile]
    """Where each of the small files is."""


def place(captured: Captured, sizes: Sizes, shared: ObjectWriter, index: FileIndex) -> PlacedState:
    """Pack what was captured, on top of the parent's files. Shared objects are written here."""
    files: dict[str, StoredFile] = {}
    placed: dict[str, OperatorCheckpoint] = {}
    together: Contents = {}
    inlined = 0
    for label, contents in captured.files.items():
        if label == LOG or not contents:
            continue
        if sum(map(len, contents.values())) <= sizes.inline_operator:
            pack, digests = _pack(contents)
            if inlined + len(pack) <= sizes.inline_manifest:
                placed[label] = OperatorCheckpoint.inline(pack)
                inlined += len(pack)
                files |= digests
                continue
        together |= contents
    packed = store_packed(shared, together) if together else {}
    stored = {**captured.stored, **packed}
    following = index.after(captured.removed, stored, full=captured.is_full)
    added = stored
    if captured.is_full:
        added = {path: file for path, file in following.files.items() if file.shared is not None}
    logs = dict(captured.files.get(LOG, {}))
    operators = [label for label in captured.files if label != LOG]
    logs[INDEX] = index.part(added, () if captured.is_full else captured.removed, operators)
    pack, digests = _pack(logs, plain=[*_shrinking_too_much(logs)])
    chunks: list[bytes] = []
    if len(pack) <= sizes.inline_operator and inlined + len(pack) <= sizes.inline_manifest:
        placed[LOG] = OperatorCheckpoint.inline(pack)
    else:
        placed[LOG] = OperatorCheckpoint.in_sidecar(0, len(pack))
        chunks.append(pack)
    del digests[INDEX]
    files |= digests
    added_bytes = sum(each.size for each in objects_of(stored.values()))
    return PlacedState(
        operator_states=placed,
        chunks=chunks,
        shared_objects=objects_of(added.values()),
        size=inlined + len(pack) + added_bytes,
        added_bytes=added_bytes,
        restore_size=following.after((), files).size,
        files=files | packed,
    )


def _pack(
    contents: Contents, *, plain: Collection[str] = ()
) -> tuple[bytes, dict[str, StoredFile]]:
    """A pack, in which the files ``plain`` are not compressed; :class:`RefusedError` if the files
    are too large for one."""
    if (size := sum(map(len, contents.values()))) > BATCH_LIMIT:
        large = max(contents, key=lambda path: len(contents[path]))
        raise RefusedError(
            f"{len(contents)} files have {size} bytes, and {BATCH_LIMIT} is the most for a pack",
            where=f"{large} alone has {len(contents[large])}",
        )
    builder = PackBuilder()
    files: dict[str, StoredFile] = {}
    for compress in (True, False):
        part = {path: data for path, data in contents.items() if (path not in plain) == compress}
        digests = builder.add_all([*part], [*part.values()], compress=compress).digests
        files |= {
            path: StoredFile(len(data), digest)
            for (path, data), digest in zip(part.items(), digests, strict=True)
        }
    return b"".join(builder.finish()), files


def _shrinking_too_much(logs: Contents) -> Iterator[str]:
    """The index and the list of files, if they would shrink by more than a reader allows: equal
    files, long names."""
    for path in (INDEX, FILE_LIST):
        if len(logs.get(path, b"")) > limits.INDEX_FLOOR:
            packed = PackBuilder().add(path, logs[path])
            if limits_by_size.index_shrinks_too_much(packed.size, packed.length):
                yield path


Unpacked = tuple[str, Contents, dict[str, bytes]]
"""Label of an operator or of Spark's logs, some of its files, and the SHA-256 of each."""


def _unpacked(
    label: str, pack: bytes, budget: UnpackBudget, paths: Collection[str] | None = None
) -> Unpacked:
    listed = [entry for entry in read_index(pack, len(pack)) if paths is None or entry.key in paths]
    for entry in listed:
        if entry.key == FILE_LIST and limits_by_size.index_shrinks_too_much(
            entry.size, entry.length
        ):
            raise DamageError(f"the list of a snapshot's files claims {entry.size} bytes")
    budget.spend(listed, len(pack))
    entries = unpack_all(pack, only=paths)
    contents = {entry.key: data for entry, data in entries}
    return label, contents, {entry.key: entry.sha256 for entry, _ in entries}


def contents_of(
    store: CheckpointStore,
    manifest: CheckpointManifest,
    *,
    only: str | None = None,
    paths: Collection[str] | None = None,
    budget: UnpackBudget | None = None,
    known: ReadStates | None = None,
) -> Iterator[Unpacked]:
    """What one checkpoint holds itself, each file verified by its SHA-256.

    ``only`` is the label of one pack, and nothing else is read; of all files but those at ``paths``
    nothing is unpacked. ``budget`` and ``known`` are those of the chain.
    """
    budget = budget or UnpackBudget()
    for label, pack in packs_of(store, manifest, only=only, known=known):
        yield _unpacked(label, pack, budget, paths)


def packs_of(
    store: CheckpointStore,
    manifest: CheckpointManifest,
    *,
    only: str | None = None,
    known: ReadStates | None = None,
) -> Iterator[tuple[str, bytes]]:
    """The packs that one checkpoint holds itself, by their labels.

    ``known`` is what was read of those it builds on: partitioned state that was in them as well is
    not given again.
    """
    packs = {
        label: operator
        for label, operator in manifest.operator_states.items()
        if only in (None, label)
    }
    sidecar = b""
    if any(operator.external for operator in packs.values()):
        if (manifest.state_bytes or 0) > limits.LARGEST_FILE:
            large = f"{manifest.state_bytes} bytes of state, and {limits.LARGEST_FILE} is the most"
            raise DamageError(f"checkpoint {manifest.checkpoint_id} has {large}", where=store.url)
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
            yield label, pack
    if only is None and (partitioned := named_state(manifest)) is not None:
        for label, _, state in store.partitioned_state.restore_all(partitioned, known):
            yield label, state.snapshot


def _entry_of(pack: bytes, entry: PackedEntry) -> bytes:
    return unpack_entry(pack[entry.offset : entry.offset + entry.length], entry)


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
    index: FileIndex | None = None
    """Where its files are; None for a chain from before there were indexes, whose checkpoints hold
    all of their files themselves."""
    small: Contents = field(default_factory=dict)
    """What the checkpoints of a chain with an index hold themselves."""
    new: set[str] = field(default_factory=set)
    """What the newest checkpoint has added to the index."""
    digests: dict[str, bytes] = field(default_factory=dict)
    logs: Contents = field(default_factory=dict)
    size: int = 0

    @classmethod
    def load(
        cls, store: CheckpointStore, newest: CheckpointManifest, *, with_contents: bool = True
    ) -> Chain:
        """The chain of a checkpoint, and its index if it has one. Shared objects are not read.

        Unless ``with_contents`` only the index is unpacked: files are known by size and SHA-256.
        """
        chain = cls(chain_of(store, newest))
        first = packs_of(store, chain.manifests[0], only=LOG)
        if any(find_index(read_index(pack, len(pack))) is not None for _, pack in first):
            chain._read_index(store, with_contents=with_contents)
        return chain

    def _read_index(self, store: CheckpointStore, *, with_contents: bool) -> None:
        index, budget, indexes = FileIndex(), UnpackBudget(), UnpackBudget()
        known = ReadStates()
        for manifest in self.manifests:
            own: dict[str, StoredFile] = {}
            self.new = set()
            for label, pack in packs_of(store, manifest, known=known):
                entries = {entry.key: entry for entry in read_index(pack, len(pack))}
                entries.pop(FILE_LIST, None)
                if label == LOG and (part := find_index(entries.values())) is not None:
                    indexes.spend([part], part.length)
                    self.new = index.apply(_entry_of(pack, part), manifest.shared_objects)
                    del entries[INDEX]
                own |= {check_path(p): StoredFile(e.size, e.sha256) for p, e in entries.items()}
                if with_contents:
                    self._keep(_unpacked(label, pack, budget), entries.keys())
            index.files |= own
            self.new |= own.keys()
        index.files = {p: f for p, f in index.files.items() if not self._is_past(p)}
        index.check()
        self.small = {
            path: data
            for path, data in self.small.items()
            if (file := index.files.get(path)) is not None and file.shared is None
        }
        self.logs = {p: d for p, d in self.logs.items() if p in self.small}
        self.index, self.digests, self.size = index, index.digests, index.size

    def _keep(self, unpacked: Unpacked, paths: Collection[str]) -> None:
        label, contents, _ = unpacked
        files = {path: contents[path] for path in paths}
        self.small |= files
        self.logs |= files if label == LOG else {}

    def _is_past(self, path: str) -> bool:
        """Whether a log entry is of a batch before those that a restart needs."""
        log, _, number = path.partition("/")
        return log in ("offsets", "commits") and number not in (
            str(self.batch),
            str(self.batch - 1),
        )

    @property
    def expected(self) -> dict[str, bytes]:
        """SHA-256 of each file that a kept directory must have: all but the small logs."""
        return {
            path: digest
            for path, digest in self.digests.items()
            if is_state(path)
            or (self.index is not None and self.index.files[path].shared is not None)
        }

    def bytes_of(self, paths: Iterable[str]) -> int:
        """Bytes of these files; 0 without an index, which alone knows them."""
        if self.index is None:
            return 0
        return sum(self.index.files[path].size for path in paths)

    @property
    def small_state(self) -> Contents:
        """The state among what the checkpoints hold themselves."""
        return {path: data for path, data in self.small.items() if is_state(path)}

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
        budget, known = UnpackBudget(), ReadStates()
        for manifest in self.manifests:
            unpacked = contents_of(store, manifest, budget=budget, known=known)
            for label, contents, digests in unpacked:
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


def file_list_of(store: CheckpointStore, manifest: CheckpointManifest) -> FileList | None:
    """The list that a checkpoint holds itself, None when it has none; nothing else is unpacked."""
    own = contents_of(store, manifest, only=LOG, paths=(FILE_LIST,))
    data = next((contents[FILE_LIST] for _, contents, _ in own if contents), None)
    return None if data is None else file_list_in(data)


def file_list_in(data: bytes) -> FileList:
    """The list of a snapshot's files; :class:`DamageError` when it cannot be read."""
    try:
        return msgspec.json.decode(data, type=FileList)
    except UNREADABLE as error:
        raise DamageError(f"the list of a snapshot's files cannot be read: {error}") from None


def needed_files(store: CheckpointStore, chain: Sequence[CheckpointManifest]) -> list[str] | None:
    """What a restore of the newest of a chain writes; None when that is not a snapshot's chain."""
    for manifest in reversed(chain):
        # a checkpoint that a rollback of the store has made holds nothing itself
        if manifest.operator_states:
            listed = file_list_of(store, manifest)
            return None if listed is None else listed.needed
    return None
