"""Finding checkpoints among many on a local disk."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Final

from harness import Row, file_system, options, scratch, seconds, show
from seamark import CheckpointManifest, OperatorCheckpoint, open_store

LISTED: Final = 10_000
RECOVERED: Final = 1_000


def full(checkpoint_id: int) -> CheckpointManifest:
    """A checkpoint with some inline state."""
    state = {"join": OperatorCheckpoint.inline(b"state" * 100)}
    return CheckpointManifest.new(checkpoint_id, epoch=checkpoint_id, operator_states=state)


def fill(root: Path, number: int) -> None:
    """Save one checkpoint and copy its folder: saving them all would take a minute of fsyncs."""
    with open_store(root) as store:
        store.save(full(1))
        store.save(full(number))
    data = (root / "checkpoints/checkpoint_000001/manifest.json").read_bytes()
    for i in range(2, number):
        folder = root / f"checkpoints/checkpoint_{i:06}"
        folder.mkdir()
        (folder / "manifest.json").write_bytes(data)


def listing(root: Path, number: int) -> Callable[[], None]:
    """List with a handle that has seen nothing yet."""

    def run() -> None:
        with open_store(root) as store:
            assert len(store.list_ids()) == number

    return run


def recovering(root: Path, number: int) -> Callable[[], None]:
    """Recover with a handle that has seen nothing yet."""

    def run() -> None:
        with open_store(root) as store:
            assert store.recover_latest_validated().chosen_id == number

    return run


def main() -> None:
    """Print the table."""
    given = options(__doc__)
    rounds = 7 if given.quick else 31
    with scratch(given.directory) as folder:
        fill(folder / "many", LISTED)
        fill(folder / "some", RECOVERED)
        cases = {
            f"list_ids() of {LISTED}": (listing(folder / "many", LISTED), 50.0),
            f"recovery among {RECOVERED}": (recovering(folder / "some", RECOVERED), None),
        }
        rows = []
        for what, (run, limit) in cases.items():
            took = 1000 * statistics.median(seconds(run) for _ in range(rounds))
            rows.append(Row(what, "-", took, limit, "ms", strict=True))
        title = f"finding checkpoints on {file_system(folder)}, {rounds} rounds, names cached"
        show(title, rows)


if __name__ == "__main__":
    main()
