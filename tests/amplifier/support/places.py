"""One healthy example of every kind of place that a command reads, and checksums that fit again."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from seamark import open_store
from seamark._common.json_documents import is_sealed, seal, unseal
from seamark.capture.checkpoint_contents import Sizes
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import SeamarkError
from seamark.manifest import CheckpointManifest, OperatorCheckpoint
from seamark.native.snapshot import take_snapshot
from seamark.progress import open_progress
from seamark.store.plans import StoredPlan
from seamark.store.sidecars import checksum_prefix, inline_checksum
from tests.checkpoint_dir.support.samples import SAMPLES
from tests.checkpoint_dir.test_sink_log import log_of
from tests.cli.support import stores as plain_stores
from tests.native.support.inspected import (
    hadoop_crc,
    make_format_2,
    make_hdfs,
    make_rocksdb,
    name_schema,
    offsets,
    write,
)
from tests.native.support.tables import QUERY, delta_table, iceberg_table
from tests.ui.support import stores as page_stores

_NOW: Final = 1_767_605_400_000
_KAFKA: Final = '{"trades":{"0":12,"1":7}}'


def hdfs(root: Path) -> None:
    """A directory of Spark with state on HDFS, several sources, compactions and checksums."""
    make_hdfs(root, 4)
    for batch in range(4):
        write(root, f"offsets/{batch}", offsets(batch, _KAFKA, "-", '{"seqNum":3}'))
    write(root, "sources/1/0", 'v1\n{"trades":{"0":0,"1":0}}')
    for name, text in log_of(4, 3).items():
        write(root, f"sources/2/{name}", text)
    for file in ("offsets/3", "commits/3", "state/0/0/4.delta"):
        data = (root / file).read_bytes()
        folder, _, name = file.rpartition("/")
        write(root, f"{folder}/.{name}.crc", hadoop_crc(data))


def rocksdb(root: Path) -> None:
    """One with a snapshot of RocksDB, and changelogs beside it."""
    make_rocksdb(root)


def changelogs(root: Path) -> None:
    """One with changelogs of checkpoint format 2 and their checksums."""
    make_format_2(root)


def schemas(root: Path) -> None:
    """One whose operator names the schemas of its state."""
    make_hdfs(root, 3)
    name_schema(root, str(root))
    schema = b'{"fields":[{"name":"a","type":"long"}]}'
    packed = b"\0\2v2" + (b"\0\0\0\1" + len(schema).to_bytes(2, "big") + schema) * 2
    write(root, "state/0/_stateSchema/default/0_aa", packed)
    write(root, "state/0/0/_metadata/schema", packed)


def file_sink(root: Path) -> None:
    """The folder of Spark's file sink, with its log."""
    for name, text in log_of(4, 3).items():
        write(root, f"_spark_metadata/{name}", text)


def delta(root: Path) -> None:
    """A Delta table that a query writes to."""
    delta_table(root, [(QUERY, number) for number in range(4)])


def iceberg(root: Path) -> None:
    """An Iceberg table that a query writes to."""
    iceberg_table(root, [(QUERY, number) for number in range(4)])


def pipeline_store(root: Path) -> None:
    """A store as a pipeline leaves it: sidecars, partitioned state, pins, plans, digests."""
    plain_stores.fill(root, 2)
    plain_stores.save_partitioned(root, 3)
    with open_store(root) as store:
        for number in (4, 5):
            page_stores.save(store, number, newest=5, now_ms=_NOW, extra=_facts(number))
        store.pin("release", 2)
        newest = store.load_latest()
        assert newest is not None
        store.plans.keep(_plan(newest))
    _undecide(root)


def _plan(newest: CheckpointManifest) -> StoredPlan:
    return StoredPlan(
        timeline=newest.timeline or "",
        epoch=newest.epoch + 1,
        fingerprint="f" * 64,
        follows="d" * 64,
        leaves=("trades",),
        offsets=offsets(5, _KAFKA),
        sources={"sources/0/5": 'v1\n{"path":"file:///in/5","timestamp":5,"batchId":5}'},
        structure=newest.structure,
    )


def _facts(number: int) -> dict[str, Any]:
    move = {"from": 1, "to": 5, "why": "expired"}
    point = {"kind": "files", "target": "/bars", "at": {"epoch": number, "format": "parquet"}}
    return {
        "gaps": [{"source": "trades", "epoch": number, "timestamp_ms": 1, "moves": [move]}],
        "read_points": {"bars": point},
        "late_read_points": {"1": {"bars": point}},
        "sink_committables": {"bars": {"epoch": number, "files": ["a", "b"]}},
        "source_servers": {"trades": "127.0.0.1:9"},
        "source_ids": {"trades": {"trades": "id-1"}},
        "inputs": {"trades": "c" * 64},
        "consumer_group": "group",
        "next_watermark": 1,
        "fingerprint": "d" * 64,
        "fork": {
            "url": "file:///elsewhere",
            "checkpoint_id": 1,
            "timeline": "e" * 32,
            "epoch": 1,
            "pipelines": ["orders"],
            "targets": [["files", "/bars"]],
        },
        "structure": {
            "name": "trades",
            "sources": {
                "trades": {
                    "format": "kafka",
                    "options": {"subscribe": "trades", "failOnDataLoss": "false"},
                    "may_lose": {"failOnDataLoss": "false"},
                },
                "orders": {"format": "seamark_delta", "options": {"path": "/no/table"}},
            },
            "sinks": {"bars": {"kind": "files", "target": "/bars", "schema": "n bigint"}},
            "outputs": {"bars": {"mode": "append", "columns": [["n", "bigint"]]}},
            "operators": [{"number": 0, "name": "stateStoreSave", "keys": ["n"]}],
            "settings": {"spark.sql.shuffle.partitions": "2"},
            "tables": {"codes": {"files": 3}},
        },
    }


