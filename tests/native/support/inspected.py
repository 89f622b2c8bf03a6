"""Checkpoint directories with state that can be read, made by hand and out of samples."""

from __future__ import annotations

import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import xxhash

from seamark.checkpoint_dir.formats.rocksdb_zip import sst_sizes
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.native.inspect.inspection import Inspection, inspect
from tests.checkpoint_dir.support.directories import source_entry
from tests.checkpoint_dir.support.samples import SAMPLES, sample

Make = Callable[[Path], object]

CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
}


def looked_at(root: Path, *, read_data: bool = False) -> Inspection:
    return inspect(LocalDirectory(root), read_data=read_data, pause=0)


def codes(found: Inspection) -> list[str]:
    return [str(finding.code) for finding in found.findings]


def delta(rows: dict[str, str | None]) -> bytes:
    """A delta, changelog or snapshot as Spark writes it, but for the compression."""
    return packed(
        {
            key.encode().ljust(16): None if value is None else value.encode().ljust(16)
            for key, value in rows.items()
        }
    )


def packed(rows: Mapping[bytes, bytes | None]) -> bytes:
    """The same of keys and values as they are."""
    plain = b""
    for name, data in rows.items():
        plain += struct.pack(">i", len(name)) + name
        plain += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    plain += struct.pack(">i", -1)
    checksum = xxhash.xxh32_intdigest(plain, 0x9747B28C) & (1 << 28) - 1
    head = struct.pack("<8sBIII", b"LZ4Block", 0x16, len(plain), len(plain), checksum)
    return head + plain + struct.pack("<8sBIII", b"LZ4Block", 0x16, 0, 0, 0)


def rows_of(partition: int, version: int) -> dict[str, str | None]:
    """What a batch writes: one key of this partition is counted on, another one is new."""
    return {f"{partition}-all": str(version), f"{partition}-{version}": "1"}


def offsets(number: int, *more: str, conf: dict[str, str] | None = None) -> str:
    meta = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": conf or CONF})
    return "\n".join(["v1", meta, f'{{"logOffset":{number}}}', *more])


