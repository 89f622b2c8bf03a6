"""Stores as somebody else could have written them: every checksum is right, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from seamark import limits_by_size
from seamark._common.json_documents import seal
from seamark.manifest import CheckpointManifest, OperatorCheckpoint
from seamark.manifest.facts import SharedObject
from seamark.state.pack import PackBuilder
from seamark.store.index_parts import INDEX, LOG
from seamark.store.sidecars import checksum_prefix, inline_checksum

BASE: Mapping[str, bytes] = {
    "metadata": b'{"id":"11111111-1111-1111-1111-111111111111"}',
    "offsets/0": b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"logOffset":0}',
    "commits/0": b'v1\n{"nextBatchWatermarkMs":0}',
}
"""The logs of a directory without state."""


def packed(contents: Mapping[str, bytes]) -> bytes:
    """Files as a pack."""
    builder = PackBuilder()
    builder.add_all(list(contents), list(contents.values()))
    return b"".join(builder.finish())


def bomb(contents: Mapping[str, bytes]) -> bytes:
    """The same, however much it shrinks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits_by_size, "shrinks_too_much", lambda plain, stored: False)
        patch.setattr(limits_by_size, "leaves_no_room", lambda plain, stored: False)
        return packed(contents)


def index_part(
    objects: Iterable[SharedObject] = (),
    added: Iterable[Sequence[Any]] = (),
    **fields: Any,
) -> bytes:
    """An index; a file of which only path, object and whether that is a pack are given has the
    object's size and SHA-256.
    """
    listed = list(objects)

    def entry(given: Sequence[Any]) -> Sequence[Any]:
        if len(given) != 3:
            return given
        path, shared, is_packed = given
        return [path, listed.index(shared), shared.size, bytes.fromhex(shared.sha256), is_packed]

    entries = [entry(given) for given in added]
    names = [shared.name for shared in listed]
    return msgspec.msgpack.encode({"objects": names, "added": entries, "removed": [], **fields})


def log_pack(index: bytes | None = None) -> bytes:
    """Spark's logs and the index."""
    return packed({**BASE, INDEX: index_part() if index is None else index})


def put_object(root: Path, data: bytes, *, hole: int | None = None) -> SharedObject:
    """An object of a store; one with a hole says what it would be if it were right."""
    name = f"0-{os.urandom(16).hex()}"
    file = root / "shared" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    if hole is not None:
        os.truncate(file, hole)
    return SharedObject(name, hole or len(data), sha256(data).hexdigest())


def put_checkpoint(
    root: Path,
    packs: Mapping[str, bytes | OperatorCheckpoint] | None = None,
    *,
    checkpoint_id: int = 1,
    shared: Iterable[SharedObject] = (),
    sidecar: bytes | None = None,
    **fields: Any,
) -> Path:
    """A checkpoint of a directory that Spark keeps by itself; its folder."""
    states = {
        label: OperatorCheckpoint.inline(pack) if isinstance(pack, bytes) else pack
        for label, pack in ({LOG: log_pack()} if packs is None else packs).items()
    }
    known: dict[str, Any] = {
        "epoch": checkpoint_id,
        "batch": 0,
        "generation": 0,
        "native": {"query_id": "x", "directory": "/x"},
        "leaves": ["source-0"],
        "next_watermark": 0,
        "shared_objects": [list(each) for each in shared] or None,
        "state_bytes": None if sidecar is None else len(sidecar),
    }
    manifest = CheckpointManifest.new(checkpoint_id, operator_states=states, **{**known, **fields})
    checksum = inline_checksum(manifest)
    if sidecar is not None:
        checksum = sha256(checksum_prefix(manifest) + sidecar).hexdigest()
    folder = root / f"checkpoints/checkpoint_{checkpoint_id:06}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_bytes(
        seal(manifest.replace(state_checksum=checksum).to_json())
    )
    if sidecar is not None:
        (folder / "state.bin").write_bytes(sidecar)
    (root / "checkpoints/latest.txt").write_text(folder.name)
    return folder