def snapshot_store(root: Path) -> None:
    """A store with snapshots of a directory: indexes, packs and shared objects."""
    directory = root.parent / f"{root.name}-of"
    make_hdfs(directory, 2)
    with open_store(root) as store:
        take_snapshot(LocalDirectory(directory), store)
        make_hdfs(directory, 4)
        take_snapshot(LocalDirectory(directory), store)
    shutil.rmtree(directory)
    _undecide(root)


def rocksdb_store(root: Path) -> None:
    """The same of a directory with RocksDB, with nothing inside of the manifest."""
    directory = root.parent / f"{root.name}-of"
    make_rocksdb(directory)
    with open_store(root) as store:
        take_snapshot(LocalDirectory(directory), store, sizes=Sizes(0, 0))
    shutil.rmtree(directory)
    _undecide(root)


def earlier_store(root: Path) -> None:
    """A store of an earlier version, by partitioned state."""
    shutil.copytree(SAMPLES.parent / "stores/snapshots-partitioned", root)


def laminar_store(root: Path) -> None:
    """A store that LaminarDB wrote."""
    shutil.copytree(SAMPLES.parent / "laminar/made/fs-22-mixed", root)


def progress(root: Path) -> None:
    """A progress store in RocksDB."""
    with open_progress(f"rocksdb://{root}") as store, store.session() as session:
        session.stage_checkpoint("trades", 7, _KAFKA.encode())
        session.stage_config_hash(77)


PLACES: Final[dict[str, Callable[[Path], None]]] = {
    "hdfs": hdfs,
    "rocksdb": rocksdb,
    "changelogs": changelogs,
    "schemas": schemas,
    "sink": file_sink,
    "delta": delta,
    "iceberg": iceberg,
    "pipeline": pipeline_store,
    "snapshots": snapshot_store,
    "rocksdb-snapshots": rocksdb_store,
    "earlier": earlier_store,
    "laminar": laminar_store,
    "progress": progress,
}


def make_all(root: Path) -> None:
    """All places, each in a folder of its name."""
    for name, make in PLACES.items():
        make(root / name)


def manifests(store: Path) -> Iterator[Path]:
    yield from sorted(store.glob("checkpoints/checkpoint_*/manifest.json"))
    yield from sorted(store.glob("manifests/manifest-*.json"))


def _undecide(store: Path) -> None:
    """A checkpoint of an earlier version has no digest of what was decided, which nobody mends."""
    for file in manifests(store):
        manifest = CheckpointManifest.from_json(unseal(file.read_bytes()))
        plain = manifest.with_extra(decision=None, parent_decision=None)
        file.write_bytes(seal(plain.to_json()))


def fit(store: Path) -> None:
    """Have the checksums in all manifests be those of what is stored."""
    for file in manifests(store):
        data = file.read_bytes()
        if not is_sealed(data):
            continue
        try:
            manifest = CheckpointManifest.from_json(unseal(data))
        except SeamarkError:
            continue  # which is told in its own way
        fitting = _fitting(store, file, manifest)
        if fitting is not manifest:
            file.write_bytes(seal(fitting.to_json()))


def _fitting(store: Path, file: Path, manifest: CheckpointManifest) -> CheckpointManifest:
    made = manifest
    try:
        sidecar = file.with_name("state.bin")
        if sidecar.is_file() and manifest.state_checksum is not None:
            made = _with_sidecar(manifest, sidecar.read_bytes())
        elif manifest.state_checksum is not None and not sidecar.exists():
            made = made.replace(state_checksum=inline_checksum(manifest))
        if manifest.shared_objects:
            made = made.with_extra(shared_objects=[_object(store, *o) for o in made.shared_objects])
    except (SeamarkError, ValueError, TypeError, AttributeError, RecursionError):
        return manifest
    return made if made != manifest else manifest


def _with_sidecar(manifest: CheckpointManifest, data: bytes) -> CheckpointManifest:
    checksum = hashlib.sha256(checksum_prefix(manifest) + data).hexdigest()
    states = dict(manifest.operator_states)
    outside = [name for name, state in states.items() if state.external]
    if len(outside) == 1:
        states[outside[0]] = OperatorCheckpoint.in_sidecar(0, len(data))
    made = manifest.replace(state_checksum=checksum, operator_states=states)
    return made.with_extra(state_bytes=len(data)) if manifest.state_bytes is not None else made


def _object(store: Path, name: str, size: int, sha256: str) -> list[Any]:
    file = next(iter(store.glob(f"**/{name}")), None)
    if file is None or len(name) > 100:
        return [name, size, sha256]
    data = file.read_bytes()
    return [name, len(data), hashlib.sha256(data).hexdigest()]