def write(root: Path, path: str, data: bytes | str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    return file


def make_logs(root: Path, batches: int, *, first: int = 0, partitions: int = 2) -> Path:
    """A stateless query over one file source."""
    conf = CONF | {"spark.sql.shuffle.partitions": str(partitions)}
    write(root, "metadata", '{"id":"6f1c0000-0000-4000-8000-000000000000"}')
    for batch in range(batches):
        write(root, f"sources/0/{batch}", source_entry(batch))
    for batch in range(first, batches):
        write(root, f"offsets/{batch}", offsets(batch, conf=conf))
        write(root, f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')
    return root


def describe(root: Path, operator: int, partitions: int, *stores: str) -> None:
    names = stores or ("default",)
    info = {
        "operatorInfo": {"operatorId": operator, "operatorName": "stateStoreSave"},
        "stateStoreInfo": [
            {"storeName": name, "numColsPrefixKey": 0, "numPartitions": partitions}
            for name in names
        ],
    }
    write(root, f"state/{operator}/_metadata/metadata", f"v1\n{json.dumps(info)}")


def make_hdfs(root: Path, batches: int = 8, *, first: int = 0, snapshot: int | None = 5) -> Path:
    """An aggregation in two partitions, with a snapshot of each that is right."""
    make_logs(root, batches, first=first)
    describe(root, 0, 2)
    for partition in range(2):
        state: dict[str, str | None] = {}
        for version in range(1, batches + 1):
            rows = rows_of(partition, version)
            state |= rows
            if version > first:
                write(root, f"state/0/{partition}/{version}.delta", delta(rows))
            if version == snapshot:
                write(root, f"state/0/{partition}/{version}.snapshot", delta(state))
    return root


def make_rocksdb(root: Path) -> Path:
    """One partition with a snapshot of RocksDB; its SST files have the right size only."""
    make_logs(root, 3, partitions=1)
    describe(root, 0, 1)
    zipped = sample("rocksdb/3.zip")
    write(root, "state/0/0/3.zip", zipped)
    for name, size in sst_sizes(zipped).items():
        write(root, f"state/0/0/SSTs/{name}", bytes(size))
    return root


def make_format_2(root: Path) -> Path:
    """Changelogs of checkpoint format 2 in one partition, with Spark's checksums."""
    found = sorted((SAMPLES / "changelog-3").glob("*.changelog"))
    make_logs(root, len(found), partitions=1)
    describe(root, 0, 1)
    for file in found:
        version, _, uid = file.stem.partition("_")
        write(root, f"state/0/0/{file.name}", file.read_bytes())
        write(root, f"state/0/0/{file.name}.crc", Path(f"{file}.crc").read_bytes())
        ids = {"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": [[uid]]}}
        write(root, f"commits/{int(version) - 1}", f"v2\n{json.dumps(ids)}")
    return root


def name_schema(root: Path, where: str) -> None:
    """Have the operator's description name a schema file below a directory."""
    file = "state/0/_stateSchema/default/0_aa"
    info = {
        "operatorInfo": {"operatorId": 0, "operatorName": "transformWithState"},
        "stateStoreInfo": [
            {
                "storeName": "default",
                "numColsPrefixKey": 0,
                "numPartitions": 2,
                "stateSchemaFilePaths": [f"file:{where}/{file}"],
            }
        ],
    }
    write(root, "state/0/_metadata/v2/0", f"v2\n{json.dumps(info)}")
    write(root, file, b"schema")


def make_replaying(root: Path) -> None:
    """Batch 8 was planned and has written some of its state."""
    make_hdfs(root)
    write(root, "offsets/8", offsets(8))
    write(root, "sources/0/8", source_entry(8))
    write(root, "state/0/0/9.delta", delta(rows_of(0, 9)))


def make_checksummed(root: Path) -> None:
    make_hdfs(root)
    for file in [path for path in root.rglob("*") if path.is_file()]:
        write(file.parent, f".{file.name}.crc", hadoop_crc(file.read_bytes()))


def make_timed(root: Path) -> Path:
    """The same with the times at which Spark would have written the files."""
    return in_time(make_hdfs(root))


def in_time(root: Path, first: int = 1) -> Path:
    """Each batch is planned, writes state and is finished; what is older was put there later."""
    for file in [path for path in root.rglob("*") if path.is_file()]:
        number = int("".join(filter(str.isdigit, file.name)) or 0)
        log = file.parent.name
        batch = number if log in ("offsets", "commits", "0") and "state" not in file.parts else None
        at = 1_000_000 + 10 * (number - 1 if batch is None else batch)
        at += {"offsets": 1, "commits": 9}.get(log, 5)
        if batch is None and number < first:
            at = 2_000_000
        os.utime(file, (at, at))
    return root


def make_schema_here(root: Path) -> None:
    make_hdfs(root)
    name_schema(root, str(root))


def hadoop_crc(data: bytes) -> bytes:
    sums = [zlib.crc32(data[at : at + 512]) for at in range(0, len(data), 512)]
    return struct.pack(f">4sI{len(sums)}I", b"crc\0", 512, *sums)


# what is done to a directory


def drop(*paths: str) -> Make:
    def do(root: Path) -> None:
        for path in paths:
            (root / path).unlink()

    return do


def put(path: str, data: bytes | str) -> Make:
    return lambda root: write(root, path, data)


def copy_file(source: str, target: str) -> Make:
    return lambda root: shutil.copy(root / source, root / target)


def swap(a: str, b: str) -> Make:
    def do(root: Path) -> None:
        first, second = (root / a).read_bytes(), (root / b).read_bytes()
        write(root, a, second)
        write(root, b, first)

    return do


def exchange(a: str, b: str) -> Make:
    """Files that change their names keep their times."""

    def do(root: Path) -> None:
        (root / a).rename(root / "kept")
        (root / b).rename(root / a)
        (root / "kept").rename(root / b)

    return do


def cut(path: str) -> Make:
    def do(root: Path) -> None:
        file = root / path
        file.write_bytes(file.read_bytes()[:-5])

    return do


def both(*does: Make) -> Make:
    return lambda root: [do(root) for do in does]
