"""What the log of a Delta table says about a query.

Every commit of a streaming write has an action ``{"txn": {"appId": the query's id, "version": the
batch}}``. Commits are removed after a while; a checkpoint of the log holds the last one of each id.
A log that tells neither way is refused: a batch that the table knows would be dropped.

Tests: ``tests/native/test_delta_log.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

import msgspec

from seamark import limits
from seamark.checkpoint_dir.places.directory import Tree
from seamark.errors import RefusedError
from seamark.native.delta_checkpoints import (
    LONGEST_NAME,
    MOST_NAMED,
    KnownBatches,
    UnreadablePart,
    batches_in,
    versions_of,
    whole_checkpoints,
)
from seamark.native.table_log import (
    SAY_IT_YOURSELF,
    OtherWriters,
    TableAt,
    damaged,
    read_file,
)

DELTA_LOG: Final = "_delta_log"
_COMMIT: Final = re.compile(r"([0-9]{20})\.json")
_UNPUBLISHED: Final = ("_commits", "_staged_commits")
"""Where commits lie that a coordinator or a catalog decides about."""
_TXN: Final = b'"txn"'


class _Txn(msgspec.Struct):
    appId: str
    version: int


class _Action(msgspec.Struct):
    txn: _Txn | None = None


def delta_table_at(tree: Tree, query_id: str, batch: int) -> TableAt:
    """Walk from the newest commit down to the first one with the batch or an earlier one.

    :class:`RefusedError` when the log does not tell whether the table has seen the query.
    """
    _refuse_unpublished(tree)
    url = tree.directory.url.removesuffix(f"/{DELTA_LOG}")
    commits = {int(m[1]): name for name in tree.names("") if (m := _COMMIT.fullmatch(name))}
    last = max([*commits, *versions_of(tree.names(""))], default=-1)
    if last < 0:
        raise RefusedError(
            "there is no commit in the log of the Delta table",
            where=tree.directory.url,
            hint=SAY_IT_YOURSELF,
        )
    oldest_read = last + 1
    others: dict[str, int] = {}
    beside = OtherWriters(batch)
    newest: int | None = None
    first_later: int | None = None
    reached = False
    while oldest_read - 1 in commits and last - oldest_read + 1 < limits.MOST_TABLE_COMMITS:
        oldest_read -= 1
        batches = _batches_in(tree, commits[oldest_read])
        last_batch = batches.pop(query_id, None)
        others |= {name: at for name, at in batches.items() if at > others.get(name, batch)}
        beside.saw_after(batches, oldest_read - 1 if oldest_read else None)
        if last_batch is None:
            continue
        newest = last_batch if newest is None else newest
        if last_batch > batch:
            first_later = oldest_read
        if last_batch <= batch + 1:
            reached = True
            break
    reached = reached or oldest_read == 0
    if newest is None and not reached:
        known = _in_checkpoint(tree, query_id, batch, oldest_read - 1)
        newest, others = known.newest, {**known.ahead, **others}
    # a query that has noted this batch by its id writes no other way
    if others and (newest is None or newest < batch):
        raise _seen_under_another_name(tree, others)
    if newest == batch and reached:
        _require_not_gone_on(tree, commits, oldest_read, beside)
    version = first_later - 1 if first_later is not None and reached and first_later else None
    return TableAt("delta", url, newest, version)


def _require_not_gone_on(
    tree: Tree, commits: Mapping[int, str], version: int, beside: OtherWriters
) -> None:
    """Walk on from the commit of the query's batch, as far as it takes to know who was there."""
    oldest = max(0, version - limits.MOST_TABLE_COMMITS)
    while beside.are_unknown() and version - 1 in commits and version > oldest:
        version -= 1
        beside.saw_earlier(_batches_in(tree, commits[version]))
    url = tree.directory.url.removesuffix(f"/{DELTA_LOG}")
    beside.require_none(url, is_whole=version == 0)


def _refuse_unpublished(tree: Tree) -> None:
    for folder in _UNPUBLISHED:
        if tree.names(folder):
            raise RefusedError(
                "the table's catalog or coordinator decides which commits count, and it is not "
                "asked",
                where=f"{tree.directory.url}/{folder}",
                hint=SAY_IT_YOURSELF,
            )


def _seen_under_another_name(tree: Tree, others: Mapping[str, int]) -> RefusedError:
    """A function that writes with ``txnAppId`` and ``txnVersion`` gives its batches a name."""
    some = sorted(others.items())[:MOST_NAMED]
    named = ", ".join(f"{name[:LONGEST_NAME]!r} up to {at}" for name, at in some)
    return RefusedError(
        "the table does not know this batch of the query by its id, and has later ones under other "
        "names",
        where=f"{tree.directory.url}: {named}",
        hint="If one of them is the query's own (txnAppId in a function), the table drops its next "
        "batches: restore the table as well, or give the function another name. Then leave --table "
        "out and say --query-id yourself.",
    )


def _batches_in(tree: Tree, name: str) -> dict[str, int]:
    """By the name of a writer: its last batch in a file that has one action a line."""
    batches: dict[str, int] = {}
    data = read_file(tree, name)
    at = data.find(_TXN)
    while at >= 0:
        start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
        end = len(data) if end < 0 else end
        try:
            action = msgspec.json.decode(memoryview(data)[start:end], type=_Action)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise damaged(tree, name, error) from None
        if (txn := action.txn) is not None:
            batches[txn.appId] = max(txn.version, batches.get(txn.appId, txn.version))
        at = data.find(_TXN, end)
    return batches


def _in_checkpoint(tree: Tree, query_id: str, batch: int, needed: int) -> KnownBatches:
    """What a checkpoint of the log knows; the commits that it stands for have been removed.

    It must be one of the version ``needed`` or a later one, or commits lie between.
    """
    checkpoints = whole_checkpoints(tree.names(""))
    version = max(checkpoints, default=-1)
    if version < needed:
        raise RefusedError(
            "the table's log does not tell whether it has seen the query: commits up to version "
            f"{needed} were not searched, and no whole checkpoint of the log stands for them",
            where=tree.directory.url,
            hint=SAY_IT_YOURSELF,
        )
    names = checkpoints[version]
    if names[0].endswith(".json"):
        batches = _batches_in(tree, names[0])
        own = batches.pop(query_id, None)
        return KnownBatches(own, {name: at for name, at in batches.items() if at > batch})
    if find_spec("pyarrow") is None:
        raise RefusedError(
            "a part of the table's log is a Parquet file, which takes pyarrow to read",
            where=tree.directory.url,
            hint="pip install pyarrow, or leave --table out and say --query-id yourself.",
        )
    size = tree.size_of(names)
    if len(names) > limits.MOST_CHECKPOINT_PARTS or size > limits.LARGEST_TABLE_CHECKPOINT:
        raise RefusedError(
            f"the checkpoint of the table's log has {size} bytes in {len(names)} parts, and "
            f"{limits.LARGEST_TABLE_CHECKPOINT} in {limits.MOST_CHECKPOINT_PARTS} are read",
            where=f"{tree.directory.url}/{names[0]}",
            hint=SAY_IT_YOURSELF,
        )
    try:
        return batches_in({name: tree.stream(name) for name in names}, query_id, batch)
    except UnreadablePart as error:
        raise damaged(tree, error.name, error) from None
