"""100 incremental checkpoints: what the store holds in the end, against what had to be written.

The least is one full state and every change once. All objects count: packs with their indexes,
manifests, the pointer. The bytes are random, so compression saves nothing.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from harness import Row, in_milliseconds, interleaved, options, ratio, seconds, show
from seamark.blobs.memory import MemoryBlobs
from seamark.state import CheckpointId, StateStore

CHECKPOINTS: Final = 100
PARTITION: Final = (100 << 20) // 1000
NOISE: Final = os.urandom(32 << 20)
MIB: Final = 1 << 20


def noise(size: int) -> bytes:
    """Some bytes that do not compress, and hardly ever the same ones again."""
    at = random.randrange(len(NOISE) - size)
    return NOISE[at : at + size]


@dataclass
class History:
    """A full checkpoint and 100 that build on it."""

    place: MemoryBlobs
    ids: list[CheckpointId]
    least: int
    """One full state and every change once, in bytes."""
    save_seconds: list[float]

    @property
    def stored(self) -> int:
        """All that is in the store, in bytes."""
        return sum(entry.size for entry in self.place.entries(""))

    @property
    def objects(self) -> int:
        """How many objects that is."""
        return len(self.place.entries(""))


def written(
    partitions: int,
    changing: Callable[[], Iterable[int]],
    *,
    delta: int | None,
    longest_chain: int = 10,
) -> History:
    """Make the checkpoints; without a ``delta``'s size a change is a whole new state."""
    history = History(MemoryBlobs(), [], partitions * PARTITION, [])
    store = StateStore(history.place, longest_chain=longest_chain)

    def save(places: list[int]) -> None:
        parent = history.ids[-1] if history.ids else None
        with store.begin(epoch=len(history.ids), parent=parent) as writer:
            for partition in places:
                whole = delta is None or writer.needs_snapshot("join", partition)
                state = noise(PARTITION if whole else delta or 0)
                writer.put("join", partition, state, is_delta=not whole)
            history.ids.append(writer.commit().checkpoint_id)

    save(list(range(partitions)))
    for _ in range(CHECKPOINTS):
        places = list(changing())
        history.least += len(places) * (PARTITION if delta is None else delta)
        history.save_seconds.append(seconds(partial(save, places)))
    return history


def some_change(partitions: int) -> list[Row]:
    """1 % of the partitions at a time, as new states and as deltas of a tenth."""
    rows = []
    for what, delta in (("new states", None), ("deltas of 10 %", PARTITION // 10)):
        history = written(
            partitions,
            lambda: random.sample(range(partitions), max(partitions // 100, 1)),
            delta=delta,
        )
        rows += [
            Row(f"1 % of the partitions, {what}", _least(history), _overhead(history), 1.3),
            Row("  objects", "-", history.objects, unit=""),
        ]
    return rows


def all_change(partitions: int, longest: int, rounds: int) -> list[Row]:
    """Every partition by 1 % each time: what a longer chain saves, and what it costs to read."""
    history = written(
        partitions, lambda: range(partitions), delta=PARTITION // 100, longest_chain=longest
    )
    store = StateStore(history.place)

    def restore(checkpoint: CheckpointId) -> None:
        for _ in store.restore_all(checkpoint):
            pass

    def one(checkpoint: CheckpointId) -> None:
        store.restore(checkpoint, "join", partitions // 2)

    cases = {
        "snapshots": lambda: restore(history.ids[0]),
        "chains": lambda: restore(history.ids[longest]),  # where all chains are longest
        "one snapshot": lambda: one(history.ids[0]),
        "one chain": lambda: one(history.ids[longest]),
    }

    times = interleaved(cases, rounds)
    all_said = f"without deltas ({in_milliseconds(times['snapshots'])})"
    one_said = f"without deltas ({in_milliseconds(times['one snapshot'])})"
    return [
        Row(f"every partition by 1 %, chains of {longest}", _least(history), _overhead(history)),
        Row("  objects", "-", history.objects, unit=""),
        Row("  restore all", all_said, ratio(times["chains"], times["snapshots"])),
        Row("  restore one", one_said, ratio(times["one chain"], times["one snapshot"])),
        Row(
            "  save, median", "-", 1000 * sorted(history.save_seconds)[CHECKPOINTS // 2], unit="ms"
        ),
    ]


def _least(history: History) -> str:
    return f"one full and all changes ({history.least / MIB:.0f} MiB)"


def _overhead(history: History) -> float:
    return history.stored / history.least


def main() -> None:
    """Print the tables."""
    given = options(__doc__)
    partitions, rounds = (100, 3) if given.quick else (1000, 7)
    whole = f"{partitions * PARTITION / MIB:.0f} MiB in {partitions} partitions"
    show(f"{CHECKPOINTS} increments of {whole}, bytes stored", some_change(partitions))
    rows: list[Row] = []
    for longest in (10, 20, 50):
        rows += all_change(partitions, longest, rounds)
    show(f"the same when all of it changes, {rounds} rounds", rows)


if __name__ == "__main__":
    main()
