"""A file that keeps Spark out of a checkpoint directory while it is being rewound.

Spark has no lock on a directory. But a start reads the newest entry of the offset log first and
fails when it is none, and a query that runs fails when the entry that it is about to write is
there already. So an entry that no Spark can read, after the newest one, holds off both; Spark's
error repeats the first line of it.

Tests: ``tests/native/test_rewind.py``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from seamark._common.json_documents import UNREADABLE, decode_foreign
from seamark.capture.batches import read_query_id
from seamark.checkpoint_dir.places.directory import Tree
from seamark.errors import DamageError

_BEGIN: Final = "a rollback by seamark to batch "


@dataclass(frozen=True)
class Barrier:
    """What is under way in a directory."""

    path: str
    """Relative to the directory."""
    to_batch: int
    checkpoint_id: int | None = None
    """The checkpoint of the safety store that the batch comes from, if it does."""
    query_id: str | None = None
    """The query's id before anything was done."""
    new_query_id: str | None = None
    """The one that it gets, when it gets another."""

    @property
    def text(self) -> bytes:
        """The file."""
        fields = {name: value for name, value in asdict(self).items() if name != "path"}
        text = f"{_BEGIN}{self.to_batch} was not finished: repeat 'seamark spark rollback'"
        return f"{text}\n{json.dumps(fields)}".encode()


def new_barrier(tree: Tree, to_batch: int, checkpoint_id: int | None) -> Barrier:
    """The barrier for a directory without one."""
    newest = max((*tree.batches("offsets"), *tree.batches("commits")), default=-1)
    return Barrier(f"offsets/{newest + 1}", to_batch, checkpoint_id)


def found_barrier(tree: Tree) -> Barrier | None:
    """What was started in a directory and not finished."""
    offsets = tree.batches("offsets")
    path = f"offsets/{offsets[-1]}" if offsets else ""
    text = tree.read_text(path) if offsets else None
    if text is None or not text.startswith(_BEGIN):
        return None
    try:
        fields = decode_foreign(text.partition("\n")[2])
        checkpoint_id = fields["checkpoint_id"]
        return Barrier(
            path,
            int(fields["to_batch"]),
            None if checkpoint_id is None else int(checkpoint_id),
            _text_or_none(fields.get("query_id")),
            _text_or_none(fields.get("new_query_id")),
        )
    except (*UNREADABLE, LookupError, TypeError, AttributeError, OverflowError, DamageError):
        return Barrier(path, -1)


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def query_before(tree: Tree) -> str:
    """The query's id, or the one that it had before a rollback that was not finished."""
    begun = found_barrier(tree)
    if begun is not None and begun.query_id is not None:
        return begun.query_id
    return read_query_id(tree)


def behind(tree: Tree, barrier: Barrier | None) -> Tree:
    """The directory as it is without the barrier."""
    return tree if barrier is None else without(tree, [barrier.path])


def without(tree: Tree, paths: list[str]) -> Tree:
    """A listing with some files left out."""
    gone = set(paths)
    kept = {path: entry for path, entry in tree.entries.items() if path not in gone}
    return Tree(tree.directory, kept)
