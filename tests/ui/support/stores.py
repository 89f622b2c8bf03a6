"""Stores as pipelines leave them: long histories, damage, pins, rollbacks, hostile names."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

from seamark.manifest import (
    CheckpointManifest,
    ConnectorCheckpoint,
    OperatorCheckpoint,
    SinkCommitStatus,
)
from seamark.spark.row_digests import FORMULA
from seamark.state.pack import PackBuilder
from seamark.store import CheckpointStore, open_store

PHASES = ("begin", "write", "prepare", "capture", "save", "commit", "record", "retain")
EPOCH_MS = 5_000


def lag_line(partitions: dict[str, int]) -> str:
    parts = ",".join(f'"{number}":{offset}' for number, offset in partitions.items())
    return f'{{"trades":{{{parts}}}}}'


def digest(rows: int, epochs: int) -> dict[str, Any]:
    """What an output is said to have got in each of so many epochs."""
    totals = {"total_rows": rows * epochs, "total_digest": "b" * 32}
    return {"rows": rows, "digest": "a" * 32, "since": 1, "formula": FORMULA, **totals}


def epoch_manifest(number: int, *, newest: int, now_ms: int, **changes: Any) -> CheckpointManifest:
    """The manifest of one epoch of a pipeline that reads Kafka and has two sinks."""
    chance = random.Random(number)
    slow = 4.0 if number % 97 == 0 else 1.0
    took = {name: round(chance.uniform(0.002, 0.09) * slow, 4) for name in PHASES}
    took["write"] = round(chance.uniform(0.2, 0.5) * slow, 4)
    at_ms = now_ms - (newest - number) * EPOCH_MS
    offsets = {str(part): number * 1000 + part for part in range(4)}
    behind = {part: offset + abs(chance.randrange(3000) - 500) for part, offset in offsets.items()}
    extra: dict[str, Any] = {
        "attempt": f"1-{number:032x}",
        "timings": took,
        "restore_bytes": 3_000_000 + number * 300,
        "source_latest": {"trades": lag_line(behind)},
        "output_digests": {"bars": digest(120, number), "large": digest(31, number)},
        "sink_guarantees": {"bars": "exactly once", "large": "exactly once"},
        "structure": {
            "name": "trades",
            "sources": {"trades": {"kind": "kafka", "topics": ["trades"]}},
            "sinks": {"bars": {"kind": "files", "target": "/data/bars"}},
        },
        "spark_version": "4.1.0",
    } | changes.pop("extra", {})
    fields: dict[str, Any] = {
        "timestamp_ms": at_ms,
        "source_names": ["trades"],
        "source_offsets": {
            "trades": ConnectorCheckpoint(
                offsets={f"trades-{part}": str(offset) for part, offset in offsets.items()},
                epoch=number,
                metadata={"line": lag_line(offsets)},
            )
        },
        "sink_names": ["bars", "large"],
        "sink_commit_statuses": dict.fromkeys(("bars", "large"), SinkCommitStatus.committed()),
        "sink_epochs": {"bars": number, "large": number},
        "watermark": at_ms - 12_000,
        "pipeline_hash": 77,
        "wal_position": number - 1,
        "vnode_count": 8,
        "extra": extra,
    }
    return CheckpointManifest.new(number, number, **(fields | changes))


def skewed_state(number: int, partitions: int = 8) -> bytes:
    sizes = {p: 400 + 97 * p for p in range(partitions)} | {3: 6000}
    builder = PackBuilder()
    for part, size in sizes.items():
        builder.add(f"state/0/{part}/{number}.delta", random.Random(part).randbytes(size))
    return b"".join(builder.finish())


def fill(root: Path, count: int, *, first: int = 1, now_ms: int | None = None) -> None:
    """Full checkpoints with the state of one operator in a sidecar, one each five seconds."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    with open_store(root) as store:
        store.claim(writer="driver-1", pipeline="trades")
        for number in range(first, first + count):
            save(store, number, newest=first + count - 1, now_ms=now)


def save(store: CheckpointStore, number: int, *, newest: int, now_ms: int, **changes: Any) -> None:
    data = skewed_state(number)
    state = {"stateStoreSave-0": OperatorCheckpoint.in_sidecar(0, len(data))}
    made = epoch_manifest(
        number, newest=newest, now_ms=now_ms, **({"operator_states": state} | changes)
    )
    store.save_with_state(made, [data])


NAME = "\"'><script>alert(1)<img src=x onerror=alert(2)>\u202e\x1b[31m<b>{{7*7}}"
"""Markup that is allowed as a name."""
NASTY = '"><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[31m<b>{{7*7}}'


def hostile(root: Path, *, many: int = 3) -> None:
    """Two checkpoints with markup wherever a store has a text of its own."""
    now = int(time.time() * 1000)
    names = [f"{NAME}{number}" for number in range(many)]
    statuses = {name: SinkCommitStatus.failed(NASTY) for name in names}
    with open_store(root) as store:
        store.claim(writer=NASTY, pipeline=NASTY)
        for number in (1, 2):
            changes: dict[str, Any] = {
                "source_names": names,
                "source_offsets": {
                    name: ConnectorCheckpoint({NASTY: f"{NASTY}{number}"}, number) for name in names
                },
                "table_offsets": {NAME: ConnectorCheckpoint({NASTY: NASTY}, number)},
                "sink_names": names,
                "sink_commit_statuses": statuses,
                "sink_epochs": dict.fromkeys(names, number),
                "source_watermarks": dict.fromkeys(names, now),
                "operator_states": {
                    name: OperatorCheckpoint.inline(b"state") for name in names[:100]
                },
                "extra": {
                    "timings": dict.fromkeys(names, 0.1),
                    "timeline": NASTY,
                    "output_digests": {name: digest(7, number) for name in names},
                    "fork": {
                        "url": NASTY,
                        "checkpoint_id": 1,
                        "timeline": NASTY,
                        "epoch": 1,
                        "pipelines": [NASTY],
                    },
                    "attempt": NASTY,
                    "fingerprint": NASTY,
                    "sink_guarantees": dict.fromkeys(names, NASTY),
                    "structure": {NASTY: {NASTY: [NASTY, {NASTY: NASTY}]}},
                    "upgrade": {"from": 1, "rows": [[NASTY, NASTY, NASTY, NASTY]]},
                    "gaps": [{"source": NASTY, "epoch": number, "why": NASTY}],
                },
            }
            store.save(epoch_manifest(number, newest=2, now_ms=now, **changes))
        store.pin("<b>pin", 1)
        store.pin("javascript:alert(3)", 1)
    foreign: dict[str, Any] = {"version": 1, "checkpoint_id": 3, "epoch": 3, "timestamp_ms": now}
    foreign |= {"source_names": [NASTY], "sink_names": [NASTY], "pipeline_hash": None}
    file = root / "checkpoints/checkpoint_000003/manifest.json"
    file.parent.mkdir()
    file.write_text(json.dumps(foreign))


def make_secret(root: Path, secret: str) -> None:
    """Two checkpoints whose configuration and positions hold a password."""
    now = int(time.time() * 1000)
    with open_store(root) as store:
        store.claim(writer="driver-1")
        for number in (1, 2):
            structure = {
                "sources": {"t": {"options": {"kafka.sasl.password": secret}}},
                "sinks": {"t": f"postgresql://me:{secret}@db/{number}"},
            }
            changes: dict[str, Any] = {
                "sink_commit_statuses": {
                    "s": SinkCommitStatus.failed(f"password={secret} refused")
                },
                "extra": {"structure": structure},
            }
            store.save(epoch_manifest(number, newest=2, now_ms=now, **changes))
