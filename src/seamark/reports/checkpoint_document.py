"""One checkpoint as a plain document: everything that its manifest and packs say.

Tests: ``tests/cli/test_show.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from seamark.capture.checkpoint_contents import Chain
from seamark.errors import DamageError, SeamarkError
from seamark.limits import LARGEST_SHOWN
from seamark.manifest import CheckpointManifest, OperatorCheckpoint
from seamark.manifest.findings import unrestorable
from seamark.reports.checkpoint_files import IndexedFiles, OperatorFiles
from seamark.reports.checkpoint_summary import positions, took_seconds
from seamark.reports.document import Document
from seamark.spark.kafka.lag import recorded_ages, recorded_lag
from seamark.spark.plans.lossy_options import recorded_losses
from seamark.state import ReadStates
from seamark.state.pack import PackedEntry, read_index
from seamark.store import CheckpointStore
from seamark.store.inspection import (
    new_links_of,
    pruned_or,
    read_sidecar_range,
    require_there,
    stored_bytes,
)
from seamark.store.owner import Owner, Standing, known_pins, standing

_TAIL: Final = 256 << 10


def chain_of(
    store: CheckpointStore, newest: CheckpointManifest
) -> tuple[list[CheckpointManifest], str | None]:
    """A checkpoint and what it builds on, newest first, and why it ends too early if it does."""
    chain = [newest]
    while chain[-1].is_incremental:
        parent_id = chain[-1].parent_id or 0
        try:
            parent = store.load_by_id(parent_id) if parent_id else None
        except DamageError as error:
            return chain, error.what
        if parent is None or parent_id >= chain[-1].checkpoint_id:
            gone = f"parent {parent_id} of checkpoint {chain[-1].checkpoint_id} is gone"
            why = pruned_or(store, newest.checkpoint_id, DamageError(gone))
            if not isinstance(why, DamageError):
                raise why  # all of it was pruned meanwhile
            return chain, gone
        chain.append(parent)
    return chain, None


def operators_of(
    store: CheckpointStore, chain: list[CheckpointManifest], files: IndexedFiles | None = None
) -> dict[str, OperatorFiles]:
    """The state of each operator; packs are only asked for their index."""
    files = files or _index_of(store, chain[0])
    if files is not None:
        return files.by_operator()
    operators: dict[str, OperatorFiles] = {}
    if any(True for manifest in chain for _ in unrestorable(manifest, manifest.state_bytes)):
        return operators  # ranges that overlap or lead beyond the state are not read
    seen = ReadStates()
    for manifest in reversed(chain):  # newer files in place of older ones
        is_newest = manifest is chain[0]
        for name, operator in manifest.operator_states.items():
            about = operators.setdefault(name, OperatorFiles())
            size, entries = _packed(store, manifest, operator)
            about.places.add("sidecar" if operator.external else "inline")
            about.stored_bytes += size
            about.new_bytes += size if is_newest else 0
            about.files |= {entry.key: entry.size for entry in entries}
        _add_partitioned(store, manifest, operators, seen, is_newest=is_newest)
    return operators


def _index_of(store: CheckpointStore, manifest: CheckpointManifest) -> IndexedFiles | None:
    """Where the files of a checkpoint are; None where it has no index."""
    try:
        chain = Chain.load(store, manifest, with_contents=False)
        return None if chain.index is None else IndexedFiles.of(store, chain, chain.index)
    except DamageError:
        return None  # 'seamark verify' reports what is wrong with it


def _packed(
    store: CheckpointStore, manifest: CheckpointManifest, operator: OperatorCheckpoint
) -> tuple[int, list[PackedEntry]]:
    """Bytes as stored, and the entries when they are a pack of ours that can be read."""
    if operator.external:
        size = operator.external_length
        start = max(0, size - _TAIL)
        tail = read_sidecar_range(store, manifest, operator.external_offset + start, size - start)
        entries = _entries(tail or b"", size)
        # the index is longer than that, or it is not a pack, or not worth reading
        if entries is None and 0 < start <= LARGEST_SHOWN:
            whole = read_sidecar_range(store, manifest, operator.external_offset, size)
            entries = _entries(whole or b"", size)
        return size, entries or []
    try:
        data = operator.decode_inline() or b""
    except DamageError:
        return 0, []
    return len(data), _entries(data, len(data)) or []


def _entries(tail: bytes, size: int) -> list[PackedEntry] | None:
    """The index; None for what is not a pack, such as the state of other systems."""
    try:
        return read_index(tail, size)
    except DamageError:
        return None


def _add_partitioned(
    store: CheckpointStore,
    manifest: CheckpointManifest,
    operators: dict[str, OperatorFiles],
    seen: ReadStates,
    *,
    is_newest: bool,
) -> None:
    try:
        links = new_links_of(store, manifest, seen)
    except SeamarkError:
        return  # 'seamark verify' reports what is wrong with it
    for (name, partition), link in links:
        about = operators.setdefault(name, OperatorFiles())
        size = link.entry.size_bytes
        about.places.add("partitioned")
        about.stored_bytes += size
        about.new_bytes += size if is_newest else 0
        about.beside_bytes += size if is_newest else 0
        about.by_partition[partition] = about.by_partition.get(partition, 0) + size


def describe(store: CheckpointStore, manifest: CheckpointManifest) -> Document:
    """What ``seamark show --json`` prints."""
    owner = store.owner()
    chain, broken = chain_of(store, manifest)
    files = _index_of(store, manifest)
    operators = operators_of(store, chain, files)
    sizes = [stored_bytes(store, each) for each in chain]
    require_there(store, manifest.checkpoint_id)
    # by a pipeline of ours or a snapshot; another system knows nothing of Spark's batches
    is_of_spark = manifest.attempt is not None or manifest.native is not None
    return {
        "store": store.url,
        "id": manifest.checkpoint_id,
        "epoch": manifest.epoch,
        "timestamp_ms": manifest.timestamp_ms,
        "standing": _standing(owner, manifest),
        "pins": known_pins(owner).get(manifest.checkpoint_id, []),
        "written_by_seamark": manifest.is_ours,
        "writer": manifest.writer,
        "generation": manifest.generation or None,
        "timeline": manifest.timeline,
        "attempt": manifest.attempt,
        "fingerprint": manifest.fingerprint,
        "decision": manifest.decision,
        "full": not manifest.is_incremental,
        "parents": [m.checkpoint_id for m in chain[1:]],
        "broken_chain": broken,
        "supersedes": _merged(manifest.supersedes),
        "new_bytes": sum(o.new_bytes for o in operators.values()),
        "stored_bytes": sum(o.stored_bytes for o in operators.values()),
        "size_bytes": sizes[0]
        + sum(o.beside_bytes for o in operators.values())
        + (files.new_object_bytes if files is not None else 0),
        "referenced_bytes": files.referenced_bytes if files is not None else 0,
        "restore_reads_bytes": sum(sizes) + files.object_bytes if files is not None else None,
        "restore_bytes": manifest.restore_bytes,
        "state_checksum": manifest.state_checksum,
        "state_partitions": manifest.state_partitions or None,
        "batch": manifest.batch if is_of_spark else None,
        "wal_position": manifest.wal_position,
        "sources": positions(manifest.source_offsets),
        "tables": positions(manifest.table_offsets),
        "watermarks": {
            "epoch": manifest.watermark,
            "next": manifest.next_watermark,
            "sources": dict(manifest.source_watermarks),
        },
        "operators": {name: about.document() for name, about in sorted(operators.items())},
        "sinks": sinks(manifest),
        "took_seconds": took_seconds(manifest),
        "timings": manifest.timings or {},
        "pipeline_hash": manifest.pipeline_hash,
        "configuration": manifest.structure or {},
        "may_lose": recorded_losses(manifest.structure or {}),
        "lag": recorded_lag(manifest),
        "age_seconds": recorded_ages(manifest),
        "gaps": list(manifest.gaps),
        "upgrade": _upgrade(manifest),
        "fork": fork_document(manifest),
        "native": manifest.native or None,
        "inflight": {name: len(records) for name, records in manifest.inflight_data.items()},
        "warnings": manifest.validate(),
    }


def fork_document(manifest: CheckpointManifest) -> Document | None:
    """Where the history of a fork begins; None for a store that is none."""
    if (fork := manifest.fork) is None:
        return None
    return {
        "url": fork.url,
        "checkpoint": fork.checkpoint_id,
        "epoch": fork.epoch,
        "timeline": fork.timeline,
        "pipelines": list(fork.pipelines),
    }


def _upgrade(manifest: CheckpointManifest) -> Document | None:
    """What an upgrade made of each part of the pipeline; None where there was none."""
    if (upgrade := manifest.upgrade) is None:
        return None
    rows = upgrade.get("rows")
    return {
        "from": upgrade.get("from"),
        "parts": [
            dict(zip(("what", "name", "becomes", "why"), map(str, row), strict=True))
            for row in (rows if isinstance(rows, list) else ())
            if isinstance(row, list) and len(row) == 4
        ],
    }


def _merged(ranges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Ranges of ids in their order, those that overlap or touch as one."""
    joined: list[list[int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1][1] = max(joined[-1][1], last)
        else:
            joined.append([first, last])
    return joined


def _standing(owner: Owner, manifest: CheckpointManifest) -> str:
    if standing(owner, manifest.checkpoint_id) is Standing.SUPERSEDED:
        return "superseded"
    unfinished = [s for s in manifest.sink_commit_statuses.values() if not s.is_committed]
    return "committing" if unfinished else "current"


def sinks(manifest: CheckpointManifest) -> Document:
    """Status, last committed epoch, guarantee and rows of each sink."""
    statuses, epochs = manifest.sink_commit_statuses, manifest.sink_epochs
    guarantees, digests = manifest.sink_guarantees or {}, manifest.output_digests or {}
    names = dict.fromkeys([*manifest.sink_names, *statuses, *epochs])
    return {
        name: {
            "status": statuses[name].kind if name in statuses else None,
            "message": statuses[name].message if name in statuses else None,
            "committed_epoch": epochs.get(name),
            "guarantee": guarantees.get(name),
            "digest": msgspec.to_builtins(digests[name]) if name in digests else None,
        }
        for name in names
    }
