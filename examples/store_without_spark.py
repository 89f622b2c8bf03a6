"""Save, validate and recover checkpoints without Spark.

Any program that reads from a position can keep its state in a checkpoint store. This one saves
three checkpoints, then flips one bit in the state of the newest. You see what is wrong with that
one, and that recovery chooses the one before and says why::

    python examples/store_without_spark.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from seamark import CheckpointManifest, ConnectorCheckpoint, OperatorCheckpoint, open_store


def save(folder: Path, epochs: int) -> None:
    """Save a checkpoint for each epoch: the position of a source, and 64 KiB of state."""
    with open_store(folder, keep=10) as store:
        store.claim(pipeline="counter")  # any other writer is fenced from here on
        for epoch in range(1, epochs + 1):
            state = bytes([epoch]) * 65536
            manifest = CheckpointManifest.new(
                store.next_id(),
                epoch=epoch,
                source_offsets={"events": ConnectorCheckpoint({"0": str(epoch * 1000)})},
                operator_states={"counter": OperatorCheckpoint.in_sidecar(0, len(state))},
            )
            store.save_with_state(manifest, [state])


def flip_a_bit(folder: Path) -> None:
    """Damage the newest state file, as a bad disk would."""
    newest = max(folder.rglob("state*.bin"), key=str)
    damaged = bytearray(newest.read_bytes())
    damaged[1000] ^= 1
    newest.write_bytes(damaged)


def main(folder: Path) -> None:
    """Save three checkpoints, damage one, and recover."""
    save(folder, epochs=3)
    flip_a_bit(folder)
    with open_store(folder) as store:
        for number in store.list_ids():
            result = store.validate_checkpoint(number)
            print(f"checkpoint {number}: {'whole' if result.valid else 'damaged'}")
        report = store.recover_latest_validated()
        for number, reason in report.skipped:
            print(f"skipped {number}: {reason}")
        if report.chosen_id is not None and (chosen := store.load_by_id(report.chosen_id)):
            position = chosen.source_offsets["events"].offsets["0"]
            print(f"chosen {chosen.checkpoint_id}: continue from event {position}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "counter")
