"""A file that keeps Spark out of a checkpoint directory while it is being rewound.

Spark has no lock on a directory. But a start reads the newest entry of the offset log first and
fails when it is none, and a query that runs fails when the entry that it is about to write is
there already. So an entry that no Spark can read, after the newest one, holds off both; Spark's
error repeats the first line of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from seamark.spark.native.places.directory import Tree

_BEGIN: Final = "a rollback by seamark to batch "


@dataclass(frozen=True)
class Barrier:
    """What is under way in a directory."""

    path: str
    """Relative to the directory."""
    to_batch: int
    checkpoint_id: int | None = None
    """The checkpoint of the safety store that the batch comes from, if it does."""

    @property
    def text(self) -> bytes:
        """The file."""
        fields = {"to_batch": self.to_batch, "checkpoint_id": self.checkpoint_id}
        told = f"{_BEGIN}{self.to_batch} was not finished: repeat 'seamark spark rollback'"
        return f"{told}\n{json.dumps(fields)}".encode()


def new_barrier(tree: Tree, to_batch: int, checkpoint_id: int | None) -> Barrier:
    """The barrier for a directory without one."""
    newest = max((*tree.batches("offsets"), *tree.batches("commits")), default=-1)
    return Barrier(f"offsets/{newest + 1}", to_batch, checkpoint_id)


def found_barrier(tree: Tree) -> Barrier | None:
    """What was begun in a directory and not finished."""
    offsets = tree.batches("offsets")
    path = f"offsets/{offsets[-1]}" if offsets else ""
    text = tree.read_text(path) if offsets else None
    if text is None or not text.startswith(_BEGIN):
        return None
    try:
        fields = json.loads(text.partition("\n")[2])
        checkpoint_id = fields["checkpoint_id"]
        return Barrier(
            path, int(fields["to_batch"]), None if checkpoint_id is None else int(checkpoint_id)
        )
    except (ValueError, KeyError, TypeError):
        return Barrier(path, -1)


def behind(tree: Tree, barrier: Barrier | None) -> Tree:
    """The directory as it is without the barrier."""
    return tree if barrier is None else without(tree, [barrier.path])


def without(tree: Tree, paths: list[str]) -> Tree:
    """A listing with some files left out."""
    gone = set(paths)
    kept = {path: entry for path, entry in tree.entries.items() if path not in gone}
    return Tree(tree.directory, kept)
