"""``seamark spark restore``: a directory that stock Spark goes on from."""

from __future__ import annotations

import click

from seamark.cli.output import bar, hint, print_json, print_long
from seamark.cli.places import PLACE
from seamark.cli.settings import Command, settings
from seamark.cli.spark.directories import opened_directory
from seamark.cli.stores import opened, resolve_id
from seamark.pipeline.figures import size_text
from seamark.spark.native.restoring import Wishes, restore_directory


@click.command("restore", cls=Command)
@click.argument("store", type=PLACE)
@click.argument("checkpoint", metavar="ID")
@click.argument("path", type=PLACE)
@click.option("--new-query-id", is_flag=True, help="Sinks that know the query take it for another.")
@click.option(
    "--move-input", multiple=True, metavar="OLD=NEW", help="Where a file source's input is now."
)
@click.option("--without-plan", is_flag=True, help="Have Spark plan the next batch anew.")
def command(
    store: str,
    checkpoint: str,
    path: str,
    new_query_id: bool,
    move_input: tuple[str, ...],
    without_plan: bool,
) -> None:
    """Make a directory that Spark goes on from.

    PATH is empty or not there yet. Give it to the query as its checkpointLocation: it continues
    after the checkpoint's batch, with the results that it would have had. Absolute paths inside
    lead to the new place.
    """
    wishes = Wishes(new_query_id, _pairs(move_input), without_plan)
    with opened(store) as source, opened_directory(path) as target:
        number = resolve_id(source, checkpoint)
        with bar("restoring", None, of_bytes=True) as advance:
            done = restore_directory(source, number, target, wishes, advance)
        document = {
            "id": done.checkpoint_id,
            "batch": done.batch,
            "path": target.url,
            "files": done.files,
            "bytes": done.size,
            "replays": done.replays,
        }
        if settings().as_json:
            print_json(document)
            return
        replays = "" if done.replays is None else f"; batch {done.replays} is replayed first"
        print_long(
            f"{target.url} is as after batch {done.batch} (checkpoint {done.checkpoint_id}, "
            f"{done.files} files, {size_text(done.size)}, SHA-256 verified){replays}"
        )
        hint("Start the query with this checkpointLocation. Never run two queries on one.")


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in given:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise click.BadParameter(f"{text!r} is not OLD=NEW", param_hint="--move-input")
        pairs[old] = new
    return pairs
