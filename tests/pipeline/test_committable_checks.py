"""What a checkpoint keeps for a sink is finished only if it is of that sink and of its epoch."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.types import StructType

from seamark.errors import DamageError, InvalidInputError
from seamark.manifest import CheckpointManifest, SinkCommitStatus
from seamark.pipeline.declaration.compile import Output
from seamark.pipeline.declaration.settings import PipelineSettings
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.epoch.pipeline_sinks import PipelineSinks
from seamark.pipeline.epoch.running_epoch import RunningEpoch, new_attempt
from seamark.pipeline.recovery.sink_recovery import finish_sinks
from seamark.sinks import Sink
from seamark.sinks.contract import Committable, foreign_name
from seamark.spark.batch_log import Plan, parse_offsets
from seamark.testing.conformance.sink_examples import NEW, OLD, PIPELINE, SINK, epoch
from tests.sinks.support.frames import frame
from tests.sinks.support.local_sink import LocalSink, rows_shown

OTHER = "other"
ATTEMPT = new_attempt(1, OLD)


def sinks_of(*sinks: tuple[str, Sink]) -> PipelineSinks:
    rows = SimpleNamespace(schema=StructType())
    outputs = [Output(name, cast("Any", rows), sink) for name, sink in sinks]
    identity = PipelineIdentity(name=PIPELINE, structure={"sinks": {}}, leaves=())
    declared = SimpleNamespace(
        compiled=SimpleNamespace(outputs=outputs), identity=identity, settings=PipelineSettings()
    )
    return PipelineSinks(cast("Any", declared))


def prepared(path: Path, attempt: str = ATTEMPT) -> tuple[LocalSink, Committable]:
    sink = LocalSink(path)
    sink.stage(frame([1, 2]), epoch(1), attempt)
    return sink, sink.prepare()


def checkpoint(committables: dict[str, Any], **changed: Any) -> CheckpointManifest:
    facts: dict[str, Any] = {
        "attempt": ATTEMPT,
        "fingerprint": epoch(1).fingerprint,
        "timeline": OLD,
        "sink_committables": committables,
    }
    statuses = dict.fromkeys((SINK, *committables), SinkCommitStatus.pending())
    return CheckpointManifest.new(1, epoch=1, sink_commit_statuses=statuses, **facts | changed)


FORGED: list[dict[str, Any]] = [
    {"epoch": 2},
    {"epoch": True},
    {"epoch": 1.0},
    {"epoch": 10**400},
    {"attempt": "g0001-another"},
    {"attempt": "../../rows"},
    {"attempt": ["x"] * 1000},
    {"timeline": NEW},
    {"fingerprint": "0" * 64},
    {"sink": SINK},
    {"pipeline": "somebody's"},
]


@pytest.mark.parametrize("forged", FORGED, ids=lambda forged: next(iter(forged)))
def test_a_start_shows_nothing_in_any_sink_when_a_checkpoint_names_another_epoch_for_one(
    tmp_path: Path, forged: dict[str, Any]
) -> None:
    """A sink of anybody's, which makes the name of a file of the attempt and looks no further."""
    (bars, whole), (other, wrong) = prepared(tmp_path / "bars"), prepared(tmp_path / "other")
    sinks = sinks_of((SINK, bars), (OTHER, other))
    chosen = checkpoint({SINK: whole, OTHER: wrong | forged})
    with pytest.raises(DamageError, match="keeps for output 'other' belongs elsewhere") as caught:
        finish_sinks(sinks, chosen, 1)
    sinks.close()
    [field] = forged
    assert f"its {field} is " in caught.value.what
    assert "checkpoint 1" in (caught.value.where or "")
    assert len(str(caught.value)) < 800
    assert [*rows_shown(tmp_path / "bars"), *rows_shown(tmp_path / "other")] == []


