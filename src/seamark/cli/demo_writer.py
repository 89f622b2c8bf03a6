"""The process that the demo kills: it saves one checkpoint after the other until it dies."""

from __future__ import annotations

import hashlib
import itertools
import sys
import time

from seamark.manifest import (
    CheckpointManifest,
    ConnectorCheckpoint,
    OperatorCheckpoint,
    SinkCommitStatus,
)
from seamark.store import open_store

STATE_BYTES = 4 << 20


def state_of(epoch: int) -> bytes:
    """The state that this pipeline has after an epoch; it follows from the number alone."""
    link = hashlib.sha256(b"%d" % epoch).digest()
    return link * (STATE_BYTES // len(link))


def main(root: str) -> None:
    """Claim the store at ``root`` and save for ever, telling about each step on stdout."""
    store = open_store(root, keep=5)
    store.claim(pipeline="demo")
    first = store.next_id()
    for checkpoint_id in itertools.count(first):
        state = state_of(checkpoint_id)
        manifest = CheckpointManifest.new(
            checkpoint_id,
            epoch=checkpoint_id,
            source_names=["trades"],
            sink_names=["bars"],
            source_offsets={"trades": ConnectorCheckpoint({"0": str(checkpoint_id * 1000)})},
            sink_commit_statuses={"bars": SinkCommitStatus.pending()},
            operator_states={"window": OperatorCheckpoint.in_sidecar(0, len(state))},
        )
        print(f"saving {checkpoint_id}", flush=True)  # noqa: T201 - read by the demo
        started = time.perf_counter()
        saved = store.save_with_state(manifest, [state])
        done = {"bars": SinkCommitStatus.committed()}
        store.update_manifest(saved.replace(sink_commit_statuses=done))
        took = time.perf_counter() - started
        print(f"saved {checkpoint_id} {took:.6f} {saved.size_bytes}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
