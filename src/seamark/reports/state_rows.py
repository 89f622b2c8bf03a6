"""Rows of state as a plain document, and what there is to look into.

Tests: ``tests/cli/spark/test_state.py``, ``tests/native/test_state_rows.py``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from seamark import limits
from seamark.checkpoint_dir.places.directory import Directory, Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.checkpoint_dir.places.object_store import ObjectDirectory
from seamark.errors import CheckpointNotFoundError, DamageError, SeamarkError
from seamark.manifest import CheckpointManifest
from seamark.native.restore import RestoreOptions, restore_directory
from seamark.native.state_choice import StateRequest, StateSelection, choose, keepers
from seamark.native.state_rows import brought_here, plain_row, state_frame
from seamark.reports.document import Document
from seamark.reports.named_checkpoints import use_named
from seamark.store import CheckpointStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

_PREFIX: Final = "seamark-state-"
_TRIES: Final = 5
_KEPT: Final = (
    "Spark keeps that of the last spark.sql.streaming.minBatchesToRetain batches. Ask for the "
    "newest one, or take a snapshot of the directory and read that (--from)."
)


@contextmanager
def restored_for_reading(
    store: CheckpointStore, checkpoint_id: int, advance: Callable[[int], None] | None = None
) -> Iterator[Directory]:
    """A checkpoint as a directory on this machine, for as long as it is looked into."""
    scratch = tempfile.mkdtemp(prefix=_PREFIX)
    try:
        restored = LocalDirectory(os.path.join(scratch, "directory"))
        as_it_was = RestoreOptions(own_classes=None)  # state_frame() asks, for its session
        restore_directory(store, checkpoint_id, restored, as_it_was, advance)
        yield restored
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def named_for_reading(store: CheckpointStore, text: str) -> Iterator[Directory]:
    """The same for the checkpoint that a person means; beside a prune ``latest`` is a newer one."""
    with ExitStack() as stack:

        def restored(manifest: CheckpointManifest) -> Directory:
            return stack.enter_context(restored_for_reading(store, manifest.checkpoint_id))

        yield use_named(store, text, restored)


@contextmanager
def within_reach(
    directory: Directory, tree: Tree, asked: StateRequest
) -> Iterator[tuple[Tree, StateSelection]]:
    """The directory where a plain Spark can read it, and what is to be read there.

    An object store takes a connector, so what is needed of it is copied. The query may be running:
    when Spark removes a file of it meanwhile, the directory is listed again and the choice made
    again. :class:`CheckpointNotFoundError` when that does not help.
    """
    if not isinstance(directory, ObjectDirectory):
        yield tree, choose(tree, asked)
        return
    scratch = tempfile.mkdtemp(prefix=_PREFIX)
    try:
        yield _copied(directory, tree, asked, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _copied(
    directory: Directory, tree: Tree, asked: StateRequest, scratch: str
) -> tuple[Tree, StateSelection]:
    folder = os.path.join(scratch, "directory")
    for left in reversed(range(_TRIES)):
        tree, reading = settled(directory, lambda seen: (seen, choose(seen, asked)), tree=tree)
        try:
            return brought_here(tree, folder, reading, is_last_try=not left), reading
        except FileNotFoundError as error:
            gone = error
        shutil.rmtree(folder, ignore_errors=True)
        tree = Tree.of(directory)
    raise CheckpointNotFoundError(
        f"the state of batch {reading.batch} was removed while it was being copied, {_TRIES} times "
        "in a row",
        where=f"{directory.url}: {gone}",
        hint=_KEPT,
    )


def read_state(
    directory: Directory,
    asked: StateRequest,
    spark: SparkSession,
    use: Callable[[DataFrame, StateSelection], T],
) -> T:
    """What a function makes of the rows that are asked for.

    The query may be running, see :func:`settled`: without a number it is then a newer batch.
    """

    def read(tree: Tree) -> T:
        with (
            within_reach(directory, tree, asked) as (files, reading),
            state_frame(spark, files, reading) as frame,
        ):
            return use(frame, reading)

    is_copied = isinstance(directory, ObjectDirectory)  # which looks again itself
    return settled(directory, read, tries=1 if is_copied else _TRIES)


def settled(
    directory: Directory,
    look: Callable[[Tree], T],
    *,
    tree: Tree | None = None,
    tries: int = _TRIES,
) -> T:
    """What a function makes of the files of a directory whose query may be running.

    ``tree`` is a listing of it. What seems damaged or gone is looked for again, by a new listing,
    as long as batches were committed or removed meanwhile. :class:`CheckpointNotFoundError` when
    each of several tries has missed something else: that is no damage.
    """
    tree = Tree.of(directory) if tree is None else tree
    before: str | None = None
    for left in reversed(range(tries)):
        try:
            return look(tree)
        except (DamageError, CheckpointNotFoundError, FileNotFoundError) as error:
            now, what = Tree.of(directory), _what_of(error)
            if now.entries.keys() == tree.entries.keys():
                raise
            if not left:
                if before in (None, what) or isinstance(error, CheckpointNotFoundError):
                    raise
                raise _removed_too_fast(directory, tries) from error
            tree, before = now, what
    raise AssertionError("not reached")


def _what_of(error: Exception) -> str:
    """What was damaged or gone: another file, or another batch, makes another text."""
    return f"{error.what}: {error.where}" if isinstance(error, SeamarkError) else str(error)


def _removed_too_fast(directory: Directory, tries: int) -> CheckpointNotFoundError:
    return CheckpointNotFoundError(
        f"state was removed while it was being read, {tries} times in a row",
        where=directory.url,
        hint=_KEPT,
    )


def state_listing(tree: Tree) -> Document:
    """What ``seamark spark state --list --json`` prints: the operators and their stores."""
    commits = tree.batches("commits")
    return {
        "path": tree.directory.url,
        "batches": [commits[0], commits[-1]] if commits else None,
        "operators": [
            {
                "operator": keeper.operator.number,
                "name": keeper.operator.name,
                "stores": keeper.operator.stores,
                "join": keeper.is_join,
                "variables": [
                    {"name": variable.name, "type": variable.kind} for variable in keeper.variables
                ],
            }
            for keeper in keepers(tree)
        ],
    }


def parts_of(operator: Document) -> list[str]:
    """What one operator of :func:`state_listing` can be asked for: variables, sides or stores."""
    if operator["variables"]:
        return [variable["name"] for variable in operator["variables"]]
    return ["left", "right"] if operator["join"] else list(operator["stores"])


def first_choice(listing: Document, asked: StateRequest, part: str | None) -> StateRequest:
    """A request in which whatever was left open is the first that there is."""
    operators = {each["operator"]: each for each in listing["operators"]}
    number = next(iter(operators), None) if asked.operator is None else asked.operator
    operator = operators.get(-1 if number is None else number)
    if operator is None:
        return replace(asked, operator=number)  # which is refused, with those that there are
    chosen = next(iter(parts_of(operator)), None) if part is None else part
    if operator["variables"]:
        return replace(asked, operator=number, variable=chosen)
    if operator["join"] and chosen in ("left", "right"):
        return replace(asked, operator=number, side="left" if chosen == "left" else "right")
    return replace(asked, operator=number, store=chosen)


def rows_document(
    frame: DataFrame, reading: StateSelection, limit: int, offset: int = 0
) -> Document:
    """What ``seamark spark state --json`` prints; ``limit`` 0 is all rows.

    With ``offset`` so many of them are left out; Spark reads the partitions in their order.
    """
    shown = frame
    if reading.changes is not None:
        shown = shown.orderBy("batch_id", "partition_id")
    if offset:
        shown = shown.offset(offset)
    rows = (shown.limit(limit + 1) if limit else shown).collect()
    return {
        "operator": reading.keeper.operator.number,
        "name": reading.keeper.operator.name,
        "batch": reading.batch,
        "changes": list(reading.changes) if reading.changes else None,
        "columns": [
            {"name": field.name, "type": field.dataType.simpleString()}
            for field in frame.schema.fields
        ],
        "rows": [plain_row(row, frame.schema) for row in rows[: limit or None]],
        "truncated": bool(limit) and len(rows) > limit,
    }


def flat_row(row: Document) -> Document:
    """Structs one level deep as columns of their own, like ``key.k``."""
    flat: Document = {}
    for name, value in row.items():
        if isinstance(value, dict) and value and len(name) <= limits.LONGEST_PREFIX:
            flat |= {f"{name}.{inner}": deep for inner, deep in value.items()}
        else:
            flat[name] = value
    return flat
