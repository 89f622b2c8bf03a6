"""``seamark spark state``: the rows of a query's state, or what batches changed in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import click

from seamark.checkpoint_dir.places.directory import Directory
from seamark.cli.commands import PLACE, Command, number_range, settings
from seamark.cli.layout import print_paragraph, print_rows
from seamark.cli.output import Document, print_answer, print_hint
from seamark.cli.spark.arguments import opened_directory
from seamark.cli.spark.state_output import FORMATS, RowOutput, require_new, write_rows
from seamark.cli.store_argument import opened_store
from seamark.native.state_choice import Side, StateRequest
from seamark.reports.state_rows import named_for_reading, settled, state_listing

_ON_SCREEN = 20


@click.command("state", cls=Command)
@click.argument("path", type=PLACE, required=False)
@click.option(
    "--batch", type=click.IntRange(0), help="Read the state at this batch, not at the newest one."
)
@click.option("--operator", type=click.IntRange(0), help="This stateful operator.")
@click.option("--store-name", help="This state store of the operator.")
@click.option("--join-side", type=click.Choice(["left", "right"]), help="This side of a join.")
@click.option("--state-var", help="This state variable of a transformWithState.")
@click.option("--partition", type=click.IntRange(0), help="Only this state partition.")
@click.option(
    "--changes",
    metavar="A..B",
    callback=number_range,
    help="Show what batches A to B changed instead of the rows.",
)
@click.option(
    "--limit",
    type=click.IntRange(0),
    help="At most this many rows; 0 for all. Default on a screen: 20.",
)
@click.option("--format", "form", type=click.Choice(FORMATS), help="Output format. Default: table.")
@click.option("--output", metavar="FILE", help="Write to a new file instead of the screen.")
@click.option("--list", "listed", is_flag=True, help="Only list the operators and their stores.")
@click.option(
    "--from", "store", metavar="STORE", help="Read a checkpoint of this store instead of PATH."
)
@click.option(
    "--id", "checkpoint", metavar="ID", default="latest", help="Which checkpoint of the store."
)
def command(
    path: str | None,
    batch: int | None,
    operator: int | None,
    store_name: str | None,
    join_side: Side | None,
    state_var: str | None,
    partition: int | None,
    changes: tuple[int, int] | None,
    limit: int | None,
    form: str | None,
    output: str | None,
    listed: bool,
    store: str | None,
    checkpoint: str,
) -> None:
    """Show the rows of the state at a batch.

    Spark itself reads them and changes nothing; the query may be running. Options are only needed
    where there is more than one operator, store or side to choose from. --changes shows what each
    batch of a range changed.
    """
    asked = StateRequest(
        batch=batch,
        operator=operator,
        store=store_name,
        side=join_side,
        variable=state_var,
        partition=partition,
        changes=changes,
    )
    output_options = _row_output(form, output, limit)
    with _directory(path, store, checkpoint) as directory:
        if listed:
            print_answer(settled(directory, state_listing), _show_list)
            return
        require_new(output_options.output)
        write_rows(directory, asked, output_options)


def _row_output(form: str | None, output: str | None, limit: int | None) -> RowOutput:
    if settings().as_json and form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form} cannot be used together.")
    chosen = form or ("json" if settings().as_json else "table")
    if chosen == "parquet" and output is None:
        raise click.UsageError("Parquet is written to a file: add --output FILE.")
    if chosen == "table" and output is not None:
        raise click.UsageError("A table is for the screen: add --format parquet, csv or json.")
    default = _ON_SCREEN if output is None else 0
    return RowOutput(chosen, output, default if limit is None else limit)


@contextmanager
def _directory(path: str | None, store: str | None, checkpoint: str) -> Iterator[Directory]:
    """The directory at a path, or one made of a checkpoint for as long as it is looked into."""
    if (path is None) == (store is None):
        raise click.UsageError(
            "Say which directory (PATH) or which store (--from STORE), not both."
        )
    with ExitStack() as stack:
        if path is not None:
            yield stack.enter_context(opened_directory(path))
            return
        assert store is not None
        opened = stack.enter_context(opened_store(store))
        yield stack.enter_context(named_for_reading(opened, checkpoint))


def _show_list(document: Document) -> None:
    if not document["operators"]:
        print_paragraph("This query keeps no state.")
        return
    print_rows(
        ("OPERATOR", "NAME", "LOOK INTO"),
        [[str(one["operator"]), one["name"], _to_look_into(one)] for one in document["operators"]],
        right="OPERATOR",
    )
    if document["batches"]:
        first, last = document["batches"]
        print_hint(f"Committed batches {first} to {last}; choose one with --batch.")


def _to_look_into(operator: Document) -> str:
    if operator["variables"]:
        return "--state-var " + ", ".join(
            f"{v['name']} ({v['type']})" for v in operator["variables"]
        )
    if operator["join"]:
        return "--join-side left, --join-side right"
    if len(operator["stores"]) > 1:
        return "--store-name " + ", ".join(operator["stores"])
    return "its only store"
