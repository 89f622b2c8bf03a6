"""What the ``spark`` commands are pointed at, and what happens to the sink when batches run again.

Tests: ``tests/cli/spark/test_restore.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click

from seamark.checkpoint_dir.file_logs.sink_log import SinkRewind, begun_after, rewound
from seamark.checkpoint_dir.places.directory import Directory, Tree, open_directory
from seamark.cli.commands import settings
from seamark.errors import CheckpointNotFoundError, RefusedError
from seamark.native.rewind.files import SINK_LOG
from seamark.native.rewind.rewind import SinkPlan, sink_plan
from seamark.reports.places import local_path
from seamark.spark.batch_log import log_text

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

DECISION: Final = (
    "The directory does not say where the query writes, and some sinks silently drop a batch whose"
    " number they have seen. A file sink (parquet, json, csv, text) goes by the number alone: give"
    " --file-sink OUT, or --new-file-sink OUT for a new folder that the query is to write to; the"
    " old one keeps what later batches wrote. Delta Lake and others that remember the query's id"
    " and the batch: give --query-id new, and undo there what later batches wrote. Kafka, the"
    " console and functions (foreachBatch) that drop no number get the batches again: --query-id"
    " keep. A function that goes by the number, as one with a table of the batches that it has"
    " written, drops new rows, whatever the id: undo there what later batches wrote, with their"
    " numbers. If it gives Delta txnAppId and txnVersion: undo it in the table and change the name."
)


def opened_directory(path: str) -> closing[Directory]:
    """The directory at a path or URI; storage options are for object stores only."""
    is_local = local_path(path) is not None
    return closing(open_directory(path, None if is_local else settings().storage_options))


def sink_options(function: Decorated) -> Decorated:
    """``--file-sink``, ``--new-file-sink`` and ``--query-id``."""
    file_sink = click.option(
        "--file-sink",
        metavar="OUT",
        help="The folder of the query's file sink, whose log is rewound too.",
    )
    new_file_sink = click.option(
        "--new-file-sink",
        metavar="OUT",
        help="A new folder that the file sink is to write to from now on.",
    )
    query_id = click.option(
        "--query-id",
        type=click.Choice(["new", "keep"]),
        help="Whether the query gets a new id; for sinks that remember it.",
    )
    return file_sink(new_file_sink(query_id(function)))


def own_class_option(function: Decorated) -> Decorated:
    """``--own-class``."""
    return click.option(
        "--own-class",
        "own_classes",
        multiple=True,
        metavar="CLASS",
        help="A state store provider or codec in the offset log that is yours, not Spark's.",
    )(function)


def sink_decision_needed(what: str, where: str, more: str = "") -> RefusedError:
    """The error for a command that cannot go on without an answer."""
    return RefusedError(
        f"you must say what happens to the sink, so nothing was {what}",
        where=where,
        hint=f"{DECISION}{more}",
    )


SinkChange = Callable[[Collection[str], Callable[[str], str]], SinkRewind]
"""What becomes of a log, by the names and the texts of its entries."""


@contextmanager
def opened_sink_log(out: str, change: SinkChange, *, is_new: bool = False) -> Iterator[SinkPlan]:
    """The log of the file sink that writes to ``out``, and what is to become of it.

    :class:`RefusedError` when there is none and the folder is not said to be new.
    """
    place = f"{out.rstrip('/')}/{SINK_LOG}"
    local = local_path(place)
    if local is not None and os.path.islink(local):
        raise RefusedError(
            f"{local} is a link, and links inside a folder of a sink are not followed",
            hint="Put the folder itself in its place. The path of the sink's folder may be a link.",
        )
    with opened_directory(place) as log:
        try:
            tree = Tree.of(log)
        except CheckpointNotFoundError:
            if not is_new:
                raise RefusedError(
                    f"there is no log of a file sink in {out}",
                    hint="Give the folder that the query writes to, the one with _spark_metadata.",
                ) from None
            tree = Tree(log, {})

        def read(name: str) -> str:
            return log_text(f"{SINK_LOG}/{name}", tree.read(name))

        yield sink_plan(tree, change(list(tree.names("")), read))


def rewound_sink_log(
    file_sink: str | None, new_file_sink: str | None, to_batch: int
) -> AbstractContextManager[SinkPlan | None]:
    """The log that ``--file-sink`` or ``--new-file-sink`` names, made to end at a batch."""
    if file_sink is not None and new_file_sink is not None:
        raise click.UsageError("give --file-sink or --new-file-sink, not both")
    if new_file_sink is not None:
        return opened_sink_log(
            new_file_sink, lambda names, read: begun_after(names, read, to_batch), is_new=True
        )
    if file_sink is not None:
        return opened_sink_log(file_sink, lambda names, read: rewound(names, read, to_batch))
    return nullcontext()


def moved_files_suffix() -> str:
    """What the folder for moved files has after the directory's own name."""
    now = datetime.now(UTC)
    return f".rolled-back-{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03}Z"
