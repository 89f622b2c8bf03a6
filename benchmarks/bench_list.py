"""Listing a thousand checkpoints by the command line, and what its help costs.

The manifests have the largest inline state that a pipeline writes, 256 KiB each.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from harness import Row, file_system, in_milliseconds, interleaved, options, scratch, show
from seamark import CheckpointManifest, OperatorCheckpoint, open_store
from seamark.store.inspection import scan
from seamark.store.manifest_changes import sealed

LISTED: Final = 1_000
OPERATORS: Final = 4
INLINE: Final = 64 << 10


def fill(root: Path) -> None:
    """Save one checkpoint and write the others like it: saving all would be a minute of fsyncs."""
    state = {
        f"operator-{number}": OperatorCheckpoint.inline(os.urandom(INLINE))
        for number in range(OPERATORS)
    }
    with open_store(root) as store:
        first = store.save(
            CheckpointManifest.new(1, 1, operator_states=state, sink_names=["bars", "large"])
        )
    for number in range(2, LISTED + 1):
        _, data = sealed(first.replace(checkpoint_id=number, epoch=number))
        folder = root / f"checkpoints/checkpoint_{number:06}"
        folder.mkdir()
        (folder / "manifest.json").write_bytes(data)


def python(*arguments: str) -> Callable[[], None]:
    """A run of this interpreter, to its end."""

    def run() -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    return run


def surveying(root: Path) -> Callable[[], None]:
    """Read every manifest with a handle that has seen nothing yet."""

    def run() -> None:
        with open_store(root) as store:
            assert sum(1 for _ in scan(store)) == LISTED

    return run


def reading(root: Path) -> Callable[[], None]:
    """The least that has to be done: read the same files."""
    files = sorted(root.glob("checkpoints/*/manifest.json"))

    def run() -> None:
        assert all(file.read_bytes() for file in files)

    return run


def main() -> None:
    """Print the table."""
    given = options(__doc__)
    rounds = 3 if given.quick else 11
    with scratch(given.directory) as folder:
        fill(folder / "store")
        where = str(folder / "store")
        bare, listing, surveyed = "a bare Python", f"seamark list of {LISTED}", "survey()"
        asking, files = "seamark --help", "reading the files"
        times = interleaved(
            {
                bare: python("-c", "pass"),
                asking: python("-m", "seamark", "--help"),
                listing: python("-m", "seamark", "list", where),
                f"{listing}, --json": python("-m", "seamark", "list", where, "--json"),
                files: reading(folder / "store"),
                surveyed: surveying(folder / "store"),
            },
            rounds,
        )
        more = 1000 * statistics.median(
            a - b for a, b in zip(times[asking], times[bare], strict=True)
        )
        start = f"{bare} ({in_milliseconds(times[bare])})"
        rows = [
            Row(name, "-", statistics.median(times[name]), 1.0, "s", strict=True)
            for name in (listing, f"{listing}, --json")
        ]
        least = f"{files} ({in_milliseconds(times[files])})"
        rows.append(
            Row(f"{surveyed} in a process", least, statistics.median(times[surveyed]), 1.0, "s")
        )
        rows.append(Row(f"{asking}, more than", start, more, 250, "ms"))
        size = OPERATORS * INLINE // 1024
        title = (
            f"the command line on {file_system(folder)}, {size} KiB of inline state each, "
            f"{rounds} rounds, files cached"
        )
        show(title, rows)


if __name__ == "__main__":
    main()
