"""What the metadata of an Iceberg table says about a query.

Every snapshot of a streaming write has the query's id and the batch in its summary. Which metadata
file is the current one, only the catalog knows. Their names tell it almost always; where they leave
several, all of them are read, and must not differ in what follows from them.

Tests: ``tests/native/test_iceberg_metadata.py``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, TypeVar

import msgspec

from seamark import limits, limits_by_size
from seamark._common.json_documents import most_values_in
from seamark.checkpoint_dir.places.directory import Tree
from seamark.errors import RefusedError
from seamark.native.table_log import (
    SAY_IT_YOURSELF,
    OtherWriters,
    TableAt,
    damaged,
    read_file,
)
from seamark.table_formats.limited_metadata import unzipped

ICEBERG_METADATA: Final = "metadata"
_ENDINGS: Final = (".metadata.json", ".metadata.json.gz")
# by Hadoop's file systems as catalog, or by any other one
_FILE: Final = re.compile(
    r"(?:v([0-9]{1,18})|([0-9]{1,18})-[^/]+?)(?:\.gz)?\.metadata\.json(?:\.gz)?"
)
_HINT: Final = "version-hint.text"
_LONGEST_HINT: Final = 300
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_QUERY: Final = "spark.sql.streaming.queryId"
_EPOCH: Final = "spark.sql.streaming.epochId"

T = TypeVar("T")


class _Snapshot(msgspec.Struct, rename="kebab"):
    snapshot_id: int
    parent_snapshot_id: int | None = None
    summary: dict[str, str] = {}


class _Earlier(msgspec.Struct, rename="kebab", gc=False):
    metadata_file: str = ""


class _Ref(msgspec.Struct, rename="kebab"):
    snapshot_id: int
    type: str = ""


class _Log(msgspec.Struct, rename="kebab"):
    metadata_log: list[_Earlier] = []


class _Metadata(msgspec.Struct, rename="kebab"):
    current_snapshot_id: int | None = None
    snapshots: list[_Snapshot] = []
    refs: dict[str, _Ref] = {}


def iceberg_table_at(tree: Tree, query_id: str, batch: int) -> TableAt:
    """Follow the snapshots from the current one back, as Iceberg's own writer does.

    :class:`RefusedError` when it is not known which metadata file or branch counts, and it matters.
    """
    names = _newest_files(tree)
    # one at a time: a few kilobytes may hold very many entries
    earlier = {each for name in names for each in _earlier_ones(tree, name, names)}
    current = [name for name in names if name not in earlier] or names
    looks = {
        name: _look(tree, _decoded(tree, name, _Metadata), query_id, batch) for name in current
    }
    newest = max(looks.values(), key=lambda at: -1 if at.newest_batch is None else at.newest_batch)
    if not newest.is_ahead_of(batch):
        return newest
    if {(at.is_ahead_of(batch), at.version) for at in looks.values()} != {(True, newest.version)}:
        raise RefusedError(
            "only the catalog knows which metadata file of the Iceberg table is the current one, "
            f"and they differ in what they have after batch {batch}",
            where=f"{tree.directory.url}: {', '.join(sorted(looks))}",
            hint=f"{SAY_IT_YOURSELF} The catalog has the current one as its metadata_location.",
        )
    return newest


def _newest_files(tree: Tree) -> list[str]:
    """The metadata files of which one is the current one, by their names and times."""
    by_catalog: dict[int, list[str]] = {}
    by_hadoop: dict[int, list[str]] = {}
    names = [name for name in tree.names("") if name.endswith(_ENDINGS)]
    for name in names:
        if (match := _FILE.fullmatch(name)) is None:
            raise RefusedError(
                "a metadata file of the Iceberg table has a name that does not tell how new it is",
                where=f"{tree.directory.url}/{name}",
                hint=SAY_IT_YOURSELF,
            )
        of_kind = by_catalog if match[1] is None else by_hadoop
        of_kind.setdefault(int(match[1] or match[2]), []).append(name)
    if not names:
        raise RefusedError(
            "there is no metadata file of an Iceberg table", where=tree.directory.url
        )
    hint = _hint(tree)
    highest = by_catalog[max(by_catalog)] if by_catalog else []
    hinted = [name for name in highest if name == hint or name.startswith(f"{hint}.")]
    chosen = hinted or list(highest)
    if by_hadoop:
        chosen += by_hadoop[_hadoop_version(by_hadoop, hint)]
    if not hinted and (by_catalog or not hint):
        # numbers begin anew when a table is dropped and made again, or registered elsewhere
        chosen.append(max(names, key=lambda name: tree.entries[name].modified))
    chosen = sorted(set(chosen))
    if len(chosen) > limits.MOST_TABLE_CANDIDATES:
        raise RefusedError(
            f"{len(chosen)} metadata files of the Iceberg table may be the current one",
            where=tree.directory.url,
            hint=SAY_IT_YOURSELF,
        )
    return chosen


def _hint(tree: Tree) -> str:
    """What ``version-hint.text`` says; nothing when there is none."""
    if _HINT not in tree.names("") or tree.entries[_HINT].size > _LONGEST_HINT:
        return ""
    return read_file(tree, _HINT).decode(errors="replace").strip()


def _hadoop_version(versions: Mapping[int, object], hint: str) -> int:
    """As Iceberg finds it: from the hint on, as far as one version follows the other."""
    if not (hint.isascii() and hint.isdigit() and int(hint) in versions):
        return max(versions)
    version = int(hint)
    while version + 1 in versions:
        version += 1
    return version


def _earlier_ones(tree: Tree, name: str, names: Collection[str]) -> set[str]:
    """Which of some metadata files one knows as earlier ones."""
    log = _decoded(tree, name, _Log).metadata_log
    return {found for each in log if (found := each.metadata_file.rpartition("/")[2]) in names}


def _decoded(tree: Tree, name: str, kind: type[T]) -> T:
    data = read_file(tree, name)
    most = limits_by_size.most_table_values(len(data))
    try:
        if ".gz." in name or name.endswith(".gz"):
            data = unzipped(data)
        if (count := most_values_in(data)) > most:
            raise ValueError(f"it has {count} values, and {most} is the most")
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, ValueError, OSError, EOFError) as error:
        raise damaged(tree, name, error) from None


def _look(tree: Tree, metadata: _Metadata, query_id: str, batch: int) -> TableAt:
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    visited: set[int] = set()  # by any branch: where two meet, the first one has told
    at, oldest = _look_from(tree, by_id, metadata.current_snapshot_id, query_id, batch, visited)
    if at.is_ahead_of(batch):
        return at
    if at.newest_batch is None and oldest is not None and oldest not in by_id:
        raise RefusedError(
            "the Iceberg table does not tell whether it has seen the query: its snapshots up to "
            f"{oldest} have expired",
            where=at.url,
            hint=SAY_IT_YOURSELF,
        )
    if at.newest_batch is not None:
        _require_not_gone_on(by_id, metadata.current_snapshot_id, query_id, batch, at.url)
    for name, ref in metadata.refs.items():
        if ref.type != "branch":
            continue
        branch, _ = _look_from(tree, by_id, ref.snapshot_id, query_id, batch, visited)
        if branch.is_ahead_of(batch):
            raise RefusedError(
                f"branch {name!r} of the Iceberg table has later batches of this query than main, "
                "and it is not known which of them the query writes to",
                where=at.url,
                hint="Leave --table out. If it writes to main: --query-id keep. If it writes to "
                "the branch: bring that back, and say --query-id yourself.",
            )
    return at


def _look_from(
    tree: Tree,
    by_id: Mapping[int, _Snapshot],
    head: int | None,
    query_id: str,
    batch: int,
    visited: set[int],
) -> tuple[TableAt, int | None]:
    """What the snapshots of a branch say, and the last one that was looked for; None if that was
    the first of the table."""
    url = tree.directory.url.removesuffix(f"/{ICEBERG_METADATA}")
    newest: int | None = None
    before_later: int | None = None
    last_later: int | None = None
    at = head
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
    return TableAt("iceberg", url, newest, known), at


def _epoch_of(tree: Tree, snapshot: _Snapshot, query_id: str) -> int | None:
    if snapshot.summary.get(_QUERY) != query_id:
        return None
    try:
        return int(snapshot.summary[_EPOCH])
    except (KeyError, ValueError) as error:
        raise damaged(tree, f"snapshot {snapshot.snapshot_id}", error) from None


def _require_not_gone_on(
    by_id: Mapping[int, _Snapshot], head: int | None, query_id: str, batch: int, url: str
) -> None:
    """:class:`RefusedError` when another query has written what follows the query's last batch."""
    beside, reached, visited = OtherWriters(batch), False, set[int]()
    at = head
    while at is not None and at in by_id and at not in visited:
        visited.add(at)
        snapshot = by_id[at]
        writer, number = snapshot.summary.get(_QUERY), snapshot.summary.get(_EPOCH, "")
        noted = {writer: int(number)} if writer and _NUMBER.fullmatch(number) else {}
        if reached:
            beside.saw_earlier(noted)
            if not beside.are_unknown():
                return
        elif writer == query_id:
            reached = True
        else:
            beside.saw_after(noted, snapshot.parent_snapshot_id)
        at = snapshot.parent_snapshot_id
    beside.require_none(url, is_whole=at is None)