@pytest.mark.parametrize("attempt", ["../../outside", "/outside", "", None, "a\x00b"])
def test_no_sink_gets_an_attempt_that_is_no_name_even_if_the_whole_checkpoint_says_so(
    tmp_path: Path, attempt: str | None
) -> None:
    (tmp_path / "outside.json").write_text("mine")
    bars, whole = prepared(tmp_path / "bars")
    sinks = sinks_of((SINK, bars))
    with pytest.raises(DamageError, match="its attempt is no name that a pipeline gives"):
        finish_sinks(sinks, checkpoint({SINK: whole | {"attempt": attempt}}, attempt=attempt), 1)
    sinks.close()
    assert (tmp_path / "outside.json").read_text() == "mine"


@pytest.mark.parametrize("kept", [{}, {SINK: None}], ids=["absent", "null"])
def test_an_epoch_is_not_passed_over_because_a_checkpoint_does_not_say_where_its_rows_are(
    tmp_path: Path, kept: dict[str, Any]
) -> None:
    bars, _ = prepared(tmp_path)
    sinks = sinks_of((SINK, bars))
    with pytest.raises(DamageError, match="'bars' cannot be brought to epoch 1") as caught:
        finish_sinks(sinks, checkpoint(kept), 1)
    sinks.close()
    assert "does not say where its rows are" in str(caught.value)


def test_a_committable_that_is_no_object_is_damage(tmp_path: Path) -> None:
    bars, _ = prepared(tmp_path)
    sinks = sinks_of((SINK, bars))
    with pytest.raises(DamageError, match="it is no object"):
        finish_sinks(sinks, checkpoint({SINK: "text"}), 1)
    sinks.close()


def test_rows_that_wait_are_not_passed_over_because_a_checkpoint_has_no_status_of_their_sink(
    tmp_path: Path,
) -> None:
    bars, whole = prepared(tmp_path)
    sinks = sinks_of((SINK, bars))
    with pytest.raises(DamageError, match="nothing says whether it is committed"):
        finish_sinks(sinks, checkpoint({SINK: whole}).replace(sink_commit_statuses={}), 1)
    sinks.close()


def test_a_rollback_keeps_what_is_to_be_finished(tmp_path: Path) -> None:
    bars, whole = prepared(tmp_path)
    sinks = sinks_of((SINK, bars))
    again = checkpoint({SINK: whole}, timeline=NEW, shown_as=OLD)
    assert finish_sinks(sinks, again, 1).outcomes == {SINK: "committed from its committable"}
    sinks.close()
    assert [*rows_shown(tmp_path)] == [1, 2]


class Odd(LocalSink):
    """Tells what it likes."""

    told: Any = None

    def prepare(self) -> Committable:
        return cast("Committable", self.told)


@pytest.mark.parametrize("told", [None, {"sink": "mine"}, {"epoch": "1"}])
def test_an_epoch_is_not_decided_with_a_committable_that_no_start_could_use(
    tmp_path: Path, told: Any
) -> None:
    sink = Odd(tmp_path)
    sink.told = told
    sinks = sinks_of((SINK, sink))
    with pytest.raises(InvalidInputError, match="sink 'bars' has prepared epoch 1"):
        sinks.prepare(running(), set())
    sink.told = {"files": 3}
    assert sinks.prepare(running(), set()) == {SINK: {"files": 3}}
    sinks.close()


def running() -> RunningEpoch:
    text = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"logOffset":0}'
    return RunningEpoch(
        identity=PipelineIdentity(name=PIPELINE, structure={}, leaves=("files",)),
        timeline=OLD,
        batch=0,
        entry=parse_offsets(text),
        plan=Plan(text, {}),
        attempt=ATTEMPT,
    )


def test_what_a_committable_says_of_itself_is_told_in_few_words() -> None:
    deep: Any = json.loads("[" * 500 + "]" * 500)
    for odd in (deep, "x" * 10**6, 10**4000, {"a": 1}):
        told = foreign_name({"epoch": odd}, {"epoch": 1})
        assert told is not None
        assert len(told) < 300
    assert foreign_name({"epoch": 1, "files": 9}, {"epoch": 1, "sink": SINK}) is None
