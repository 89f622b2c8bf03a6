"""What a new checkpoint of a directory consists of: files that the chain lacks, and its manifest.

Files are read at once, or in parts when they are large.

Tests: ``tests/native/test_snapshot.py``.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from seamark._common.checks import U16_MAX
from seamark._common.json_documents import UNREADABLE
from seamark.capture.batches import BatchAt
from seamark.capture.capture import FILE_LIST, LOG, Captured
from seamark.capture.checkpoint_contents import (
    FileList,
    Part,
    PlacedState,
    chain_of,
    file_list_in,
    logs_of,
    partition_of,
)
from seamark.capture.readers import Contents
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.state_files import MissingVersion
from seamark.errors import CheckpointNotFoundError, DamageError, RefusedError
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint, InFlightRecord
from seamark.spark.batch_log import Plan, readable_offset
from seamark.state.lcb1 import BATCH_LIMIT
from seamark.store import CheckpointStore
from seamark.store.inspection import examine
from seamark.store.validation import CheckpointKind

_PART: Final = 32 << 20
_AT_A_TIME: Final = 8
PLAN: Final = "plan"
"""The name under which the batch in flight is kept."""
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"


@dataclass(frozen=True)
class NewFiles:
    """What a checkpoint will hold itself."""

    captured: Captured
    large: Iterator[Part] | None
    """State that is read when it is written, or None when all of it is in ``captured``."""
    count: int


def read_new(
    tree: Tree, at: BatchAt, held: HeldFiles, most: int, advance: Callable[[int], None] | None
) -> NewFiles:
    """The files of a batch that ``held`` lacks; state is read now when it is at most ``most``."""
    new_paths: dict[str, list[str]] = {}
    for need in at.needs:
        new_paths.setdefault(need.operator.label, []).extend(
            path for path in need.paths if not _is_held(tree, held, path)
        )
    logs = _new_logs(at, held)
    listed = [path for paths in new_paths.values() for path in paths]
    versions = {path: tree.entries[path].version for path in listed if path in tree.entries}
    logs_versions = {path: _digest(data) for path, data in logs.items()}
    logs[FILE_LIST] = msgspec.json.encode(FileList(versions | logs_versions, at.paths))
    read = partial(_read_all, tree, advance)
    files: dict[str, Contents] = {LOG: logs}
    large = None
    if tree.size_of(listed) > most:
        large = _in_parts(tree, new_paths, read)
    else:
        files |= {label: read(paths) for label, paths in new_paths.items()}
    partitions = max((need.folder.partition + 1 for need in at.needs), default=0)
    captured = Captured(files, held.manifest is None, [at.batch + 1] * partitions)
    return NewFiles(captured, large, len(listed) + len(logs) - 1)


def _is_held(tree: Tree, held: HeldFiles, path: str) -> bool:
    entry = tree.entries.get(path)
    return entry is not None and held.versions.get(path) == entry.version


def _new_logs(at: BatchAt, held: HeldFiles) -> Contents:
    always = ("metadata", "offsets/", "commits/")
    return {
        path: data
        for path, data in at.logs.items()
        if path.startswith(always) or held.versions.get(path) != _digest(data)
    }


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read_all(tree: Tree, advance: Callable[[int], None] | None, paths: list[str]) -> Contents:
    def one(path: str) -> bytes:
        data = tree.read(path)
        entry = tree.entries.get(path)
        if entry is None or len(data) != entry.size:
            raise MissingVersion(f"{path} changed while it was read", where=tree.directory.url)
        if advance is not None:
            advance(len(data))
        return data

    if len(paths) < _AT_A_TIME:
        return {path: one(path) for path in paths}
    with ThreadPoolExecutor(_AT_A_TIME, "seamark-read") as pool:
        return dict(zip(paths, pool.map(one, paths), strict=True))


def _in_parts(
    tree: Tree, new_paths: dict[str, list[str]], read: Callable[[list[str]], Contents]
) -> Iterator[Part]:
    """Each partition by itself, a large one in several shares: memory holds a few of them."""
    for label, paths in new_paths.items():
        by_partition: dict[int, list[str]] = {}
        for path in paths:
            by_partition.setdefault(partition_of(path), []).append(path)
        for partition, its in by_partition.items():
            for number, share in enumerate(_shares(tree, its)):
                name = f"{label}+{number}" if number else label
                yield name, partition, partial(read, share)


def _shares(tree: Tree, paths: list[str]) -> Iterator[list[str]]:
    share: list[str] = []
    size = 0
    for path in paths:
        more = tree.entries[path].size if path in tree.entries else 0
        if more > BATCH_LIMIT:
            raise RefusedError(
                f"{path} has {more} bytes; a single state file may have {BATCH_LIMIT}",
                where=tree.directory.url,
                hint="More state partitions make smaller files.",
            )
        if share and size + more > _PART:
            yield share
            share, size = [], 0
        share.append(path)
        size += more
    if share:
        yield share


# what the chain holds already


@dataclass(frozen=True)
class HeldFiles:
    """Files that need not be taken again."""

    manifest: CheckpointManifest | None = None
    """The checkpoint to build on; None for a full one."""
    chain: tuple[CheckpointManifest, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    """Path → version of the file, as its place tells it."""
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
        chain = chain_of(store, newest)
        if not _is_whole(store, chain, verify=verify):
            return HeldFiles()
        versions: dict[str, str] = {}
        logs: dict[str, bytes] = {}
        for manifest in chain:
            own = logs_of(store, manifest)
            listed = file_list_in(own)
            if own and listed is None:
                return HeldFiles()
            versions |= listed.taken if listed is not None else {}
            logs |= own
        plan = planned(newest)
    except (DamageError, CheckpointNotFoundError):  # or pruned by another process just now
        return HeldFiles()
    if not _is_of_one_history(newest.batch, logs, at):
        return HeldFiles()
    is_same = newest.batch == at.batch and at.plan in (None, plan)
    return HeldFiles(newest, tuple(chain), versions, is_same)


def _is_whole(store: CheckpointStore, chain: list[CheckpointManifest], *, verify: bool) -> bool:
    if verify:
        return store.validate_checkpoint(chain[-1].checkpoint_id).valid
    examined = (examine(store, manifest.checkpoint_id, read_data=False) for manifest in chain)
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
        state_checkpoint=placed.state_checkpoint,
        batch=at.batch,
        state_versions=[epoch] * partitions,
        watermark=at.entry.watermark_ms or None,
        inflight_data=_in_flight(at),
        size_bytes=placed.size,
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
