"""``seamark spark repartition``: another number of state partitions for a stopped query."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from typing import Final

import click

from seamark._common.text import size_text
from seamark.checkpoint_dir.file_logs.compactions import known_interval, parse_names
from seamark.checkpoint_dir.file_logs.sink_log import with_empty_batch
from seamark.checkpoint_dir.places.directory import Directory, Tree
from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import print_facts, print_paragraph
from seamark.cli.output import Document, print_answer, print_hint, progress_bar
from seamark.cli.spark.arguments import opened_directory, opened_sink_log
from seamark.cli.spark.snapshot import snapshot_document, snapshot_line
from seamark.cli.store_argument import opened_store
from seamark.errors import RefusedError
from seamark.native.repartition import (
    Repartition,
    plan_repartition,
    repartition,
    require_runner,
)
from seamark.native.rewind.rewind import SinkPlan, require_still
from seamark.native.snapshot import take_snapshot
from seamark.spark.batch_log import SHUFFLE_PARTITIONS
from seamark.spark.own_session import a_session
from seamark.spark.session import installed_spark

_DECISION: Final = (
    "The directory does not say where the query writes. The log of a file sink (parquet, json, csv,"
    " text) has to get an entry of the new batch, or Spark ends the query when it compacts that"
    " log: give --file-sink OUT, the folder that the query writes to. For any other sink give"
    " --no-file-sink."
)
_UNTOLD: Final = (
    "The sink's log is too young to tell how often it is compacted, so the interval counts that"
    " Spark has without a setting, 10. If the query's session sets"
    " spark.sql.streaming.fileSink.log.compactInterval, give its value with --compact-interval."
)


@click.command("repartition", cls=Command)
@click.argument("path", type=PLACE)
@click.argument("partitions", metavar="N", type=click.IntRange(1))
@click.option(
    "--file-sink",
    metavar="OUT",
    help="The folder of the query's file sink, whose log gets an entry of the new batch.",
)
@click.option("--no-file-sink", is_flag=True, help="The query writes to a sink of another kind.")
@click.option(
    "--compact-interval",
    type=click.IntRange(1),
    help="The query's fileSink.log.compactInterval, while the log does not tell it. Default: 10.",
)
@click.option("--store", help="Where the snapshot goes. Default: PATH.seamark.")
@click.option("--yes", is_flag=True, help="Do it. Without this, only show what would happen.")
def command(
    path: str,
    partitions: int,
    file_sink: str | None,
    no_file_sink: bool,
    compact_interval: int | None,
    store: str | None,
    yes: bool,
) -> None:
    """Change the number of state partitions.

    Stop the query first: Spark has no lock to check. A snapshot is taken first. Then Spark (4.2 or
    newer) rewrites the state as one more batch, which reads no input, and every partition and all
    rows of it are verified. If the command is interrupted, repeat it.
    """
    if no_file_sink and (file_sink or compact_interval) is not None:
        raise click.UsageError("--no-file-sink goes with no other option about a file sink")
    require_runner(installed_spark())
    with ExitStack() as stack:
        directory = stack.enter_context(opened_directory(path))
        tree = Tree.of(directory)
        plan = plan_repartition(tree, partitions)
        document = _document(plan, directory.url)
        sink = None
        if file_sink is not None:
            sink = stack.enter_context(
                opened_sink_log(
                    file_sink,
                    lambda names, read: with_empty_batch(
                        names, read, plan.new_batch, compact_interval
                    ),
                )
            )
            document |= _of_sink(sink, file_sink, compact_interval)
        elif not no_file_sink:
            document["decision"] = _DECISION
        if yes:
            if document["decision"]:
                raise RefusedError(
                    "you must say whether the query writes to a file sink, so nothing was changed",
                    where=directory.url,
                    hint=_DECISION,
                )
            kept = store or f"{path.rstrip('/')}.seamark"
            document |= _do(plan, tree, directory, kept, sink, file_sink)
    print_answer(document, _show)


def _of_sink(sink: SinkPlan, file_sink: str, setting: int | None) -> Document:
    kept, write = sink.rewind.keep, sink.rewind.write
    tells = known_interval(parse_names(kept).compacted) is not None
    return {
        "file_sink": file_sink,
        "sink_entry": next(iter(write), None),
        "interval_untold": bool(write) and setting is None and not tells,
    }


def _do(
    plan: Repartition,
    tree: Tree,
    directory: Directory,
    kept: str,
    sink: SinkPlan | None,
    file_sink: str | None,
) -> Document:
    with opened_store(kept, must_exist=False) as store:
        with progress_bar("reading", None, of_bytes=True) as advance:
            taken = take_snapshot(directory, store, batch=plan.batch, advance=advance)
        undo = ["seamark", "spark", "restore", kept, str(taken.checkpoint_id), "NEW_PATH"]
        # the query has not run since, so no sink has seen a later batch; a log has one of ours
        undo += ["--query-id", "keep"] if file_sink is None else ["--file-sink", file_sink]
        # what is in flight is a change of partitions that was begun before
        undo += ["--without-plan"] if taken.in_flight else []
        way_back = shlex.join(undo)
    require_still(tree)
    spark = a_session()
    spark.sparkContext.setLogLevel("OFF")  # its errors are reported once, by us
    try:
        stores = repartition(spark, directory, plan, way_back, sink)
    finally:
        spark.sparkContext.setLogLevel("ERROR")
    return {
        "snapshot": snapshot_document(taken),
        "store": kept,
        "undo": way_back,
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
        "file_sink": None,
        "sink_entry": None,
        "interval_untold": False,
        "decision": None,
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
    facts = [
        ("directory", document["path"]),
        ("partitions", change),
        ("operators", names),
        ("state", f"{size_text(document['state_bytes'])}, as of batch {document['batch']}"),
        ("new batch", f"{document['new_batch']}, which reads nothing"),
    ]
    if document["file_sink"] is not None:
        entry = document["sink_entry"]
        facts.append(("sink log", "has its entry" if entry is None else f"gets entry {entry}"))
    print_facts(facts, indent=0)
    if document["interval_untold"]:
        print_paragraph(_UNTOLD)
    if not document["done"]:
        if document["decision"]:
            print_paragraph(document["decision"])
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
