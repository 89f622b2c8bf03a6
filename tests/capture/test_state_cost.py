"""The calculator: what state costs follows from what changes, not from how much there is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seamark.capture.state_cost import Prices, Provider, StateUse, estimate

MIB, GIB = 1 << 20, 1 << 30
USE = StateUse(state_bytes=4 * GIB, changed_bytes=40 * MIB, epochs_per_hour=120, stores=16)


@pytest.mark.parametrize("provider", ["hdfs", "rocksdb", "rocksdb-changelog"])
def test_I11_an_epoch_costs_the_same_with_ten_times_the_state(provider: Provider) -> None:
    small = estimate(replace(USE, provider=provider))
    large = estimate(replace(USE, provider=provider, state_bytes=40 * GIB))
    assert small.epoch == large.epoch
    assert large.restore.bytes > 9 * small.restore.bytes
    assert large.stored_bytes > small.stored_bytes


def test_a_small_epoch_is_inlined_and_a_larger_one_is_one_object_more() -> None:
    tiny = estimate(replace(USE, changed_bytes=10_000)).epoch
    small = estimate(replace(USE, changed_bytes=10 * MIB)).epoch
    large = estimate(replace(USE, changed_bytes=160 * MIB)).epoch
    assert (tiny.writes, small.writes, large.writes) == (3, 4, 3 + 16)
    assert tiny.reads == small.reads == large.reads == 3


def test_very_large_files_are_sent_in_parts() -> None:
    epoch = estimate(replace(USE, changed_bytes=16 * 80 * MIB)).epoch
    assert epoch.writes == 3 + 16 * (10 + 2)


def test_spark_decides_when_the_base_moves() -> None:
    assert estimate(USE).snapshot_every == 10
    assert estimate(replace(USE, deltas_for_snapshot=30)).snapshot_every == 30
    assert estimate(replace(USE, epochs_per_hour=3600)).snapshot_every == 60
    hdfs = estimate(replace(USE, provider="hdfs")).snapshot
    changelog = estimate(USE).snapshot
    assert hdfs is not None
    assert changelog is not None
    assert hdfs.bytes == 4 * GIB
    assert changelog.bytes == 800 * MIB
    assert estimate(replace(USE, provider="rocksdb")).snapshot is None


def test_a_budget_that_is_too_small_for_the_snapshots_is_mentioned() -> None:
    hdfs = replace(USE, provider="hdfs")
    assert estimate(hdfs).notes == []
    (note,) = estimate(replace(hdfs, background_rate=4 * MIB)).notes
    assert note.startswith("A snapshot takes 1024 s to store and comes every 300 s")


def test_keeping_more_is_paid_in_bytes_and_in_the_reads_of_a_prune() -> None:
    few, many = estimate(replace(USE, keep=5)), estimate(replace(USE, keep=100))
    assert few.epoch == many.epoch
    assert few.restore == many.restore
    assert many.stored_bytes > 2 * few.stored_bytes
    assert few.prune.reads == 3 + 21 + 11
    assert many.prune.reads == 3 + 111 + 101


def test_an_hour_and_a_month_add_up() -> None:
    found = estimate(USE)
    assert found.snapshot is not None
    hour = found.hourly(120)
    assert hour.writes == 120 * found.epoch.writes + 12 * (6 + found.snapshot.writes)
    assert hour.reads == 120 * 3 + 12 * found.prune.reads
    assert hour.bytes == 120 * found.epoch.bytes + 12 * found.snapshot.bytes
    prices = Prices(writes=0.005, reads=0.0004, storage=0.023)
    expected = (hour.writes * 0.005 + hour.reads * 0.0004) * 730 / 1000
    expected += found.stored_bytes / 1e9 * 0.023
    assert prices.of_month(hour, found.stored_bytes) == pytest.approx(expected)


def test_a_restore_reads_each_object_by_one_request() -> None:
    hdfs = estimate(replace(USE, provider="hdfs"))
    assert hdfs.restore.reads == 16 + 10 * 16 + 10
    assert hdfs.restore.bytes == 4 * GIB + 10 * 40 * MIB
    packed = estimate(replace(USE, provider="hdfs", changed_bytes=8 * MIB))
    assert packed.restore.reads == 16 + 10 + 10
    rocksdb = estimate(replace(USE, provider="rocksdb"))
    assert rocksdb.restore.reads == 64 + 10


@pytest.mark.parametrize("changed", [0, 1, 4 * GIB])
@pytest.mark.parametrize("state", [0, 1, 4 * GIB])
def test_no_figures_are_too_odd(state: int, changed: int) -> None:
    for provider in ("hdfs", "rocksdb", "rocksdb-changelog"):
        found = estimate(
            replace(USE, provider=provider, state_bytes=state, changed_bytes=min(changed, state))
        )
        assert found.epoch.writes >= 3
        assert found.restore.bytes >= state
