"""What the log of a Delta table says about a query.

Every commit of a streaming write has an action ``{"txn": {"appId": the query's id, "version": the
batch}}``. Commits are removed after a while; a checkpoint of the log holds the last one of each id.

Tests: ``tests/native/test_sink_tables.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final

import msgspec

from seamark import limits
from seamark.checkpoint_dir.places.directory import Tree
from seamark.errors import RefusedError
from seamark.native.delta_checkpoints import batches_of
from seamark.native.table_log import TableAt, damaged, read_file

DELTA_LOG: Final = "_delta_log"
_COMMIT: Final = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT: Final = re.compile(r"([0-9]{20})\.checkpoint(\..+)?\.parquet")
_TXN_LINE: Final = re.compile(rb'^\{"txn".*', re.MULTILINE)


class _Txn(msgspec.Struct):
    appId: str
    version: int


class _Action(msgspec.Struct):
    txn: _Txn | None = None


def delta_table_at(tree: Tree, query_id: str, batch: int) -> TableAt:
    """Walk from the newest commit down to the first one with the batch or an earlier one."""
    url = tree.directory.url.removesuffix(f"/{DELTA_LOG}")
    commits = {int(m[1]): name for name in tree.names("") if (m := _COMMIT.fullmatch(name))}
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
    for line in _TXN_LINE.finditer(read_file(tree, name)):
        try:
            action = msgspec.json.decode(line[0], type=_Action)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise damaged(tree, name, error) from None
        if action.txn is not None and action.txn.appId == query_id:
            yield action.txn.version


def _in_checkpoint(tree: Tree, query_id: str) -> int | None:
    """The last batch that the newest checkpoint of the log knows; its commits have been removed."""
    checkpoints = [(int(m[1]), n) for n in tree.names("") if (m := _CHECKPOINT.fullmatch(n))]
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
            batches += batches_of(read_file(tree, name), query_id)
        except ValueError as error:
            raise damaged(tree, name, error) from None
    return max(batches, default=None)
