"""``seamark spark restore``: write a directory that stock Spark continues from."""

from __future__ import annotations

from contextlib import closing
from typing import Final, NamedTuple

import click

from seamark._common.text import size_text
from seamark.checkpoint_dir.places.directory import Directory
from seamark.cli.commands import PLACE, Command
from seamark.cli.layout import print_paragraph
from seamark.cli.output import Document, print_answer, print_hint, print_long, progress_bar
from seamark.cli.spark.arguments import (
    moved_files_suffix,
    opened_directory,
    own_class_option,
    rewound_sink_log,
    sink_decision_needed,
    sink_options,
)
from seamark.cli.store_argument import opened_store
from seamark.errors import InvalidInputError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.native.restore import RestoreOptions, require_empty, restore_directory
from seamark.native.rewind.rewind import SinkPlan, rewind_sink
from seamark.native.sink_tables import table_at, way_back
from seamark.native.table_log import TableAt
from seamark.reports.named_checkpoints import use_named
from seamark.store import CheckpointStore

_LOOK: Final = (
    " --table PATH looks into a Delta or Iceberg table for what it has seen, and says which of its "
    "versions belongs to the batch."
)


@click.command("restore", cls=Command)
@click.argument("store", type=PLACE)
@click.argument("checkpoint", metavar="ID")
@click.argument("path", type=PLACE)
@sink_options
@click.option(
    "--table", metavar="PATH", help="The Delta or Iceberg table that the query writes to."
)
@click.option(
    "--move-input", multiple=True, metavar="OLD=NEW", help="The new place of a file source's input."
)
@click.option("--without-plan", is_flag=True, help="Let Spark plan the next batch again.")
@own_class_option
def command(
    store: str,
    checkpoint: str,
    path: str,
    file_sink: str | None,
    new_file_sink: str | None,
    query_id: str | None,
    table: str | None,
    move_input: tuple[str, ...],
    without_plan: bool,
    own_classes: tuple[str, ...],
) -> None:
    """Write a directory that Spark continues from.

    PATH must be empty or not exist yet. Give it to the query as its checkpointLocation: the query
    continues after the batch of the checkpoint, with the results that it would have had. Absolute
    paths inside the directory point to the new place.

    A sink may have seen later batches than the checkpoint. They run again, with other rows in each
    of them, and some sinks drop batches whose numbers they know. So say what the sink is:
    --query-id, --file-sink, --new-file-sink, or --table to look it up.
    """
    asked = _Asked(
        _pairs(move_input), file_sink, new_file_sink, query_id, table, without_plan, own_classes
    )
    with opened_store(store) as source, opened_directory(path) as target:
        require_empty(target)
        document, table_state = use_named(
            source, checkpoint, lambda manifest: _restored(source, manifest, target, asked)
        )
    print_answer(document, lambda clean: _show(clean, table_state))


class _Asked(NamedTuple):
    """The options of the command."""

    moved: dict[str, str]
    file_sink: str | None
    new_file_sink: str | None
    query_id: str | None
    table: str | None
    without_plan: bool
    own_classes: tuple[str, ...]


