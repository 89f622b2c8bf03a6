"""What a new checkpoint of a directory consists of: files that the chain lacks, and its manifest.

Large files are stored on the way and never held as a whole.

Tests: ``tests/native/test_snapshot.py``.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from seamark._common.checks import U16_MAX
from seamark._common.json_documents import UNREADABLE
from seamark.capture.batches import BatchAt
from seamark.capture.checkpoint_contents import Chain, FileList, PlacedState, file_list_of
from seamark.capture.epoch_files import FILE_LIST, Captured
from seamark.capture.file_index import FileIndex, StoredFile
from seamark.capture.movers import LARGE, PACK_BYTES, Contents, DriverMover
from seamark.capture.uploads import Uploads
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.state_files import MissingVersion, version_of
from seamark.errors import CheckpointNotFoundError, DamageError
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint, InFlightRecord
from seamark.spark.batch_log import Plan, readable_offset
from seamark.store import CheckpointStore
from seamark.store.index_parts import LOG
from seamark.store.inspection import examine
from seamark.store.validation import CheckpointKind, SeenState

_AT_A_TIME: Final = 8
PLAN: Final = "plan"
"""The name under which the batch in flight is kept."""
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"


@dataclass(frozen=True)
class NewFiles:
    """What a checkpoint adds to the store."""

    captured: Captured
    count: int


def stores_at_once(tree: Tree, at: BatchAt, held: HeldFiles) -> bool:
    """Whether there is so much to read that some of it is stored before all of it was read."""
    sizes = [tree.size(path) or 0 for path in at.state_paths if not _is_held(tree, held, path)]
    return max(sizes, default=0) >= LARGE or sum(sizes) >= PACK_BYTES


def oldest_first(tree: Tree, at: BatchAt, held: HeldFiles) -> list[str]:
    """The state files that ``held`` lacks, those first that Spark removes first."""
    new = (path for path in at.state_paths if not _is_held(tree, held, path))
    return sorted(new, key=lambda path: version_of(path) or 0)


def read_new(
    tree: Tree,
    at: BatchAt,
    held: HeldFiles,
    uploads: Uploads,
    advance: Callable[[int], None] | None,
    *,
    full: bool,
) -> NewFiles:
    """The files of a batch that ``held`` lacks; large ones are stored on the way.

    A full one also has what the checkpoints of the chain hold themselves.
    """
    mover = DriverMover(tree, uploads, threads=_AT_A_TIME, advance=advance)
    files: dict[str, Contents] = {}
    stored: dict[str, StoredFile] = {}
    count = 0
    for label, paths in _state_by_operator(at).items():
        new = [path for path in paths if not _is_held(tree, held, path)]
        taken = mover.take([(path,) for path in new])
        if len(taken) < len(new):
            lost = min(set(new) - {file.path for file in taken})
            raise MissingVersion(f"{lost} is not there", where=tree.directory.url)
        count += len(new)
        stored |= {file.path: file.stored for file in taken if file.stored is not None}
        files[label] = {file.path: file.data for file in taken if file.is_held}
        if full:
            again = {path: held.small[path] for path in paths if path in held.small}
            files[label] = again | files[label]
    logs = _logs(at, held, full=full)
    count += len(logs)
    needed = set(at.paths)
    listed = at.paths if full else [*stored, *(p for c in files.values() for p in c)]
    versions = {path: tree.entries[path].version for path in listed if path in tree.entries}
    versions |= {path: _digest(data) for path, data in logs.items()}
    logs[FILE_LIST] = msgspec.json.encode(FileList(versions, at.paths))
    files[LOG] = logs
    partitions = max((need.folder.partition + 1 for need in at.needs), default=0)
    captured = Captured(
        files=files,
        stored=stored,
        removed=frozenset(path for path in held.index.files if path not in needed),
        is_full=full,
        versions=[at.batch + 1] * partitions,
    )
    return NewFiles(captured, count)


def _state_by_operator(at: BatchAt) -> dict[str, list[str]]:
    paths: dict[str, list[str]] = {}
    for need in at.needs:
        paths.setdefault(need.operator.label, []).extend(need.paths)
    return paths


def _is_held(tree: Tree, held: HeldFiles, path: str) -> bool:
    entry = tree.entries.get(path)
    return entry is not None and held.versions.get(path) == entry.version


def _logs(at: BatchAt, held: HeldFiles, *, full: bool) -> Contents:
    always = ("metadata", "offsets/", "commits/")
    return {
        path: data
        for path, data in at.logs.items()
        if full or path.startswith(always) or held.versions.get(path) != _digest(data)
    }


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# what the chain holds already


@dataclass(frozen=True)
class HeldFiles:
    """Files that need not be taken again."""

    manifest: CheckpointManifest | None = None
    """The checkpoint to build on; None for a full one."""
    links: int = 0
    """How many checkpoints are in its chain."""
    versions: dict[str, str] = field(default_factory=dict)
    """Path → version of the file, as its place tells it."""
    index: FileIndex = field(default_factory=FileIndex)
    """Where the files are."""
    small: Contents = field(default_factory=dict)
    """Those that the checkpoints of the chain hold themselves."""
    is_same_batch: bool = False
    """Whether it is this very batch, with all that is known about it."""


def held_by(
    store: CheckpointStore, newest: CheckpointManifest | None, at: BatchAt, *, verify: bool = False
) -> HeldFiles:
    """What the newest checkpoint and its chain hold, when it is an earlier batch of one history.

    Offsets carry the time at which a batch was planned, and a commit the ids of its state; a batch
    that was run again after a rollback differs in them from the one that was stored. Nothing
    is built on what is damaged: state must be there and have its size, and with ``verify`` every
    byte of it is read.
    """
    if newest is None or newest.native is None or newest.batch > at.batch:
        return HeldFiles()
    try:
        chain = Chain.load(store, newest)
        if chain.index is None or not _is_whole(store, chain.manifests, verify=verify):
            return HeldFiles()
        versions: dict[str, str] = {}
        for manifest in chain.manifests:
            listed = file_list_of(store, manifest)
            versions |= listed.taken if listed is not None else {}
        plan = planned(newest)
    except (DamageError, CheckpointNotFoundError):  # or pruned by another process just now
        return HeldFiles()
    if not _is_of_one_history(newest.batch, chain.logs, at):
        return HeldFiles()
    return HeldFiles(
        newest,
        links=len(chain.manifests),
        versions={path: at for path, at in versions.items() if path in chain.index.files},
        index=chain.index,
        small=chain.small,
        is_same_batch=newest.batch == at.batch and at.plan in (None, plan),
    )


def _is_whole(store: CheckpointStore, chain: list[CheckpointManifest], *, verify: bool) -> bool:
    if verify:
        return store.validate_checkpoint(chain[-1].checkpoint_id).valid
    seen = SeenState()
    examined = (
        examine(store, manifest.checkpoint_id, read_data=False, seen=seen) for manifest in chain
    )
    return all(one.kind is CheckpointKind.CHECKPOINT for one in examined)


def _is_of_one_history(batch: int, logs: dict[str, bytes], at: BatchAt) -> bool:
    """Whether the directory's own record of a stored batch is the one that was stored."""
    for path in ("metadata", f"offsets/{batch}", f"commits/{batch}"):
        here = at.read_log(path)
        is_optional = path.startswith("commits/")  # Spark 2.1 has no commit log
        if here != logs.get(path) or (here is None and not is_optional):
            return False
    return True


