"""Rewinding a checkpoint directory to an earlier batch. Nothing is deleted, only moved aside.

What is to be done is decided over one listing (:func:`plan_rewind`) and then done in this order
(:func:`rewind`), so that a crash at any point leaves a directory that Spark refuses, never one that
it continues from with wrong results:

0. A barrier is put after the newest entry of the offset log. From here on no Spark starts on the
   directory, and a query that was running unseen stops at its next batch. The directory is listed
   once more: when anything has changed since the decision, the barrier is taken away again and
   nothing is done.
1. State newer than version N+1, newest first. Left behind it is the one thing that Spark would take
   for its own without an error: it prefers a newer snapshot of the abandoned history. That is why
   it goes first, even if somebody removes the barrier by hand: commits that are still there
   then ask for state that is not, and Spark fails.
2. Commits after N, then offsets after N, newest first, so that neither log ever has a gap.
3. The sources' own logs: what a compaction has absorbed is written before that compaction is
   removed, because it is made of it.
4. The file sink's log, in the same way; newest first, so that readers see an earlier state of it.
5. The query's id, when it is to be a new one.
6. The barrier is taken away.

Each step leaves what the ones before it were decided by: the same command, repeated, finds the
barrier and finishes. SST files of RocksDB stay: their names are unique and only snapshots lead to
them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from seamark import limits
from seamark.capture.batches import BatchAt, batch_at, read_query_id
from seamark.checkpoint_dir.file_logs.sink_log import SinkRewind
from seamark.checkpoint_dir.places.directory import Directory, Tree
from seamark.errors import RefusedError, SeamarkError
from seamark.native.restore import metadata_of
from seamark.native.rewind.barrier import Barrier, behind, found_barrier, new_barrier, without
from seamark.native.rewind.files import (
    SINK_LOG,
    Move,
    keep_copy,
    move_all,
    newer_entries,
    newer_state,
    spare_entries,
    whole_history,
    with_checksum,
    writing_order,
)
from seamark.native.rewind.kept_files import KeptFiles

_YOUNG: Final = 10.0


@dataclass(frozen=True)
class SinkPlan:
    """What becomes of the log of a file sink."""

    log: Directory
    """Its ``_spark_metadata``."""
    rewind: SinkRewind
    moves: tuple[Move, ...]


@dataclass(frozen=True, kw_only=True)
class RewindPlan:
    """What rewinding a directory means; nothing has been done yet."""

    tree: Tree
    """The listing by which it was decided, without the barrier."""
    at: BatchAt
    """The batch that the directory will end with."""
    from_batch: int | None
    """The newest committed batch now."""
    moves: tuple[Move, ...]
    """Files that leave first, in this order."""
    writes: tuple[str, ...]
    """Files that are then written again, in this order."""
    read: Callable[[str], bytes]
    """What is written."""
    spare: tuple[Move, ...]
    """Files that leave last: what is written is made of them."""
    barrier: Barrier
    was_begun: bool
    """Whether a barrier lies there already."""
    sink: SinkPlan | None = None

    @property
    def to_batch(self) -> int:
        """The batch that the directory will end with."""
        return self.at.batch

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        sink = self.sink is not None and bool(self.sink.moves or self.sink.rewind.write)
        return bool(self.moves or self.writes or self.spare or self.was_begun or sink)


def plan_rewind(
    tree: Tree,
    to_batch: int,
    *,
    restored: Tree | None = None,
    checkpoint_id: int | None = None,
    metadata: bytes | None = None,
    sink: SinkPlan | None = None,
) -> RewindPlan:
    """Decide what to do so that Spark continues after ``to_batch``. Changes nothing.

    ``restored`` is that batch as checkpoint ``checkpoint_id`` holds it, when the directory does
    not have it any more; ``metadata`` is the file of a new query id.

    :class:`MissingVersion` when the batch is not there as a whole, :class:`DamageError` when
    something cannot be read.
    """
    begun = found_barrier(tree)
    tree = behind(tree, begun)
    spare: list[Move] = []
    if restored is None:
        moves = [*newer_state(tree, to_batch), *newer_entries(tree, to_batch)]
        at = batch_at(without(tree, [move.path for move in moves]), to_batch)
        _require_described(tree, to_batch)
        source_logs = {path: data for path, data in at.logs.items() if path.startswith("sources/")}
        spare = spare_entries(tree, source_logs)
        changed = {
            path: data for path, data in source_logs.items() if not _is_same(tree, path, data)
        }
        writes, read = list(changed), changed.__getitem__
    else:
        moves = whole_history(tree)
        at = batch_at(restored, to_batch)
        writes = sorted(restored.files_below(""), key=writing_order)
        writes.remove("metadata")
        read = restored.read
    _require_committed(at, tree)
    barrier, metadata = _with_ids(
        new_barrier(tree, to_batch, checkpoint_id), begun, read_query_id(tree), metadata
    )
    if metadata is not None:
        writes.append("metadata")
        read = _with_metadata(read, metadata)
    commits = tree.batches("commits")
    return RewindPlan(
        tree=tree,
        at=at,
        from_batch=commits[-1] if commits else None,
        moves=tuple(moves),
        writes=tuple(writes),
        read=read,
        spare=tuple(spare),
        barrier=barrier,
        was_begun=begun is not None,
        sink=sink,
    )


def _with_ids(
    barrier: Barrier, begun: Barrier | None, query_id: str, metadata: bytes | None
) -> tuple[Barrier, bytes | None]:
    """The barrier with the ids of the query, and the metadata file that is to be written, if any.

    An interrupted rollback may have written a new id already: wished again it is the same one, and
    otherwise the old one comes back.
    """
    before, new = query_id, None if metadata is None else str(json.loads(metadata)["id"])
    if begun is not None:
        before = begun.query_id or before
        barrier = replace(barrier, path=begun.path)
        if metadata is not None and begun.new_query_id is not None:
            new = begun.new_query_id
            metadata = metadata_of(new)
        elif metadata is None and before != query_id:
            metadata = metadata_of(before)
    return replace(barrier, query_id=before, new_query_id=new), metadata


def _with_metadata(read: Callable[[str], bytes], metadata: bytes) -> Callable[[str], bytes]:
    return lambda path: metadata if path == "metadata" else read(path)


class PossibleBatches(NamedTuple):
    """The batches that a directory can be taken back to by itself, each one tried."""

    batches: list[int]
    """Ascending."""
    not_before: int | None
    """The oldest one that was tried, when others before it were not."""


def possible_batches(tree: Tree) -> PossibleBatches:
    """Try the committed batches, the newest first, for as long as :data:`limits.TRYING_SECONDS`.

    Trying one goes through the whole listing and reads what leads to its state.
    """
    tree = behind(tree, found_barrier(tree))
    tree = Tree(KeptFiles(tree.directory), tree.entries)
    batches: list[int] = []
    committed = tree.batches("commits")
    end = time.process_time() + limits.TRYING_SECONDS
    tried: int | None = None
    for tried in reversed(committed):
        with suppress(SeamarkError, FileNotFoundError):
            plan_rewind(tree, tried)
            batches.append(tried)
        if time.process_time() > end:
            break
    is_cut_off = tried is not None and tried != committed[0]
    return PossibleBatches(batches[::-1], tried if is_cut_off else None)


def _is_same(tree: Tree, path: str, data: bytes) -> bool:
    entry = tree.entries.get(path)
    return entry is not None and entry.size == len(data) and tree.read(path) == data


def _require_committed(at: BatchAt, tree: Tree) -> None:
    """See that the directory will say that its last batch was done.

    Without a commit log that is said by the plan of the next batch, which a rewind takes away.
    """
    if f"commits/{at.batch}" not in at.logs:
        raise RefusedError(
            f"batch {at.batch} is not in the commit log: a restart would run it again",
            where=tree.directory.url,
            hint="Spark 2.1 and older keep no such log.",
        )


def _require_described(tree: Tree, batch: int) -> None:
    """See that every operator still has a description of that batch or an earlier one."""
    for number in tree.operator_numbers():
        versions = tree.batches(f"state/{number}/_metadata/v2")
        if versions and versions[0] > batch:
            raise RefusedError(
                f"stateful operator {number} is described from batch {versions[0]} on only",
                where=tree.directory.url,
                hint="Spark has removed what it was before, and would not start without it.",
            )


def sink_plan(log: Tree, rewind_: SinkRewind) -> SinkPlan:
    """What becomes of a file sink's log, with sizes and checksums."""
    moves = [each for name in rewind_.remove for each in with_checksum(log, SINK_LOG, name)]
    return SinkPlan(log.directory, rewind_, tuple(moves))


