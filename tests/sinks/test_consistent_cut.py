"""Which epoch a cut is at and what can be read of each sink: decided by checkpoints alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import seamark
from seamark._common import files
from seamark.blobs import filesystem
from seamark.errors import CheckpointNotFoundError, InvalidInputError, RefusedError
from seamark.manifest import CheckpointManifest, SinkCommitStatus
from seamark.pipeline.recovery.rollback import roll_back
from seamark.sinks import Cut
from seamark.store import CheckpointStore, open_store
from tests.support.recording import Recording

COMMITTED, PENDING = SinkCommitStatus.committed(), SinkCommitStatus.pending()
KINDS = {"bars": "files", "latest": "key-value", "alerts": "function"}
GUARANTEES = {"bars": "exactly once", "latest": "exactly once", "alerts": "at least once"}


def points(epoch: int, *names: str) -> dict[str, Any]:
    known = {
        "bars": {"kind": "files", "target": "/bars", "at": {"epoch": epoch, "format": "parquet"}},
        "latest": {
            "kind": "key-value",
            "target": "rocksdb:///latest",
            "at": {"epoch": epoch},
            "only_newest": True,
        },
    }
    return {name: known[name] for name in names or known}


def save(
    store: CheckpointStore, checkpoint_id: int, epoch: int, *pending: str, **extra: Any
) -> CheckpointManifest:
    """Save an epoch; what to read of its sinks is known unless some are pending."""
    given = {
        "read_points": None if pending else points(epoch),
        "structure": {
            "sinks": {name: {"kind": kind, "target": "t"} for name, kind in KINDS.items()}
        },
        "sink_guarantees": GUARANTEES,
        **extra,
    }
    return store.save(
        CheckpointManifest.new(
            checkpoint_id,
            epoch,
            sink_names=list(KINDS),
            sink_epochs={sink: epoch - (sink in pending) for sink in KINDS},
            sink_commit_statuses={s: PENDING if s in pending else COMMITTED for s in KINDS},
            **{name: value for name, value in given.items() if value is not None},
        )
    )


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    opened = open_store(tmp_path / "store")
    opened.claim(pipeline="orders")
    return opened


def readable(cut: Cut) -> dict[str, bool]:
    return {sink.sink: sink.readable for sink in cut.sinks}


def test_latest_is_the_newest_epoch_that_all_sinks_have_committed(store: CheckpointStore) -> None:
    for number in (1, 2, 3):
        save(store, number, number)
    cut = seamark.read_epoch(store)
    assert (cut.epoch, cut.checkpoint_id, cut.store) == (3, 3, store.url)
    assert readable(cut) == {"bars": True, "latest": True, "alerts": False}
    assert cut["bars"].point is not None
    assert cut["bars"].point.at["epoch"] == 3
    assert "until the next one" in cut["latest"].note
    assert "at least once" in cut["alerts"].note
    assert cut["alerts"].calls == {}


def test_an_epoch_that_some_sink_has_not_committed_is_not_the_latest(
    store: CheckpointStore,
) -> None:
    save(store, 1, 1)
    save(store, 2, 2)
    save(store, 3, 3, "bars")
    cut = seamark.read_epoch(store)
    assert cut.epoch == 2
    assert readable(cut) == {"bars": True, "latest": False, "alerts": False}
    assert "which is 3 by now" in cut["latest"].note
    with pytest.raises(RefusedError, match="not every sink") as caught:
        seamark.read_epoch(store, 3)
    assert "bars" in str(caught.value)


def test_a_view_that_may_have_gone_on_is_not_given_as_an_earlier_epoch(
    store: CheckpointStore,
) -> None:
    save(store, 1, 1)
    save(store, 2, 2, "bars", "latest", "alerts")
    cut = seamark.read_epoch(store)
    assert (cut.epoch, cut["latest"].readable) == (1, False)
    assert "may show epoch 2 already" in cut["latest"].note
    assert cut["latest"].calls == {}


def test_an_earlier_epoch_is_read_as_it_was(store: CheckpointStore) -> None:
    for number in range(1, 6):
        save(store, number, number)
    cut = seamark.read_epoch(store.url, 2)
    assert cut.epoch == 2
    assert readable(cut) == {"bars": True, "latest": False, "alerts": False}
    assert "which is 5 by now" in cut["latest"].note
    assert "epoch <= 2" in cut["bars"].calls["spark"]


def test_what_could_not_be_recorded_in_time_is_found_in_the_next_checkpoint(
    store: CheckpointStore,
) -> None:
    save(store, 1, 1)
    save(store, 2, 2, "bars", "latest", "alerts")
    save(store, 3, 3, late_read_points={"2": points(2)})
    cut = seamark.read_epoch(store, 2)
    assert cut["bars"].point is not None
    assert (cut["bars"].readable, cut["bars"].point.at["epoch"]) == (True, 2)


def test_an_epoch_followed_by_another_was_committed_whatever_its_checkpoint_says(
    store: CheckpointStore,
) -> None:
    save(store, 1, 1)
    save(store, 2, 2, "bars", "latest", "alerts")
    save(store, 3, 3, "bars", "latest", "alerts", late_read_points={"2": points(2, "bars")})
    cut = seamark.read_epoch(store)
    assert cut.epoch == 2
    assert readable(cut) == {"bars": True, "latest": False, "alerts": False}
    assert "an earlier version" in cut["latest"].note, "nothing was recorded for it"


def test_a_second_checkpoint_of_an_epoch_knows_what_the_first_knew(store: CheckpointStore) -> None:
    save(store, 1, 1)
    save(store, 2, 2)
    save(store, 3, 2, read_points=points(2, "latest"))
    cut = seamark.read_epoch(store, 2)
    assert cut.checkpoint_id == 3
    assert readable(cut) == {"bars": True, "latest": True, "alerts": False}


def test_epochs_that_a_rollback_gave_up_are_not_there(store: CheckpointStore) -> None:
    for number in range(1, 5):
        save(store, number, number)
    roll_back(store, 2, "orders")
    cut = seamark.read_epoch(store)
    assert (cut.epoch, cut["bars"].readable) == (2, True)
    assert cut["latest"].readable is False, "the next start takes the epochs back"
    assert "rollback" in cut["latest"].note
    with pytest.raises(CheckpointNotFoundError, match="no epoch 3 yet"):
        seamark.read_epoch(store, 3)


def test_a_checkpoint_that_cannot_be_read_is_passed_over_and_views_may_be_ahead(
    store: CheckpointStore, tmp_path: Path
) -> None:
    save(store, 1, 1)
    save(store, 2, 2)
    manifest = tmp_path / "store/checkpoints/checkpoint_000002/manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"epoch":2', b'"epoch":9'))
    cut = seamark.read_epoch(open_store(tmp_path / "store"))
    assert (cut.epoch, readable(cut)) == (1, {"bars": True, "latest": False, "alerts": False})
    assert "a later epoch" in cut["latest"].note


def test_epochs_without_a_checkpoint_are_told_apart(store: CheckpointStore) -> None:
    with pytest.raises(CheckpointNotFoundError, match="no epoch of this store"):
        seamark.read_epoch(store)
    for number in range(1, 8):
        save(store, number, number)
    store.prune(2)
    with pytest.raises(CheckpointNotFoundError, match="any more"):
        seamark.read_epoch(store, 2)
    with pytest.raises(CheckpointNotFoundError, match="yet: the newest is 7"):
        seamark.read_epoch(store, 8)
    assert seamark.read_epoch(store, 6).epoch == 6


@pytest.mark.parametrize("epoch", [0, -1, True, "newest", 1.0, 1 << 64])
def test_an_epoch_is_a_number_or_latest(store: CheckpointStore, epoch: Any) -> None:
    with pytest.raises(InvalidInputError):
        seamark.read_epoch(store, epoch)


def test_odd_values_in_a_checkpoint_make_a_sink_unreadable_and_nothing_else(
    store: CheckpointStore,
) -> None:
    odd = {"bars": {"kind": 7}, "latest": {"kind": "delta", "target": "x", "at": {"version": []}}}
    save(store, 1, 1, read_points=odd, structure={"sinks": {"bars": [1]}})
    cut = seamark.read_epoch(store)
    assert cut["bars"].readable is False
    assert cut["latest"].calls == {}


def test_a_sink_that_the_pipeline_does_not_have_is_a_key_error(store: CheckpointStore) -> None:
    save(store, 1, 1)
    with pytest.raises(KeyError):
        seamark.read_epoch(store)["other"]


def test_the_latest_epoch_is_found_without_reading_every_checkpoint(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 30):
        save(store, number, number)
    recording = Recording()
    with open_store(store.url) as fresh:
        monkeypatch.setattr(filesystem, "os", recording.wrap(os))
        monkeypatch.setattr(files, "os", recording.wrap(os))
        assert seamark.read_epoch(fresh).epoch == 29
    opened = [call for call in recording.calls if call.name == "open" and "manifest" in str(call)]
    assert 1 <= len(opened) <= 2
