"""Encoding and decoding manifests, against plain msgspec structs that check nothing.

Without the checksum that the store puts on top: that is SHA-256 over the same bytes.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from typing import Final

import msgspec

from harness import Row, in_milliseconds, interleaved, options, ratio, show
from plain_manifest import PlainManifest, plain_copy
from seamark import (
    CheckpointManifest,
    ConnectorCheckpoint,
    InFlightRecord,
    OperatorCheckpoint,
    SinkCommitStatus,
)

LIMIT: Final = 1.5
EXTRA: Final = {"writer": "bench pid 1 seamark 0", "generation": 1, "timeline": "0" * 32}


def manifest(sources: int, operators: int, state: int) -> CheckpointManifest:
    """One with every kind of part in it, as the store writes it."""
    position = ConnectorCheckpoint({"partition-0": "123456789", "partition-1": "987654321"}, 7)
    names = [f"source-{n}" for n in range(sources)]
    record = InFlightRecord(3, base64.b64encode(os.urandom(48)).decode())
    return CheckpointManifest.new(
        41,
        epoch=40,
        source_names=names,
        source_offsets=dict.fromkeys(names, position),
        source_watermarks=dict.fromkeys(names, 1_700_000_000_000),
        sink_names=["lake"],
        sink_epochs={"lake": 40},
        sink_commit_statuses={"lake": SinkCommitStatus.committed()},
        operator_states={
            f"operator-{n}": OperatorCheckpoint.inline(os.urandom(state)) for n in range(operators)
        },
        inflight_data={"join": [record, record]},
        watermark=1_700_000_000_000,
        extra=EXTRA,
    )


def many(work: Callable[[], object], times: int) -> Callable[[], None]:
    """Repeat what is too short to be timed alone."""

    def run() -> None:
        for _ in range(times):
            work()

    return run


def compare(name: str, ours: CheckpointManifest, rounds: int, times: int) -> list[Row]:
    """Encode and decode one manifest in both ways."""
    plain = plain_copy(ours)
    data = ours.to_json()
    encoder = msgspec.json.Encoder()
    decoder = msgspec.json.Decoder(PlainManifest)
    assert len(encoder.encode(plain)) == len(data)
    cases = {
        "encode": many(ours.to_json, times),
        "plain encode": many(lambda: encoder.encode(plain), times),
        "decode": many(lambda: CheckpointManifest.from_json(data), times),
        "plain decode": many(lambda: decoder.decode(data), times),
    }
    taken = interleaved(cases, rounds)
    rows = []
    for verb in ("encode", "decode"):
        baseline = [time / times for time in taken[f"plain {verb}"]]
        said = f"plain msgspec ({in_milliseconds(baseline)})"
        figure = ratio(taken[verb], taken[f"plain {verb}"])
        rows.append(Row(f"{verb} {name}, {len(data)} bytes", said, figure, LIMIT))
    both = [a + b for a, b in zip(taken["encode"], taken["decode"], strict=True)]
    plain_both = zip(taken["plain encode"], taken["plain decode"], strict=True)
    figure = ratio(both, [a + b for a, b in plain_both])
    return [*rows, Row(f"both, {name}", "plain msgspec", figure, LIMIT)]


def main() -> None:
    """Print the table."""
    given = options(__doc__)
    rounds = 9 if given.quick else 41
    sizes = {
        "10 sources, 10 operators of 4 KiB": (manifest(10, 10, 4096), 200),
        "10 sources, 10 operators of 64 B": (manifest(10, 10, 64), 500),
        "1 source, 1 operator of 64 B": (manifest(1, 1, 64), 2000),
    }
    rows: list[Row] = []
    for name, (example, times) in sizes.items():
        rows += compare(name, example, rounds, times)
    show(f"manifests, {rounds} rounds", rows)


if __name__ == "__main__":
    main()
