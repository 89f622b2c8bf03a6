"""One epoch and one recovery as the tests of this folder use them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from seamark.pipeline.telemetry.reports import CopyOutcome, EpochStats, StartReport

EPOCH_14 = EpochStats(
    epoch=14,
    checkpoint_id=15,
    rows_per_sink={"bars": None, "large": None},
    seconds=0.412,
    phases={
        "begin": 0.0001,
        "write": 0.38,
        "prepare": 0.0002,
        "capture": 0.009,
        "save": 0.003,
        "commit": 0.012,
        "record": 0.0004,
        "retain": 0.0,
    },
    new_bytes=41 * 1024,
    full_bytes=3_250_586,
    watermark=1_700_000_000_000,
    sinks=["bars", "large"],
)

RECOVERY = StartReport(
    seconds=0.183,
    chosen_id=15,
    epoch=15,
    fresh_start=False,
    skipped=[],
    verified="SHA-256, 3 files, 41 KiB",
    finished={"large": "committed from its committable", "bars": "already committed"},
    aborted=[],
    working_copy="kept, commits/14 written",
    copy_outcome=CopyOutcome.KEPT,
    notes=[],
)


def epoch(**changes: Any) -> EpochStats:
    """Epoch 14 with some figures changed."""
    return replace(EPOCH_14, **changes)


def recovery(**changes: Any) -> StartReport:
    """The recovery at checkpoint 15 with some facts changed."""
    return replace(RECOVERY, **changes)
