"""What a Delta or Iceberg table remembers of a query: the batches that it would drop.

Both note the query's id and the batch with every commit of a streaming write, and skip a batch that
is not larger than the last one they have noted. Read from the tables' own files, without Spark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Literal

import msgspec

from seamark import limits
from seamark.checkpoint_dir.places.directory import Directory, Tree
from seamark.errors import CheckpointNotFoundError, DamageError, RefusedError
from seamark.native.delta_checkpoints import batches_of

Kind = Literal["delta", "iceberg"]
OpenDirectory = Callable[[str], AbstractContextManager[Directory]]

DELTA_LOG: Final = "_delta_log"
ICEBERG_METADATA: Final = "metadata"
_DELTA_COMMIT: Final = re.compile(r"([0-9]{20})\.json")
_DELTA_CHECKPOINT: Final = re.compile(r"([0-9]{20})\.checkpoint(\..+)?\.parquet")
_ICEBERG_FILE: Final = re.compile(
    r"(?:v([0-9]{1,18})|([0-9]{1,18})-[^/]+?)(?:\.gz)?\.metadata\.json"
)
_TXN_LINE: Final = re.compile(rb'^\{"txn".*', re.MULTILINE)
_QUERY: Final = "spark.sql.streaming.queryId"
_EPOCH: Final = "spark.sql.streaming.epochId"


@dataclass(frozen=True)
class TableAt:
    """What a table knows of a query, seen from one of its batches."""

    kind: Kind
    url: str
    newest_batch: int | None
    """The last batch of the query that the table has; None when it has none."""
    version: int | None
    """Delta's version or Iceberg's snapshot right before the first later batch; None when nothing
    has to be undone, or when the table's log does not reach back that far."""

    def is_ahead_of(self, batch: int) -> bool:
        """Whether it has later batches, and would drop those numbers."""
        return self.newest_batch is not None and self.newest_batch > batch


def table_at(open_directory: OpenDirectory, table: str, query_id: str, batch: int) -> TableAt:
    """Look a query up in a table; :class:`RefusedError` when there is no table."""
    root = table.rstrip("/")
    looks: tuple[tuple[str, Callable[[Tree, str, int], TableAt]], ...] = (
        (DELTA_LOG, _delta),
        (ICEBERG_METADATA, _iceberg),
    )
    for folder, look in looks:
        with open_directory(f"{root}/{folder}") as directory:
            try:
                tree = Tree.of(directory)
            except CheckpointNotFoundError:
                continue
            if tree.entries:
                return look(tree, query_id, batch)
    raise RefusedError(
        "there is no Delta or Iceberg table",
        where=table,
        hint=f"Give the folder that has {DELTA_LOG} or {ICEBERG_METADATA} in it.",
    )


def _read(tree: Tree, name: str) -> bytes:
    size = tree.entries[name].size
    if size > limits.LARGEST_TABLE_FILE:
        raise RefusedError(
            f"{name} has {size} bytes, and files up to {limits.LARGEST_TABLE_FILE} are read",
            where=tree.directory.url,
            hint="Leave --table out and say --query-id yourself.",
        )
    return tree.read(name)


def _damaged(tree: Tree, name: str, error: object) -> DamageError:
    return DamageError(f"{name} cannot be read: {error}", where=tree.directory.url)


# Delta: an action {"txn": {"appId": the query's id, "version": the batch}} in its commit


class _Txn(msgspec.Struct):
    appId: str
    version: int


class _Action(msgspec.Struct):
    txn: _Txn | None = None


def _delta(tree: Tree, query_id: str, batch: int) -> TableAt:
    """Walk from the newest commit down to the first one with the batch or an earlier one."""
    url = tree.directory.url.removesuffix(f"/{DELTA_LOG}")
    commits = {int(m[1]): name for name in tree.names("") if (m := _DELTA_COMMIT.fullmatch(name))}
    newest: int | None = None
    first_later: int | None = None
    reached = False
    for number in sorted(commits, reverse=True)[: limits.MOST_TABLE_COMMITS]:
        last_batch = max(_batches_in(tree, commits[number], query_id), default=None)
        if last_batch is None:
            continue
        newest = last_batch if newest is None else newest
        if last_batch <= batch:
            reached = True
            break
        first_later = number
        if last_batch == batch + 1:
            reached = True
            break
    reached = reached or 0 in commits
    if newest is None and not reached:
        newest = _in_checkpoint(tree, query_id)
    version = first_later - 1 if first_later is not None and reached and first_later else None
    return TableAt("delta", url, newest, version)


def _batches_in(tree: Tree, name: str, query_id: str) -> Iterator[int]:
    for line in _TXN_LINE.finditer(_read(tree, name)):
        try:
            action = msgspec.json.decode(line[0], type=_Action)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise _damaged(tree, name, error) from None
        if action.txn is not None and action.txn.appId == query_id:
            yield action.txn.version


def _in_checkpoint(tree: Tree, query_id: str) -> int | None:
    """The last batch that the newest checkpoint of the log knows; its commits have been removed."""
    checkpoints = [(int(m[1]), n) for n in tree.names("") if (m := _DELTA_CHECKPOINT.fullmatch(n))]
    if not checkpoints:
        return None
    if find_spec("pyarrow") is None:
        raise RefusedError(
            "a part of the table's log is a Parquet file, which takes pyarrow to read",
            where=tree.directory.url,
            hint="pip install pyarrow, or leave --table out and say --query-id yourself.",
        )
    last = max(number for number, _ in checkpoints)
    batches: list[int] = []
    for name in sorted(n for number, n in checkpoints if number == last):
        try:
            batches += batches_of(_read(tree, name), query_id)
        except ValueError as error:
            raise _damaged(tree, name, error) from None
    return max(batches, default=None)


# Iceberg: query and epoch in the summary of a snapshot


class _Snapshot(msgspec.Struct, rename="kebab"):
    snapshot_id: int
    parent_snapshot_id: int | None = None
    summary: dict[str, str] = {}


class _IcebergMetadata(msgspec.Struct, rename="kebab"):
    current_snapshot_id: int | None = None
    snapshots: list[_Snapshot] = []


def _iceberg(tree: Tree, query_id: str, batch: int) -> TableAt:
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
    matches = ((_ICEBERG_FILE.fullmatch(name), name) for name in tree.names(""))
    numbered = [(int(m[1] or m[2]), name) for m, name in matches if m is not None]
    if not numbered:
        raise RefusedError(
            "there is no metadata file of an Iceberg table", where=tree.directory.url
        )
    name = max(numbered)[1]
    data = _read(tree, name)
    try:
        if ".gz." in name:
            data = _unzipped(data)
        return msgspec.json.decode(data, type=_IcebergMetadata)
    except (msgspec.DecodeError, RecursionError, ValueError, OSError, EOFError) as error:
        raise _damaged(tree, name, error) from None


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
        raise _damaged(tree, f"snapshot {snapshot.snapshot_id}", error) from None


def way_back(at: TableAt, batch: int) -> str:
    """What to do with a table that has later batches than the one to continue from."""
    if at.version is None:
        undo = "its log no longer tells which version was the one before them"
    else:
        name, sql = "snapshot", f"CALL system.rollback_to_snapshot(…, {at.version})"
        if at.kind == "delta":
            name, sql = "version", f"RESTORE TABLE … TO VERSION AS OF {at.version}"
        undo = f"{name} {at.version} is the last one without them ({sql})"
    first, last = batch + 1, at.newest_batch
    which = f"batch {first}" if first == last else f"batches {first} to {last}"
    return f"{at.url} has {which} of this query; {undo}"