def _restored(
    source: CheckpointStore, manifest: CheckpointManifest, target: Directory, asked: _Asked
) -> tuple[Document, TableAt | None]:
    """Write the directory; :class:`CheckpointNotFoundError` when a prune overtakes it."""
    batch = manifest.batch
    table = _looked_up(asked.table, manifest) if asked.table is not None else None
    query_id = asked.query_id
    if query_id is None and (asked.file_sink or asked.new_file_sink) is not None:
        query_id = "keep"
    decided = _decided(query_id, table, batch, target.url)
    wishes = RestoreOptions(decided == "new", asked.moved, asked.without_plan, asked.own_classes)
    with rewound_sink_log(asked.file_sink, asked.new_file_sink, batch) as log:
        rewind = _SinkRewind(log, target) if log is not None else None
        try:
            with progress_bar("restoring", None, of_bytes=True) as advance:
                # the sink goes back when the restore cannot fail for what the store holds, and
                # before the directory is there: somebody might start on it
                done = restore_directory(
                    source, manifest.checkpoint_id, target, wishes, advance, rewind
                )
        except Exception:
            if rewind is not None and rewind.aside is not None:
                print_hint(
                    f"The log of the file sink had gone back to batch {batch} already. Its later "
                    f"entries are in {rewind.aside}: move them back, or restore once more."
                )
            raise
    document: Document = {
        "id": done.checkpoint_id,
        "batch": done.batch,
        "path": target.url,
        "files": done.files,
        "bytes": done.size,
        "replays": done.replays,
        "query_id": decided,
        "file_sink": asked.file_sink,
        "new_file_sink": asked.new_file_sink,
        "aside": rewind.aside if rewind is not None else None,
        "table": table
        and {
            "kind": table.kind,
            "path": table.url,
            "newest_batch": table.newest_batch,
            "version_before": table.version,
        },
    }
    return document, table


def _looked_up(table: str, manifest: CheckpointManifest) -> TableAt:
    query_id = (manifest.native or {}).get("query_id")
    if not isinstance(query_id, str):
        raise InvalidInputError(
            f"checkpoint {manifest.checkpoint_id} does not hold the id of its query",
            hint="--table is for snapshots of directories that Spark keeps by itself.",
        )
    return table_at(opened_directory, table, query_id, manifest.batch)


def _decided(query_id: str | None, table: TableAt | None, batch: int, where: str) -> str:
    """What becomes of the query's id; :class:`RefusedError` when it was not said or loses rows."""
    if table is not None and table.is_ahead_of(batch):
        if query_id == "new":
            return query_id
        then = "Then repeat this" if table.kind == "iceberg" else "Then give --query-id new"
        raise RefusedError(
            "the table would drop batches that it has seen, so nothing was restored",
            where=way_back(table, batch),
            hint=f"Bring the table back to where it was. {then}. With --query-id new alone the "
            "rows of these batches are in the table twice.",
        )
    if query_id is None and table is not None:
        return "keep"
    if query_id is None:
        raise sink_decision_needed("restored", where, _LOOK)
    return query_id


class _SinkRewind:
    """Takes the log of a file sink back when it is called."""

    def __init__(self, log: SinkPlan, target: Directory) -> None:
        self._log = log
        self._target = target
        self.aside: str | None = None
        """Where entries have been moved to; None as long as there are none."""

    def __call__(self) -> None:
        if not self._log.moves and not self._log.rewind.write:
            return
        with closing(self._target.sibling(moved_files_suffix())) as aside:
            self.aside = aside.url if self._log.moves else None
            rewind_sink(self._log, aside)


def _show(document: Document, table: TableAt | None) -> None:
    again = document["replays"]
    replays = "" if again is None else f"; batch {again} is replayed first"
    print_long(
        f"{document['path']} is as after batch {document['batch']} (checkpoint {document['id']}, "
        f"{document['files']} files, {size_text(document['bytes'])}, SHA-256 verified){replays}"
    )
    if table is not None:
        print_paragraph(_table_text(table, document["batch"]))
    if document["aside"] is not None:
        print_hint(f"Entries of the sink's log that were moved away: {document['aside']}")
    print_hint("Start the query with this checkpointLocation. Never run two queries on one.")


def _table_text(table: TableAt, batch: int) -> str:
    if table.is_ahead_of(batch):
        twice = "Bring it back before the query starts, or their rows are in the table twice."
        return f"{way_back(table, batch)}. {twice}"
    if table.newest_batch is None:
        return f"{table.url} has no batch of this query."
    return f"{table.url} has this query up to batch {table.newest_batch}: it will drop nothing."


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in given:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise click.BadParameter(f"{text!r} is not OLD=NEW", param_hint="--move-input")
        pairs[old] = new
    return pairs
