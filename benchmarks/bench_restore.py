"""What is read to restore one partition out of 1 000, counted at the client of an object store.

The index is the manifest: one GET, and one more for each parent. It names the block of each
partition, so that each link of its chain is one range of one pack and nothing around it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import obstore
from obstore.store import MemoryStore

from harness import Row, options, show
from seamark.blobs import object_store
from seamark.state import CheckpointId, StateStore
from tests.support.recording import Call, Recording

PARTITIONS: Final = 1000
STATE: Final = 4096
DELTA: Final = 400
WANTED: Final = 500


class Reads:
    """What was asked for inside a ``with``: whole manifests, ranges of packs, anything else."""

    def __init__(self) -> None:
        self.manifests = 0
        self.ranges = 0
        self.range_bytes = 0
        self.others = 0

    def note(self, calls: list[Call]) -> None:
        """Sort the calls by what they are for."""
        for call in calls:
            if call.name == "get" and "manifest.json" in call.summary:
                self.manifests += 1
            elif call.name == "get" and "/packs/" in call.summary and "range" in call.summary:
                self.ranges += 1
                within = re.search(r"range\D+(\d+)\D+(\d+)", call.summary)
                self.range_bytes += int(within[2]) - int(within[1]) if within else 0
            elif "." not in call.name:  # get.stream is how the answer to a get is taken
                self.others += 1


@contextmanager
def counted() -> Iterator[Reads]:
    """The requests that are made inside."""
    recording, reads = Recording(), Reads()
    stand_in: Any = recording.wrap(obstore, "obstore")
    setattr(object_store, "obstore", stand_in)  # noqa: B010 - mypy minds the plain form
    try:
        yield reads
    finally:
        setattr(object_store, "obstore", obstore)  # noqa: B010
        reads.note(recording.calls)


def full(store: StateStore) -> CheckpointId:
    """A checkpoint of 1 000 packed partitions."""
    with store.begin(epoch=1) as writer:
        for partition in range(PARTITIONS):
            writer.put("window", partition, os.urandom(STATE))
        return writer.commit().checkpoint_id


def changed(store: StateStore, parent: CheckpointId, *, rebase: bool = False) -> CheckpointId:
    """A checkpoint with a delta for every partition."""
    with store.begin(epoch=2, parent=parent, rebase=rebase) as writer:
        for partition in range(PARTITIONS):
            writer.put("window", partition, os.urandom(DELTA), is_delta=True)
        return writer.commit().checkpoint_id


def restored(backing: MemoryStore, checkpoint: CheckpointId, deltas: int) -> Reads:
    """What a handle that knows nothing reads for one partition."""
    with StateStore(backing) as store, counted() as reads:
        state = store.restore(checkpoint, "window", WANTED)
    assert (len(state.snapshot), len(state.deltas)) == (STATE, deltas)
    return reads


def rows_of(what: str, reads: Reads, *, manifests: int, links: int) -> list[Row]:
    """Counts, and what they may be."""
    kept = STATE + DELTA * (links - 1)
    return [
        Row(f"{what}: manifests", "-", reads.manifests, manifests, "GET"),
        Row("  ranges of packs", f"{links} in the chain", reads.ranges, links, "GET"),
        Row("  bytes of packs", f"{kept} bytes of state", reads.range_bytes / kept, 1.0),
        Row("  anything else", "-", reads.others, 0, "requests"),
    ]


def main() -> None:
    """Print the table."""
    given = options(__doc__)
    longest = 3 if given.quick else 10
    backing = MemoryStore()
    with StateStore(backing) as store:
        first = newest = full(store)
        for _ in range(longest):
            newest = changed(store, newest)
        with store.begin(epoch=3, parent=newest, rebase=True) as writer:
            rebased = writer.commit().checkpoint_id
    rows = [
        *rows_of("a full checkpoint", restored(backing, first, 0), manifests=1, links=1),
        *rows_of(
            f"after {longest} deltas",
            restored(backing, newest, longest),
            manifests=longest + 1,
            links=longest + 1,
        ),
        *rows_of(
            "the same, rebased",
            restored(backing, rebased, longest),
            manifests=1,
            links=longest + 1,
        ),
    ]
    show("restoring one partition out of 1 000", rows, against="of")


if __name__ == "__main__":
    main()
