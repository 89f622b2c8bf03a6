"""Many small states into packs in memory, against the least that compressing and hashing costs.

The baseline compresses each blob with LZ4, keeps the smaller of both, hashes the blob with SHA-256,
joins packs of the same size in memory and takes their CRC32C. Ours makes a checkpoint of it: names,
an index per pack, and a manifest with an entry per blob, which is read back before it is written.
"""

from __future__ import annotations

import os
from functools import partial
from hashlib import sha256
from typing import Final

import google_crc32c
import lz4.block

from harness import Row, Run, in_milliseconds, interleaved, options, ratio, show
from seamark._common.json_documents import seal
from seamark.blobs.memory import MemoryBlobs
from seamark.state import CheckpointManifestV2, StateStore
from seamark.state.layout import OperatorSnapshotEntry
from seamark.state.task import PACK_BYTES

BLOB: Final = 4096
COUNT: Final = 10_000


def half_zeros(count: int) -> list[bytes]:
    """Every other blob compresses to next to nothing."""
    return [os.urandom(BLOB) if number % 2 else bytes(BLOB) for number in range(count)]


def random(count: int) -> list[bytes]:
    """No blob compresses at all."""
    return [os.urandom(BLOB) for _ in range(count)]


def pack(blobs: list[bytes]) -> MemoryBlobs:
    """One checkpoint with a partition per blob."""
    place = MemoryBlobs()
    with StateStore(place) as store, store.begin(epoch=1) as writer:
        for partition, blob in enumerate(blobs):
            writer.put("window", partition, blob)
        writer.commit()
    return place


def compress_and_hash(blobs: list[bytes]) -> list[int]:
    """What must be done to every blob and every pack, and nothing else."""
    packs: list[bytes] = []
    blocks: list[bytes] = []
    size = 0
    for blob in blobs:
        sha256(blob).digest()
        block = lz4.block.compress(blob, store_size=False)
        if len(block) >= len(blob):
            block = blob
        blocks.append(block)
        size += len(block)
        if size >= PACK_BYTES:
            packs.append(b"".join(blocks))
            blocks, size = [], 0
    packs.append(b"".join(blocks))
    return [google_crc32c.value(whole) for whole in packs]


def manifest_of(blobs: list[bytes]) -> CheckpointManifestV2:
    """The manifest that :func:`pack` has written."""
    with StateStore(pack(blobs)) as store:
        return store.load(store.list()[-1])


def write_manifest(manifest: CheckpointManifestV2) -> None:
    """What a commit does to the manifest: encoded, read back, sealed."""
    entries = manifest.operators["window"].partitions
    operators = {"window": OperatorSnapshotEntry(entries, sum(e.size_bytes for e in entries))}
    document = manifest.replace(operators=operators).to_json()
    CheckpointManifestV2.from_json(document)
    seal(document)


def measured(what: str, blobs: list[bytes], rounds: int) -> list[Row]:
    """Time and objects for one kind of blobs."""
    manifest = manifest_of(blobs)

    def ours() -> None:
        pack(blobs)

    def baseline() -> None:
        compress_and_hash(blobs)

    cases: dict[str, Run] = {
        "ours": ours,
        "baseline": baseline,
        "manifest": partial(write_manifest, manifest),
    }
    times = interleaved(cases, rounds)
    said = f"LZ4, SHA-256, CRC32C ({in_milliseconds(times['baseline'])})"
    objects = len(pack(blobs).entries(""))
    return [
        Row(
            f"{len(blobs)} blobs of 4 KiB, {what}",
            said,
            ratio(times["ours"], times["baseline"]),
            1.3,
        ),
        Row("  of which the manifest", "the same", ratio(times["manifest"], times["baseline"])),
        Row("  objects", "-", objects, 6, ""),
    ]


def main() -> None:
    """Print the table."""
    given = options(__doc__)
    count, rounds = (COUNT, 7) if given.quick else (COUNT, 31)
    rows = [
        *measured("half zeros", half_zeros(count), rounds),
        *measured("random", random(count), rounds),
    ]
    show(f"packing small states into memory, {rounds} rounds", rows)


if __name__ == "__main__":
    main()
