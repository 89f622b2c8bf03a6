"""What a checkpoint says about the rows that were not read yet."""

from __future__ import annotations

from seamark.manifest import CheckpointManifest, ConnectorCheckpoint
from seamark.spark.kafka.lag import latest_by_source, recorded_ages, recorded_lag


def test_lag_is_counted_by_partition_and_is_never_negative() -> None:
    line = '{"trades":{"0":12,"1":7,"2":4}}'
    manifest = CheckpointManifest.new(
        1,
        epoch=1,
        source_offsets={"trades": ConnectorCheckpoint({}, 1, {"line": line})},
        source_latest={"trades": '{"trades":{"0":20,"1":5,"3":9}}', "gone": '{"x":{"0":1}}'},
    )
    assert recorded_lag(manifest) == {"trades": {"trades-0": 8, "trades-1": 0, "trades-2": 0}}


def test_sources_that_do_not_say_their_end_have_no_lag() -> None:
    assert latest_by_source(["a", "b"], [None, '{"logOffset":3}']) == {}
    assert latest_by_source(["a", "b"], []) == {}


def test_ages_are_told_where_they_are_known() -> None:
    manifest = CheckpointManifest.new(
        1,
        epoch=1,
        timestamp_ms=60_000,
        source_offsets={
            "trades": ConnectorCheckpoint({}, 1, {"line": '{"t":{"0":5,"1":5,"2":5}}'})
        },
        source_latest={"trades": '{"t":{"0":9,"1":9,"2":5}}'},
        source_times={"trades": {"t-0": 48_000}},
    )
    assert recorded_ages(manifest) == {"trades": {"t-0": 12.0, "t-2": 0.0}}
