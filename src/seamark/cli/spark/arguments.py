"""What the ``spark`` commands are pointed at, and what happens to the sink when batches run again.

Tests: ``tests/cli/spark/test_restore.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click

from seamark.checkpoint_dir.file_logs.sink_log import rewound
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
    " --file-sink OUT, or keep the id and let the query write to a new folder. Delta Lake and"
    " others that remember the query's id and the batch: give --query-id new, and undo there what"
    " later batches wrote. Kafka, the console and functions (foreachBatch) that drop no number get"
    " the batches again: --query-id keep. A function that goes by the number, as one with a table"
    " of the batches that it has written, drops new rows, whatever the id: undo there what later"
    " batches wrote, with their numbers. If it gives Delta txnAppId and txnVersion: undo it in the"
    " table and change the name."
)


def opened_directory(path: str) -> closing[Directory]:
    """The directory at a path or URI; storage options are for object stores only."""
    is_local = local_path(path) is not None
    return closing(open_directory(path, None if is_local else settings().storage_options))


def sink_options(function: Decorated) -> Decorated:
    """``--file-sink`` and ``--query-id``."""
    file_sink = click.option(
        "--file-sink",
        metavar="OUT",
        help="The folder of the query's file sink, whose log is rewound too.",
    )
    query_id = click.option(
        "--query-id",
        type=click.Choice(["new", "keep"]),
        help="Whether the query gets a new id; for sinks that remember it.",
    )
    return file_sink(query_id(function))


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


@contextmanager
def opened_sink_log(out: str, to_batch: int) -> Iterator[SinkPlan]:
    """The log of the file sink that writes to ``out``, and what makes it end at a batch."""
    with opened_directory(f"{out.rstrip('/')}/{SINK_LOG}") as log:
        try:
            tree = Tree.of(log)
        except CheckpointNotFoundError:
            raise RefusedError(
                f"there is no log of a file sink in {out}",
                hint="Give the folder that the query writes to, the one with _spark_metadata.",
            ) from None
        names = list(tree.names(""))

        def read(name: str) -> str:
            return log_text(f"{SINK_LOG}/{name}", tree.read(name))

        yield sink_plan(tree, rewound(names, read, to_batch))


def moved_files_suffix() -> str:
    """What the folder for moved files has after the directory's own name."""
    now = datetime.now(UTC)
    return f".rolled-back-{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03}Z"
