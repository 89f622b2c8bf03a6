"""One checkpoint as a plain document: everything that its manifest and packs say.

Tests: ``tests/cli/test_show.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from seamark.cli.checkpoint_summary import positions, took_seconds
from seamark.cli.output import Document
from seamark.errors import DamageError, SeamarkError
from seamark.manifest import CheckpointManifest, OperatorCheckpoint
from seamark.spark.plans.lossy_options import recorded_losses
from seamark.state.pack import PackedEntry, read_index
from seamark.store import CheckpointStore
from seamark.store.inspection import partitions_of, pruned_or, read_sidecar_range, stored_bytes
from seamark.store.owner import Owner, Standing, known_pins, standing
from seamark.store.validation import LONGEST_CHAIN

_PARTITION: Final = re.compile(r"state/[0-9]+/([0-9]{1,9})/")
_TAIL: Final = 256 << 10


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


def chain_of(
    store: CheckpointStore, newest: CheckpointManifest
) -> tuple[list[CheckpointManifest], str | None]:
    """A checkpoint and what it builds on, newest first, and why it ends too early if it does."""
    chain = [newest]
    while chain[-1].is_incremental and len(chain) <= LONGEST_CHAIN:
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
    store: CheckpointStore, chain: list[CheckpointManifest]
) -> dict[str, OperatorFiles]:
    """The state of each operator; packs are only asked for their index."""
    operators: dict[str, OperatorFiles] = {}
    for manifest in reversed(chain):  # newer files in place of older ones
        is_newest = manifest is chain[0]
        for name, operator in manifest.operator_states.items():
            about = operators.setdefault(name, OperatorFiles())
            size, entries = _packed(store, manifest, operator)
            about.places.add("sidecar" if operator.external else "inline")
            about.stored_bytes += size
            about.new_bytes += size if is_newest else 0
            about.files |= {entry.key: entry.size for entry in entries}
        _add_partitioned(store, manifest, operators, is_newest=is_newest)
    return operators


def _packed(
    store: CheckpointStore, manifest: CheckpointManifest, operator: OperatorCheckpoint
) -> tuple[int, list[PackedEntry]]:
    """Bytes as stored, and the entries when they are a pack of ours that can be read."""
    if operator.external:
        size = operator.external_length
        start = max(0, size - _TAIL)
        tail = read_sidecar_range(store, manifest, operator.external_offset + start, size - start)
        entries = _entries(tail or b"", size)
        if entries is None and start:  # the index is longer than that, or it is not a pack
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
    *,
    is_newest: bool,
) -> None:
    try:
        chains = partitions_of(store, manifest)
    except SeamarkError:
        return  # 'seamark verify' reports what is wrong with it
    for (name, partition), chain in chains.items():
        about = operators.setdefault(name, OperatorFiles())
        size = sum(link.entry.size_bytes for link in chain)
        about.places.add("partitioned")
        about.stored_bytes += size
        about.new_bytes += size if is_newest else 0
        about.beside_bytes += size if is_newest else 0
        about.by_partition[partition] = about.by_partition.get(partition, 0) + size


def describe(store: CheckpointStore, manifest: CheckpointManifest) -> Document:
    """What ``seamark show --json`` prints."""
    owner = store.owner()
    chain, broken = chain_of(store, manifest)
    operators = operators_of(store, chain)
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
        "full": not manifest.is_incremental,
        "parents": [m.checkpoint_id for m in chain[1:]],
        "broken_chain": broken,
        "supersedes": _merged(manifest.supersedes),
        "new_bytes": sum(o.new_bytes for o in operators.values()),
        "stored_bytes": sum(o.stored_bytes for o in operators.values()),
        "size_bytes": stored_bytes(store, manifest)
        + sum(o.beside_bytes for o in operators.values()),
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
        "native": manifest.native or None,
        "inflight": {name: len(records) for name, records in manifest.inflight_data.items()},
        "warnings": manifest.validate(),
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
    """Status, last committed epoch and guarantee of each sink."""
    statuses, epochs = manifest.sink_commit_statuses, manifest.sink_epochs
    guarantees = manifest.sink_guarantees or {}
    names = dict.fromkeys([*manifest.sink_names, *statuses, *epochs])
    return {
        name: {
            "status": statuses[name].kind if name in statuses else None,
            "message": statuses[name].message if name in statuses else None,
            "committed_epoch": epochs.get(name),
            "guarantee": guarantees.get(name),
        }
        for name in names
    }
