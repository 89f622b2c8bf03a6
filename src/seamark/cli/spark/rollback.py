"""``seamark spark rollback``: show what it means and, with ``--yes``, do it."""

from __future__ import annotations

from contextlib import ExitStack

import click

from seamark.checkpoint_dir.places.directory import Directory, Tree
from seamark.cli.common_options import Command
from seamark.cli.output import Document, print_answer, progress_bar
from seamark.cli.parameters import PLACE
from seamark.cli.spark.directory_argument import opened_directory
from seamark.cli.spark.rollback_output import document_of, show
from seamark.cli.spark.sink_decision import (
    moved_files_suffix,
    opened_sink_log,
    sink_decision_needed,
    sink_options,
)
from seamark.cli.spark.snapshot import snapshot_document
from seamark.cli.store_argument import opened_store
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    InvalidInputError,
    RefusedError,
    StoreUnavailableError,
)
from seamark.native.restore import new_metadata
from seamark.native.rewind.barrier import query_before
from seamark.native.rewind.rewind import RewindPlan, require_still, rewind
from seamark.native.rewind.targets import RewindRequest, planned_rewind
from seamark.native.snapshot.snapshot import pipeline_name, take_snapshot
from seamark.store import CheckpointStore


@click.command("rollback", cls=Command)
@click.argument("path", type=PLACE)
@click.option("--to-batch", type=click.IntRange(0), required=True, help="The last batch to keep.")
@sink_options
@click.option("--store", help="Where the snapshot goes. Default: PATH.seamark.")
@click.option("--yes", is_flag=True, help="Do it. Without this, only show what would happen.")
def command(
    path: str,
    to_batch: int,
    file_sink: str | None,
    query_id: str | None,
    store: str | None,
    yes: bool,
) -> None:
    """Rewind a directory to an earlier batch.

    Stop the query and its Spark first: Spark has no lock to check, and its maintenance of state
    goes on for a moment. A snapshot of the newest batch is taken first, and every file that leaves
    the directory is moved to PATH.rolled-back-TIME. State newer than the batch is moved too, source
    logs are rebuilt across compactions, and Spark cannot start in between. If the command is
    interrupted, repeat it.
    """
    with ExitStack() as stack:
        directory = stack.enter_context(opened_directory(path))
        tree = Tree.of(directory)
        sink = None
        if file_sink is not None:
            sink = stack.enter_context(opened_sink_log(file_sink, to_batch))
        safety = _safety_store(stack, path, tree, store, create=yes)
        target = RewindRequest(to_batch, new_metadata() if query_id == "new" else None, sink)
        plan = stack.enter_context(planned_rewind(tree, target, safety))
        document = document_of(plan, directory.url, query_id, file_sink)
        document["store"] = safety.url if safety is not None else None
        if plan.is_needed and yes:
            if document["decision"]:
                raise sink_decision_needed("changed", directory.url)
            assert safety is not None  # made when it was not there
            _do(plan, tree, directory, safety, document)
    print_answer(document, show)


def _do(
    plan: RewindPlan, tree: Tree, directory: Directory, store: CheckpointStore, document: Document
) -> None:
    """Take the snapshot, see that nobody works on the directory, and rewind it."""
    if not plan.was_begun:  # the run that began it has taken one
        document |= _snapshot(directory, store)
    require_still(tree)
    aside = directory.sibling(moved_files_suffix())
    try:
        rewind(directory, plan, aside)
    except StoreUnavailableError as error:
        raise type(error)(
            error.what,
            where=error.where,
            hint="If the rollback has begun, Spark is kept out of the directory until it is "
            f"finished: repeat the same command. Moved files are in {aside.url}.",
        ) from error
    finally:
        aside.close()
    document |= {"aside": aside.url, "done": True}


def _snapshot(directory: Directory, store: CheckpointStore) -> Document:
    try:
        with progress_bar("reading", None, of_bytes=True) as advance:
            taken = take_snapshot(directory, store, advance=advance)
    except (DamageError, RefusedError) as error:
        # no reason to stop: that is when a rollback is needed, and nothing is deleted
        return {"snapshot": None, "snapshot_problem": error.what}
    return {"snapshot": snapshot_document(taken)}


def _safety_store(
    stack: ExitStack, path: str, tree: Tree, given: str | None, *, create: bool
) -> CheckpointStore | None:
    """The store for snapshots, closed with the stack; None when there is none and none is made."""
    query = query_before(tree)
    if given is None:
        tree.directory.sibling(
            ".seamark"
        ).close()  # raises where no neighbouring directory can be made
    default = f"{path.rstrip('/')}.seamark"
    # a query with a new id needs another store than it had before
    for url in [given] if given is not None else [default, f"{default}-{query[:8]}"]:
        try:
            store = stack.enter_context(opened_store(url, must_exist=not create))
        except CheckpointNotFoundError:
            return None
        except InvalidInputError as error:
            raise InvalidInputError(
                error.what, where=error.where, hint="Give a place for the snapshot with --store."
            ) from None
        owner = store.owner().pipeline
        if owner in (None, pipeline_name(query)):
            return store
    raise RefusedError(
        f"the store belongs to another query ({owner})",
        where=url,
        hint="Give a store of its own with --store.",
    )