# doing it


def rewind(directory: Directory, plan: RewindPlan, aside: Directory) -> None:
    """Do what a plan says; what leaves the directory is kept in ``aside``, under the same paths.

    :class:`RefusedError` when the directory has changed since the plan was made.
    """
    barrier = plan.barrier
    directory.write(barrier.path, barrier.text)
    changed = changes(plan.tree, without(Tree.of(directory), [barrier.path]))
    if changed:
        if not plan.was_begun:
            directory.remove([barrier.path])
        raise seems_running(directory, changed)
    move_all(directory, [each.path for each in plan.moves], aside)
    gone = {each.path for each in plan.moves}
    for path in plan.writes:
        if path == "metadata":
            continue  # its turn comes last
        if path in plan.tree.entries and path not in gone:
            keep_copy(directory, path, aside)
        directory.write(path, plan.read(path))
    move_all(directory, [each.path for each in plan.spare], aside)
    if plan.sink is not None:
        rewind_sink(plan.sink, aside)
    if "metadata" in plan.writes:
        keep_copy(directory, "metadata", aside)
        directory.write("metadata", plan.read("metadata"))
    directory.remove([barrier.path])


def rewind_sink(sink: SinkPlan, aside: Directory) -> None:
    """Make the log of a file sink end at a batch; later entries are kept in ``aside``."""
    for name, text in sink.rewind.write.items():
        sink.log.write(name, text.encode())
    move_all(sink.log, [each.path for each in sink.moves], aside, f"{SINK_LOG}/")


def require_still(before: Tree, pause: float = 1.0) -> None:
    """:class:`RefusedError` when a directory changes, or has changed since a listing.

    That is all that can be known: Spark has no lock, and a query changes nothing during a long
    batch. Waits for ``pause`` seconds when the newest file is young.
    """
    newest = max((entry.modified for entry in before.entries.values()), default=0.0)
    if time.time() - newest < _YOUNG:
        time.sleep(pause)
    if changed := changes(before, Tree.of(before.directory)):
        raise seems_running(before.directory, changed)


def changes(before: Tree, after: Tree) -> list[str]:
    """Paths that were added, written again or removed between two listings."""
    return sorted(
        path
        for path in before.entries.keys() | after.entries.keys()
        if before.entries.get(path) != after.entries.get(path)
    )


def seems_running(directory: Directory, changed: list[str]) -> RefusedError:
    """The error for a directory that does not stand still."""
    return RefusedError(
        "a query seems to be running on it, so nothing was changed",
        where=f"{directory.url}: {changed[0]} has just changed",
        hint="Stop the query first. Spark has no lock that could be asked.",
    )
