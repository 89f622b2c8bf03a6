"""Stores with the checkpoints of a pipeline, made without Spark; and all that a store holds."""

from __future__ import annotations

from typing import Any, Final

from seamark.capture.checkpoint_contents import Chain, Sizes, place
from seamark.capture.epoch_files import Captured
from seamark.capture.file_index import FileIndex, StoredFile
from seamark.capture.movers import Contents
from seamark.capture.uploads import Uploads
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint, SinkCommitStatus
from seamark.spark.plans.computation import FORM
from seamark.store import CheckpointStore
from seamark.store.index_parts import LOG
from seamark.store.shared_objects import SharedObjects

OPERATOR: Final = "0-stateStoreSave"
OPERATOR_INFO: Final = (
    b'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"stateStoreSave"},"stateStoreInfo":'
    b'[{"storeName":"default","numColsPrefixKey":0,"numPartitions":1}]}'
)
QUERY_ID: Final = b'{"id":"00000000-0000-0000-0000-000000000000"}'


def structure(name: str = "trades", target: str = "/data/bars") -> dict[str, Any]:
    """What the pipeline of these stores says about itself."""
    return {
        "name": name,
        "output_mode": "append",
        "state_partitions": 1,
        "sources": {"trades": {"format": "json", "options": {}, "may_lose": {}}},
        "sinks": {
            "bars": {"kind": "files", "target": target, "options": {}, "columns": [["k", "int"]]}
        },
        "operators": ["bars: aggregation"],
        "form": FORM,
        "computes": {},
        "shares": {},
        "reads": {"bars": ["trades"]},
    }


def state_file(version: int) -> bytes:
    return b"changes of version %d\n" % version * 20


def large_file(version: int) -> bytes:
    return bytes([version]) * 3000


class Origin:
    """A pipeline's store, to which one epoch after another is added."""

    def __init__(self, store: CheckpointStore, **fields: Any) -> None:
        self.store = store
        self.fields = fields
        self.index = FileIndex()
        self.newest: CheckpointManifest | None = None
        store.claim(pipeline="trades")

    def add(
        self, *, full: bool | None = None, large_logs: Contents | None = None, **fields: Any
    ) -> CheckpointManifest:
        """Save the next epoch. State is inline, in a pack, and in an object of its own.

        Logs are inline, but for those that are too large for it.
        """
        epoch = 1 if self.newest is None else self.newest.epoch + 1
        full = self.newest is None if full is None else full
        uploads = Uploads(self.store.shared_objects)
        small: Contents = {f"state/0/0/{n}.delta": state_file(n) for n in range(1, epoch + 1)}
        new = small if full else {f"state/0/0/{epoch}.delta": small[f"state/0/0/{epoch}.delta"]}
        logs = {
            "metadata": QUERY_ID,
            f"offsets/{epoch - 1}": b'v1\n{"batchWatermarkMs":0}\n{"logOffset":%d}' % epoch,
            f"commits/{epoch - 1}": b'v1\n{"nextBatchWatermarkMs":0}',
            "state/0/_metadata/metadata": OPERATOR_INFO,
        }
        large = {f"state/0/0/{epoch}.snapshot": large_file(epoch), **(large_logs or {})}
        stored = {
            path: _large(self.store.shared_objects, bytes(data)) for path, data in large.items()
        }
        captured = Captured(
            files={OPERATOR: new, LOG: logs}, stored=stored, is_full=full, versions=[epoch]
        )
        # odd epochs keep their state in the manifest, the others in a pack
        sizes = Sizes() if epoch % 2 else Sizes(inline_operator=0)
        placed = place(captured, sizes, uploads, self.index)
        self.index = self.index.after((), {**stored, **placed.files}, full=full)
        manifest = CheckpointManifest.new(
            self.store.next_id(),
            epoch=epoch,
            **{
                "source_offsets": {"trades": ConnectorCheckpoint({"logOffset": str(epoch)})},
                "source_names": ["trades"],
                "sink_names": ["bars"],
                "sink_epochs": {"bars": epoch - 1},
                "sink_commit_statuses": {"bars": SinkCommitStatus.pending()},
                "batch": epoch - 1,
                "state_versions": [epoch],
                "state_partitions": 1,
                "operator_states": placed.operator_states,
                "is_incremental": not full,
                "parent_id": self.newest.checkpoint_id if self.newest else None,
                "restore_bytes": placed.restore_size,
                "shared_objects": [list(each) for each in placed.shared_objects] or None,
                "attempt": f"g0001-{epoch:012}",
                "fingerprint": f"{epoch:064}",
                "structure": structure(),
                "leaves": ["trades"],
                "sink_committables": {"bars": {"epoch": epoch}},
                "next_watermark": 0,
                **self.fields,
                **fields,
            },
        )
        self.newest = self.store.save_with_state(manifest, placed.chunks or None)
        return self.newest


def _large(shared: SharedObjects, data: bytes) -> StoredFile:
    import hashlib

    return StoredFile(len(data), hashlib.sha256(data).digest(), shared.write([data]))


def filled(store: CheckpointStore, epochs: int = 3, **fields: Any) -> Origin:
    """A store of some epochs, each building on the one before."""
    origin = Origin(store, **fields)
    for _ in range(epochs):
        origin.add()
    return origin


def contents(store: CheckpointStore, manifest: CheckpointManifest) -> Contents:
    """Every file that a restore of a checkpoint would write, but for the id of the query."""
    chain = Chain.load(store, manifest)
    assert chain.index is not None
    files = dict(chain.small)
    for path, file in chain.index.files.items():
        if file.shared is not None and not file.is_packed:
            files[path] = b"".join(map(bytes, store.shared_objects.read(file.shared)))
        elif file.shared is not None:
            files[path] = b"packed %d %s" % (file.size, file.sha256)
    return {path: data for path, data in files.items() if path != "metadata"}


def everything(store: CheckpointStore) -> dict[str, bytes]:
    """Every value of a store, byte by byte, but for locks and temporary files."""
    values = {}
    for entry in store.backend.entries(""):
        if not entry.key.startswith(("tmp/", "locks/", "probe/")):
            blob = store.backend.read(entry.key, 1 << 30)
            assert blob is not None
            values[entry.key] = blob.data
    return values
