"""State checkpoints that build on each other."""

from __future__ import annotations

from seamark.state import CheckpointId, StateStore


def chain(store: StateStore, length: int) -> list[CheckpointId]:
    """So many checkpoints, each on the one before; each adds a partition."""
    ids: list[CheckpointId] = []
    for epoch in range(length):
        with store.begin(epoch, parent=ids[-1] if ids else None) as writer:
            writer.put("agg", epoch, b"state %d" % epoch)
            ids.append(writer.commit().checkpoint_id)
    return ids