def native_manifest(
    checkpoint_id: int,
    tree: Tree,
    at: BatchAt,
    placed: PlacedState,
    *,
    parent: CheckpointManifest | None,
    follows: CheckpointManifest | None,
    attempt: str,
    seconds: float,
) -> CheckpointManifest:
    """What is known about the batch; the fields mean the same as in a pipeline's manifest.

    ``follows`` is an earlier checkpoint that is known to be of the same history, also when a full
    one does not build on it.
    """
    epoch = at.batch + 1
    names = at.source_names
    partitions = max((need.folder.partition + 1 for need in at.needs), default=0)
    return CheckpointManifest.new(
        checkpoint_id,
        epoch=epoch,
        source_offsets={
            name: ConnectorCheckpoint(readable_offset(line), epoch, {"line": line})
            for name, line in zip(names, at.entry.lines, strict=True)
        },
        source_names=sorted(set(names)),
        operator_states=placed.operator_states,
        batch=at.batch,
        state_versions=[epoch] * partitions,
        watermark=at.entry.watermark_ms or None,
        inflight_data=_in_flight(at),
        size_bytes=placed.size,
        added_bytes=placed.added_bytes or None,
        restore_bytes=placed.restore_size,
        shared_objects=[list(each) for each in placed.shared_objects] or None,
        is_incremental=parent is not None,
        parent_id=parent.checkpoint_id if parent is not None else None,
        state_partitions=min(max(at.entry.state_partitions, 1), U16_MAX),
        attempt=attempt,
        leaves=names,
        next_watermark=at.next_watermark,
        timings={"capture": round(seconds, 6)},
        native={
            "query_id": at.query_id,
            "directory": tree.directory.url,
            "follows": follows.checkpoint_id if follows is not None else None,
            "offset_log": at.entry.version,
            "provider": str(at.entry.conf.get(_PROVIDER, "")).rsplit(".", 1)[-1],
        },
    )


def _in_flight(at: BatchAt) -> dict[str, list[InFlightRecord]]:
    if at.plan is None:
        return {}
    data = base64.b64encode(msgspec.json.encode(at.plan)).decode()
    return {PLAN: [InFlightRecord(at.batch + 1, data)]}


def planned(manifest: CheckpointManifest) -> Plan | None:
    """The batch that was planned and not finished; :class:`DamageError` when it cannot be read."""
    for record in manifest.inflight_data.get(PLAN, ()):
        if record.input_id != manifest.batch + 1:
            continue
        try:
            return msgspec.json.decode(base64.b64decode(record.data_b64, validate=True), type=Plan)
        except UNREADABLE as error:
            raise DamageError(f"the plan of the batch in flight cannot be read: {error}") from None
    return None
