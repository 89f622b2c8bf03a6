"""``seamark spark repartition``: another number of state partitions for a stopped query."""

from __future__ import annotations

import shlex
from typing import Final

import click

from seamark._common.text import size_text
from seamark.checkpoint_dir.places.directory import Directory, Tree
from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import print_facts, print_paragraph
from seamark.cli.output import Document, print_answer, print_hint, progress_bar
from seamark.cli.spark.arguments import opened_directory
from seamark.cli.spark.snapshot import snapshot_document, snapshot_line
from seamark.cli.store_argument import opened_store
from seamark.native.repartition import (
    Repartition,
    plan_repartition,
    repartition,
    require_runner,
)
from seamark.native.rewind.rewind import require_still
from seamark.native.snapshot import take_snapshot
from seamark.spark.batch_log import SHUFFLE_PARTITIONS
from seamark.spark.own_session import a_session
from seamark.spark.session import installed_spark

_SINK_LOG: Final = (
    "The log of a file sink (parquet, json, csv, text) has no entry of the new batch, and Spark"
    " ends the query when it compacts that log. Section 'Change the number of state partitions' of"
    " docs/native.md says how to add it."
)


@click.command("repartition", cls=Command)
@click.argument("path", type=PLACE)
@click.argument("partitions", metavar="N", type=click.IntRange(1))
@click.option("--store", help="Where the snapshot goes. Default: PATH.seamark.")
@click.option("--yes", is_flag=True, help="Do it. Without this, only show what would happen.")
def command(path: str, partitions: int, store: str | None, yes: bool) -> None:
    """Change the number of state partitions.

    Stop the query first: Spark has no lock to check. A snapshot is taken first. Then Spark (4.2 or
    newer) rewrites the state as one more batch, which reads no input, and every partition and all
    rows of it are verified.
    """
    require_runner(installed_spark())
    with opened_directory(path) as directory:
        tree = Tree.of(directory)
        plan = plan_repartition(tree, partitions)
        document = _document(plan, directory.url)
        if yes:
            kept = store or f"{path.rstrip('/')}.seamark"
            document |= _do(plan, tree, directory, kept)
    print_answer(document, _show)


def _do(plan: Repartition, tree: Tree, directory: Directory, kept: str) -> Document:
    with opened_store(kept, must_exist=False) as store:
        with progress_bar("reading", None, of_bytes=True) as advance:
            taken = take_snapshot(directory, store, batch=plan.batch, advance=advance)
        undo = shlex.join(["seamark", "spark", "restore", kept, str(taken.checkpoint_id)])
        # the query has not run since, so no sink has seen a later batch
        undo += " NEW_PATH --query-id keep"
        # what is in flight is a change of partitions that was begun before
        undo += " --without-plan" if taken.in_flight else ""
    require_still(tree)
    spark = a_session()
    spark.sparkContext.setLogLevel("OFF")  # its errors are reported once, by us
    try:
        stores = repartition(spark, directory, plan, undo)
    finally:
        spark.sparkContext.setLogLevel("ERROR")
    return {
        "snapshot": snapshot_document(taken),
        "store": kept,
        "undo": undo,
        "state_stores": stores,
        "done": True,
    }


def _document(plan: Repartition, url: str) -> Document:
    return {
        "path": url,
        "batch": plan.batch,
        "new_batch": plan.new_batch,
        "partitions_before": plan.partitions,
        "partitions": plan.wanted,
        "operators": [
            {"operator": one.number, "name": one.name, "stores": one.stores}
            for one in plan.operators
        ],
        "state_bytes": plan.size,
        "interrupted_before": plan.was_begun,
        "snapshot": None,
        "store": None,
        "undo": None,
        "state_stores": None,
        "done": False,
    }


def _show(document: Document) -> None:
    names = ", ".join(f"{one['operator']} {one['name']}" for one in document["operators"])
    begun = ", begun before and not finished" if document["interrupted_before"] else ""
    change = f"from {document['partitions_before']} to {document['partitions']}{begun}"
    print_facts(
        [
            ("directory", document["path"]),
            ("partitions", change),
            ("operators", names),
            ("state", f"{size_text(document['state_bytes'])}, as of batch {document['batch']}"),
            ("new batch", f"{document['new_batch']}, which reads nothing"),
        ],
        indent=0,
    )
    print_paragraph(_SINK_LOG)
    if not document["done"]:
        print_paragraph("Nothing was changed.")
        print_hint("To do it, stop the query and add --yes.")
        return
    print_facts([("snapshot", snapshot_line(document["snapshot"]))], indent=0)
    print_paragraph(
        f"Done and verified: batch {document['new_batch']} has its {document['state_stores']} "
        f"state stores. {SHUFFLE_PARTITIONS} is {document['partitions']} for this query from now "
        "on, whatever its session says. Start it as it is."
    )
    print_hint(f"To go back, before the query has run: {document['undo']}")
