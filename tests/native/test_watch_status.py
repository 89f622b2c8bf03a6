"""When a checkpoint is due, and how a status reads."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from seamark.errors import InvalidInputError
from seamark.native.snapshot import Snapshot
from seamark.native.watch_status import (
    LastCheckpoint,
    LastFailure,
    Schedule,
    WatchNotes,
    WatchStatus,
)
from seamark.native.watcher import Watcher, WatchPace


@pytest.mark.parametrize("every", [0, -1, 0.0, True, float("nan"), timedelta(0), "5", None])
def test_how_often_must_make_sense(every: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="neither a number of batches nor a time"):
        Watcher(tmp_path / "directory", tmp_path / "store", WatchPace(every=every))


def test_batches_and_seconds_are_told_apart() -> None:
    five = Schedule.of(5)
    assert five.is_due(0, None, 0.0)
    assert not five.is_due(8, 4, 1e9)
    assert five.is_due(9, 4, 0.0)
    assert five.is_due(3, 4, 0.0)
    for minute in (Schedule.of(60.0), Schedule.of(timedelta(minutes=1))):
        assert minute.is_due(0, None, 0.0)
        assert not minute.is_due(9, 4, 59.0)
        assert minute.is_due(5, 4, 60.0)
        assert not minute.is_due(4, 4, 1e9)


def test_a_status_reads_as_what_an_operator_asks_first() -> None:
    nothing = WatchStatus(
        running=True,
        newest_batch=None,
        last=None,
        lag_batches=None,
        lag_seconds=None,
        checkpoints=0,
        failures=0,
        failures_in_a_row=0,
        last_failure=None,
    )
    assert str(nothing) == "no batch committed yet"
    behind = WatchStatus(
        running=True,
        newest_batch=9,
        last=LastCheckpoint(4, 7, 0.0),
        lag_batches=2,
        lag_seconds=31.4,
        checkpoints=4,
        failures=3,
        failures_in_a_row=1,
        last_failure=LastFailure("the disk is full", 0.0),
    )
    assert str(behind) == (
        "batch 9 committed · 2 batches behind for 31 s · checkpoint 4 holds batch 7 · "
        "3 failed tries · the last: the disk is full"
    )


def test_a_directory_whose_stored_batch_was_run_again_is_all_behind() -> None:
    notes = WatchNotes()
    taken = Snapshot(
        checkpoint_id=1,
        batch=4,
        is_new=True,
        is_full=True,
        files=1,
        size=1,
        in_flight=False,
        seconds=0.0,
        tries=1,
    )
    notes.took(taken, 0.0)
    notes.saw(4)
    assert (notes.last_batch, notes.status().lag_batches) == (4, 0)
    notes.saw(4, run_again=True)
    assert (notes.last_batch, notes.status().lag_batches) == (None, 5)
    assert "5 batches behind" in str(notes.status())
    notes.took(taken, 0.0)
    assert (notes.last_batch, notes.status().lag_batches) == (4, 0)
