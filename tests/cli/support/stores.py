"""Stores as pipelines leave them, made through the public interface, and a way to run commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seamark import CheckpointManifest, ConnectorCheckpoint, OperatorCheckpoint, open_store
from seamark.cli.app import run
from seamark.manifest import SinkCommitStatus
from seamark.state.pack import PackBuilder
from seamark.store import CheckpointStore
from seamark.store import cleanup as housekeeping
from seamark.store.references import STATE_PREFIX

COMMITTED = SinkCommitStatus.committed()
MARK = 1_767_605_400_000
"""2026-01-05 09:30 UTC in milliseconds."""


def pack(**files: int) -> bytes:
    """State files of one operator, as they are packed; 'p3_7' is version 7 of partition 3."""
    builder = PackBuilder()
    for name, size in files.items():
        partition, version = name[1:].split("_")
        path = f"state/0/{partition}/{version}.delta"
        builder.add(path, bytes(ord("a") + (i * i) % 23 for i in range(size)))
    return b"".join(builder.finish())


def manifest(checkpoint_id: int, **changes: Any) -> CheckpointManifest:
    """What a pipeline with a Kafka source and two sinks saves."""
    epoch = checkpoint_id
    extra = {
        "timings": {"begin": 0.01, "write": 0.3, "save": 0.1},
        "next_watermark": MARK + epoch * 1000 + 500,
        "attempt": f"1-{checkpoint_id:08x}-0000-4000-8000-000000000000",
        "structure": {"sources": {"trades": "kafka"}, "sinks": {"bars": {"target": "/bars"}}},
        "sink_guarantees": {"bars": "exactly once"},
        "read_points": {
            "bars": {
                "kind": "files",
                "target": "/bars",
                "at": {"epoch": epoch, "format": "parquet"},
            }
        },
    } | changes.pop("extra", {})
    offsets = {f"trades-{part}": str(100 * epoch + part) for part in range(3)}
    fields: dict[str, Any] = {
        "source_offsets": {"trades": ConnectorCheckpoint(offsets, epoch)},
        "source_names": ["trades"],
        "sink_names": ["bars", "large"],
        "sink_epochs": {"bars": epoch, "large": epoch},
        "sink_commit_statuses": {"bars": COMMITTED, "large": COMMITTED},
        "watermark": MARK + epoch * 1000,
        "source_watermarks": {"trades": MARK + epoch * 1000},
        "pipeline_hash": 77,
        "wal_position": epoch - 1,
        "vnode_count": 4,
        "extra": extra,
    }
    return CheckpointManifest.new(checkpoint_id, epoch, **(fields | changes))


def fill(root: Path, count: int = 4) -> None:
    """A full checkpoint and then incremental ones, each on the one before, in sidecars."""
    with open_store(root) as store:
        store.claim(writer="driver-1", pipeline="trades")
        for number in range(1, count + 1):
            save(store, number)


def save(store: CheckpointStore, number: int, **changes: Any) -> None:
    """Save one checkpoint with a sidecar."""
    data = pack(**{f"p0_{number}": 4000, f"p1_{number}": 2000})
    fields: dict[str, Any] = {
        "operator_states": {"stateStoreSave-0": OperatorCheckpoint.in_sidecar(0, len(data))},
        "is_incremental": number > 1,
        "parent_id": number - 1 if number > 1 else None,
    }
    store.save_with_state(manifest(number, **(fields | changes)), [data])


def save_partitioned(root: Path, number: int) -> str:
    """Save a full checkpoint whose state is partitioned; where that is."""
    with open_store(root) as store, store.partitioned_state.begin(number) as writer:
        for partition in range(6):
            writer.put("stateStoreSave-0", partition, pack(**{f"p{partition}_{number}": 900}))
        path = f"{STATE_PREFIX}{writer.commit().checkpoint_id}"
        store.save(manifest(number, table_store_checkpoint_path=path))
        return path


def interrupt_prune(root: Path) -> None:
    """Two full checkpoints more, and a prune that is killed once it has moved the boundary."""
    with open_store(root) as store:
        for number in (5, 6):
            save(store, number, is_incremental=False, parent_id=None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(housekeeping, "_sweep", lambda *_: None)
            store.prune(2)


def sidecar(root: Path, number: int) -> Path:
    return root / f"checkpoints/checkpoint_{number:06}/state.bin"


def stored_manifest(root: Path, number: int) -> Path:
    return root / f"checkpoints/checkpoint_{number:06}/manifest.json"


def flip(file: Path, at: int = 30) -> None:
    """Flip one bit."""
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


class Commands:
    """Runs commands in this process and keeps what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object, code: int = 0) -> str:
        """What a command prints; it must end with ``code`` and stay within 80 columns."""
        self._capsys.readouterr()
        found = run([str(word) for word in words])
        out, self.err = self._capsys.readouterr()
        assert found == code, (found, out, self.err)
        for line in (*out.splitlines(), *self.err.splitlines()):
            # neither a command to be typed next nor a long path is broken
            whole = "seamark " in line or line.startswith("{") or len(line.split()) == 1
            assert len(line) <= 80 or whole, line
        assert "Traceback" not in self.err
        return out

    def json(self, *words: object, code: int = 0) -> Any:
        """What it prints with ``--json``: exactly one document."""
        return json.loads(self(*words, "--json", code=code))
