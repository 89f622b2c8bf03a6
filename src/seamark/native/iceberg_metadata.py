"""What the metadata of an Iceberg table says about a query.

Every snapshot of a streaming write has the query's id and the batch in its summary.

Tests: ``tests/native/test_sink_tables.py``.
"""

from __future__ import annotations

import io
import re
from typing import Final

import msgspec

from seamark import limits
from seamark.checkpoint_dir.places.directory import Tree
from seamark.errors import RefusedError
from seamark.native.table_log import TableAt, damaged, read_file

ICEBERG_METADATA: Final = "metadata"
_FILE: Final = re.compile(r"(?:v([0-9]{1,18})|([0-9]{1,18})-[^/]+?)(?:\.gz)?\.metadata\.json")
_QUERY: Final = "spark.sql.streaming.queryId"
_EPOCH: Final = "spark.sql.streaming.epochId"


class _Snapshot(msgspec.Struct, rename="kebab"):
    snapshot_id: int
    parent_snapshot_id: int | None = None
    summary: dict[str, str] = {}


class _IcebergMetadata(msgspec.Struct, rename="kebab"):
    current_snapshot_id: int | None = None
    snapshots: list[_Snapshot] = []


def iceberg_table_at(tree: Tree, query_id: str, batch: int) -> TableAt:
    """Follow the snapshots from the current one back, as Iceberg's own writer does."""
    url = tree.directory.url.removesuffix(f"/{ICEBERG_METADATA}")
    metadata = _newest_metadata(tree)
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    newest: int | None = None
    before_later: int | None = None
    last_later: int | None = None
    at = metadata.current_snapshot_id
    visited: set[int] = set()
    while at is not None and at in by_id and at not in visited:
        visited.add(at)
        snapshot = by_id[at]
        epoch = _epoch_of(tree, snapshot, query_id)
        if epoch is not None:
            newest = epoch if newest is None else newest
            if epoch <= batch:
                break
            before_later, last_later = snapshot.parent_snapshot_id, epoch
        at = snapshot.parent_snapshot_id
    # where snapshots have expired, earlier ones of later batches may be among them
    reached = at is None or at in by_id or last_later == batch + 1
    known = before_later if reached and before_later in by_id else None
    return TableAt("iceberg", url, newest, known)


def _newest_metadata(tree: Tree) -> _IcebergMetadata:
    matches = ((_FILE.fullmatch(name), name) for name in tree.names(""))
    numbered = [(int(m[1] or m[2]), name) for m, name in matches if m is not None]
    if not numbered:
        raise RefusedError(
            "there is no metadata file of an Iceberg table", where=tree.directory.url
        )
    name = max(numbered)[1]
    data = read_file(tree, name)
    try:
        if ".gz." in name:
            data = _unzipped(data)
        return msgspec.json.decode(data, type=_IcebergMetadata)
    except (msgspec.DecodeError, RecursionError, ValueError, OSError, EOFError) as error:
        raise damaged(tree, name, error) from None


def _unzipped(data: bytes) -> bytes:
    import gzip

    most = limits.largest_table_text(len(data))
    with gzip.open(io.BytesIO(data)) as file:
        text = file.read(most + 1)
    if len(text) > most:
        raise ValueError(f"it unpacks to more than {most} bytes")
    return text


def _epoch_of(tree: Tree, snapshot: _Snapshot, query_id: str) -> int | None:
    if snapshot.summary.get(_QUERY) != query_id:
        return None
    try:
        return int(snapshot.summary[_EPOCH])
    except (KeyError, ValueError) as error:
        raise damaged(tree, f"snapshot {snapshot.snapshot_id}", error) from None
