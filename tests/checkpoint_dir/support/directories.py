"""Checkpoint directories as Spark leaves them, made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from seamark.checkpoint_dir.places.local import LocalCopy

QUERY: Final = "6f1c0000-0000-4000-8000-000000000000"


def offsets_text(*lines: str, watermark: int = 0) -> str:
    meta = {"batchWatermarkMs": watermark, "conf": {"spark.sql.shuffle.partitions": "2"}}
    return "\n".join(["v1", json.dumps(meta), *lines])


def make_copy(root: Path, batches: int, *, partitions: int = 2) -> LocalCopy:
    """One aggregation over one file source after some batches, with distinct bytes everywhere."""
    copy = LocalCopy(root)
    info = {
        "operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"},
        "stateStoreInfo": [
            {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": partitions}
        ],
    }
    copy.write("metadata", f'{{"id":"{QUERY}"}}'.encode())
    copy.write("state/0/_metadata/metadata", f"v1\n{json.dumps(info)}".encode())
    for batch in range(batches):
        copy.write(f"offsets/{batch}", offsets_text(f'{{"logOffset":{batch}}}').encode())
        copy.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
        copy.write(f"sources/0/{batch}", source_entry(batch).encode())
        for partition in range(partitions):
            copy.write(f"state/0/{partition}/{batch + 1}.delta", state_of(partition, batch + 1))
    return copy


def source_entry(number: int) -> str:
    return f'v1\n{{"path":"file:///in/{number}","timestamp":{number},"batchId":{number}}}'


def state_of(partition: int, version: int) -> bytes:
    return f"partition {partition} version {version} ".encode() * 20
