"""``seamark spark rollback``: show what it means and, with ``--yes``, do it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

import click

from seamark._common.text import size_text, time_text
from seamark.checkpoint_dir.places.directory import Directory, Tree
from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import print_facts, print_paragraph, print_rows
from seamark.cli.output import Document, print_answer, print_hint, progress_bar
from seamark.cli.spark.arguments import (
    DECISION,
    moved_files_suffix,
    opened_directory,
    own_class_option,
    rewound_sink_log,
    sink_decision_needed,
    sink_options,
)
from seamark.cli.spark.snapshot import snapshot_document, snapshot_line
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
from seamark.native.rewind.files import KINDS, Move
from seamark.native.rewind.rewind import RewindPlan, require_still, rewind
from seamark.native.rewind.targets import RewindRequest, planned_rewind
from seamark.native.snapshot import pipeline_name, take_snapshot
from seamark.store import CheckpointStore

_KINDS: Final = {
    "state": ("state", "is newer than the batch; Spark would load it"),
    "operators": ("operators", "was noted by later starts"),
    "commits": ("commits", "of later batches"),
    "offsets": ("offsets", "of later batches"),
    "sources": ("source logs", "is not read by the batch, or is replaced"),
    "_spark_metadata": ("sink log", "of later batches; data files stay"),
}


@click.command("rollback", cls=Command)
@click.argument("path", type=PLACE)
@click.option("--to-batch", type=click.IntRange(0), required=True, help="The last batch to keep.")
@sink_options
@click.option("--store", help="Where the snapshot goes. Default: PATH.seamark.")
@own_class_option
@click.option("--yes", is_flag=True, help="Do it. Without this, only show what would happen.")
def command(
    path: str,
    to_batch: int,
    file_sink: str | None,
    new_file_sink: str | None,
    query_id: str | None,
    store: str | None,
    own_classes: tuple[str, ...],
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
        sink = stack.enter_context(rewound_sink_log(file_sink, new_file_sink, to_batch))
        safety = _safety_store(stack, path, tree, store, create=yes)
        metadata = new_metadata() if query_id == "new" else None
        target = RewindRequest(to_batch, metadata, sink, own_classes)
        plan = stack.enter_context(planned_rewind(tree, target, safety))
        document = _document(plan, directory.url, query_id, file_sink, new_file_sink)
        document["store"] = safety.url if safety is not None else None
        if plan.is_needed and yes:
            if document["decision"]:
                raise sink_decision_needed("changed", directory.url)
            assert safety is not None  # made when it was not there
            _do(plan, tree, directory, safety, document)
    print_answer(document, _show)


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
        # raises where no neighbouring directory can be made
        tree.directory.sibling(".seamark").close()
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


def _document(
    plan: RewindPlan,
    path: str,
    query_id: str | None,
    file_sink: str | None,
    new_file_sink: str | None,
) -> Document:
    sink = plan.sink
    moved = [*plan.moves, *plan.spare, *(sink.moves if sink is not None else ())]
    if query_id is None and sink is not None:
        query_id = "keep"
    return {
        "path": path,
        "needed": plan.is_needed,
        "interrupted": plan.was_begun,
        "from_batch": plan.from_batch,
        "to_batch": plan.to_batch,
        "checkpoint": plan.barrier.checkpoint_id,
        "watermark_ms": plan.at.next_watermark or None,
        "moves": _by_kind(moved),
        "writes": [
            *plan.writes,
            *(f"_spark_metadata/{n}" for n in (sink.rewind.write if sink else ())),
        ],
        "query_id": query_id,
        "file_sink": file_sink,
        "new_file_sink": new_file_sink,
        "unlisted": list(sink.rewind.unlisted) if sink is not None else [],
        "decision": DECISION if query_id is None and plan.is_needed else None,
        "snapshot": None,
        "snapshot_problem": None,
        "store": None,
        "aside": None,
        "done": False,
    }


def _by_kind(moved: Iterable[Move]) -> list[Document]:
    sizes: dict[str, list[int]] = {}
    for move in moved:
        sizes.setdefault(move.kind, []).append(move.size)
    return [
        {"kind": kind, "files": len(sizes[kind]), "bytes": sum(sizes[kind])}
        for kind in KINDS
        if kind in sizes
    ]


def _show(document: Document) -> None:
    to_batch = document["to_batch"]
    if not document["needed"]:
        print_paragraph(f"{document['path']} ends with batch {to_batch}: there is nothing to do.")
        return
    print_facts(_facts(document), indent=0)
    if document["moves"]:
        print_rows(
            ["MOVED AWAY" if document["done"] else "TO MOVE", "FILES", "SIZE", "BECAUSE IT"],
            [
                (name, str(moved["files"]), size_text(moved["bytes"]), why)
                for moved in document["moves"]
                for name, why in [_KINDS[moved["kind"]]]
            ],
            right="FILES SIZE",
        )
    if document["unlisted"]:
        print_paragraph(
            f"{len(document['unlisted'])} data files of the sink are no longer in its log. They "
            "stay where they are: programs that read the folder without its log still see them."
        )
    if document["done"]:
        _show_done(document)
        return
    if document["decision"]:
        print_paragraph(document["decision"])
    print_paragraph("Nothing was changed.")
    print_hint("To do it, stop the query and add --yes.")


def _facts(document: Document) -> list[tuple[str, str]]:
    newest, to_batch = document["from_batch"], document["to_batch"]
    begun = ", begun before and not finished" if document["interrupted"] else ""
    origin = document["checkpoint"]
    facts = [
        ("directory", document["path"]),
        ("rollback", f"from batch {'none' if newest is None else newest} to {to_batch}{begun}"),
    ]
    if origin is not None:
        facts.append(("taken from", f"checkpoint {origin} of the store, SHA-256 verified"))
    if document["watermark_ms"] is not None:
        facts.append(("watermark", f"{time_text(document['watermark_ms'])} in the next batch"))
    facts.append(("rewritten", _named(document["writes"])))
    kept = {"new": "a new one", "keep": "kept", None: "to be decided"}
    facts.append(("query id", kept[document["query_id"]]))
    return facts


def _named(paths: list[str]) -> str:
    if not paths:
        return "nothing"
    shown = ", ".join(paths[:4])
    return shown if len(paths) <= 4 else f"{shown} and {len(paths) - 4} more"


def _show_done(document: Document) -> None:
    to_batch = document["to_batch"]
    taken = document["snapshot"]
    if taken is not None:
        print_facts([("snapshot", snapshot_line(taken))], indent=0)
    elif document["snapshot_problem"]:
        print_paragraph(
            "No snapshot was taken, because the newest batch is not whole: "
            f"{document['snapshot_problem']}."
        )
    print_paragraph(
        f"Done. A restart plans batch {to_batch + 1} again, from where batch {to_batch} ended. No "
        "row is lost as long as the source still has it."
    )
    print_hint(f"Moved files: {document['aside']}")
    if taken is not None:
        undo = shlex.join(["seamark", "spark", "restore", document["store"], str(taken["id"])])
        print_hint(f"To undo it: {undo} NEW_PATH")
