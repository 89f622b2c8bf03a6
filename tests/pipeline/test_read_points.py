"""What to read to see an epoch is kept in its checkpoint; a sink that cannot tell stops nothing."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from seamark.manifest import CheckpointManifest, SinkCommitStatus
from seamark.pipeline.declaration.compile import Output
from seamark.pipeline.epoch.epoch_manifest import with_sink_statuses
from seamark.pipeline.epoch.read_points import missing_read_points
from seamark.sinks import Committable, ReadPoint, Sink
from seamark.sinks.read_point import LARGEST, read_point_in
from seamark.testing.conformance.sink_examples import OLD, epoch
from tests.sinks.support.frames import frame
from tests.sinks.support.local_sink import LocalSink

COMMITTED = SinkCommitStatus.committed()


def output(sink: Sink, name: str = "bars") -> Output:
    return Output(name, cast(Any, None), sink)


def committed(sink: Sink, number: int = 1) -> CheckpointManifest:
    """The manifest of an epoch that the sink shows, as it is before it is recorded."""
    sink.stage(frame([1]), epoch(number), f"a{number}")
    committable = sink.prepare()
    sink.commit(committable)
    return CheckpointManifest.new(
        number,
        number,
        timeline=OLD,
        sink_names=["bars"],
        sink_commit_statuses={"bars": SinkCommitStatus.pending()},
        sink_epochs={"bars": number - 1},
        sink_committables={"bars": committable},
    )


def points(sink: Sink, manifest: CheckpointManifest) -> dict[str, Any]:
    return missing_read_points([output(sink)], manifest, {"bars"}, OLD)


def test_what_to_read_is_recorded_together_with_the_statuses(tmp_path: Path) -> None:
    sink = LocalSink(tmp_path)
    manifest = committed(sink, 7)
    recorded = with_sink_statuses(manifest, {"bars": COMMITTED}, {}, points(sink, manifest))
    again = CheckpointManifest.from_json(recorded.to_json())
    point = read_point_in((again.read_points or {})["bars"])
    assert point == ReadPoint("local", str(tmp_path), {"epoch": 7})
    assert points(sink, again) == {}, "it is asked for once"


def test_a_sink_that_did_not_commit_is_not_asked(tmp_path: Path) -> None:
    sink = LocalSink(tmp_path)
    manifest = committed(sink)
    assert missing_read_points([output(sink)], manifest, set(), OLD) == {}


def test_a_sink_that_showed_the_epoch_before_it_was_run_again_is_asked_by_its_record(
    tmp_path: Path,
) -> None:
    sink = LocalSink(tmp_path)
    manifest = committed(sink, 3).replace(sink_committables={})
    assert points(sink, manifest)["bars"]["at"] == {"epoch": 3}


def test_statuses_are_recorded_without_what_to_read_where_no_sink_tells(tmp_path: Path) -> None:
    manifest = committed(LocalSink(tmp_path))
    recorded = with_sink_statuses(manifest, {"bars": COMMITTED}, {})
    assert "read_points" not in recorded.extra


class Unlucky(LocalSink):
    answer: object = None

    def read_point(self, committable: Committable) -> ReadPoint | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return cast("ReadPoint | None", self.answer)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (RuntimeError("cannot reach postgresql://me:hunter2hunter2@db"), "cannot reach"),
        (ReadPoint("x", "y", {"offsets": "9" * LARGEST}), "more than"),
        (ReadPoint("x", "postgresql://me:hunter2hunter2@db"), "password"),
        (ReadPoint("x", "y", {"z": object()}), "unsupported"),
        (None, ""),
    ],
)
def test_a_sink_that_cannot_tell_what_to_read_stops_nothing_and_leaks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, answer: object, reason: str
) -> None:
    sink = Unlucky(tmp_path)
    sink.answer = answer
    manifest = committed(sink)
    with caplog.at_level(logging.WARNING, "seamark"):
        assert points(sink, manifest) == {}
    assert reason in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("value", [None, 7, [], {}, {"kind": "files"}, {"kind": 1, "target": ""}])
def test_what_is_not_a_read_point_reads_as_none(value: object) -> None:
    assert read_point_in(value) is None


def test_a_read_point_keeps_fields_that_a_later_version_adds_out_of_the_way() -> None:
    known = msgspec.to_builtins(ReadPoint("delta", "/data/t", {"version": 3}))
    assert read_point_in({**known, "of_tomorrow": 1}) == ReadPoint(
        "delta", "/data/t", {"version": 3}
    )
