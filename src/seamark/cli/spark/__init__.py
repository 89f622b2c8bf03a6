"""``seamark spark``: commands on the checkpoint directory of any Spark query."""

from __future__ import annotations

from typing import Final

from seamark.cli.commands import LazyGroup

COMMANDS: Final = {
    "inspect": (
        "seamark.cli.spark.inspect",
        "Show what a directory holds and what is wrong with it.",
    ),
    "snapshot": ("seamark.cli.spark.snapshot", "Save a checkpoint directory in a store."),
    "watch": ("seamark.cli.spark.snapshot", "Keep saving a checkpoint directory in a store."),
    "restore": ("seamark.cli.spark.restore", "Write a directory that Spark continues from."),
    "rollback": ("seamark.cli.spark.rollback", "Rewind a directory to an earlier batch."),
    "repartition": ("seamark.cli.spark.repartition", "Change the number of state partitions."),
    "state": ("seamark.cli.spark.state", "Show the rows of the state at a batch."),
}

command = LazyGroup(
    "spark",
    table=COMMANDS,
    help="Work on the checkpoint directory of any Spark query.\n\n"
    "PATH is its checkpointLocation: local, s3a://, gs://, abfss://, or anything else that Hadoop "
    "supports if Spark is installed. The query needs no change.",
)
