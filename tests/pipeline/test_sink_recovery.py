"""A start takes no sink past an epoch that it has lost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.types import StructType

from seamark.errors import DamageError, LineageError
from seamark.manifest import CheckpointManifest, SinkCommitStatus
from seamark.pipeline.declaration.compile import Output
from seamark.pipeline.declaration.settings import PipelineSettings
from seamark.pipeline.epoch.pipeline_sinks import PipelineSinks
from seamark.pipeline.epoch.running_epoch import is_from_earlier, is_of_others, new_attempt
from seamark.pipeline.recovery.sink_recovery import (
    finish_sinks,
    sinks_ahead,
    take_back_abandoned,
)
from seamark.sinks import MemorySink
from seamark.sinks.contract import Committable, Receipt
from seamark.testing.conformance.sink_examples import NEW, OLD, PIPELINE, SINK, epoch
from tests.sinks.support.frames import frame
from tests.sinks.support.hand_written import HandWritten, shown_epoch


class OneSink:
    """What a start asks of the sinks of a pipeline that has one."""

    def __init__(self, sink: HandWritten) -> None:
        self.outputs = [Output(SINK, cast("Any", None), sink)]
        self.names = [SINK]

    def names_at_target(self, sink: str) -> dict[str, str]:
        return {"pipeline": PIPELINE, "sink": sink}

    def commit(self, committables: Mapping[str, Committable]) -> dict[str, SinkCommitStatus]:
        self.outputs[0].sink.commit(committables[SINK])
        return {SINK: SinkCommitStatus.committed()}


def checkpoint(
    number: int, path: Path, committable: Committable | None, *, pending: bool = False
) -> CheckpointManifest:
    status = SinkCommitStatus.pending() if pending else SinkCommitStatus.committed()
    return CheckpointManifest.new(
        number,
        epoch=number,
        sink_commit_statuses={SINK: status},
        sink_names=[SINK],
        attempt=f"a{number}",
        fingerprint=epoch(number).fingerprint,
        timeline=OLD,
        sink_committables={} if committable is None else {SINK: committable},
        structure={"sinks": {SINK: {"kind": "files", "target": str(path)}}},
    )


def start(
    path: Path, chosen: CheckpointManifest, before: CheckpointManifest | None
) -> dict[str, str]:
    sinks = cast("PipelineSinks", OneSink(HandWritten(path)))
    return finish_sinks(sinks, chosen, 1, (), lambda: before).outcomes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    HandWritten(tmp_path / "rows").open("trades", "bars", None)
    return tmp_path / "rows"


def decided(path: Path, number: int) -> CheckpointManifest:
    """An epoch whose driver died before its commit."""
    sink = HandWritten(path)
    sink.stage(frame([number]), epoch(number), f"a{number}")
    return checkpoint(number, path, sink.prepare(), pending=True)


def lose(path: Path, number: int) -> None:
    """The file system comes back without what it had acknowledged."""
    (path / f"epoch={number:06}").rename(path.parent / "lost")


def test_a_sink_that_has_lost_the_epoch_before_is_not_taken_past_it(path: Path) -> None:
    shown_epoch(path, 1)
    before = checkpoint(2, path, shown_epoch(path, 2))
    chosen = decided(path, 3)
    lose(path, 2)
    with pytest.raises(DamageError, match="'bars' cannot be brought to epoch 3") as caught:
        start(path, chosen, before)
    assert "it shows epoch 1 of" in str(caught.value)
    assert "had committed epoch 2" in str(caught.value)
    assert sorted(p.name for p in path.glob("epoch=*")) == ["epoch=000001"]


def test_a_sink_that_shows_nothing_any_more_is_not_taken_past_it(path: Path) -> None:
    before = checkpoint(1, path, shown_epoch(path, 1))
    chosen = decided(path, 2)
    lose(path, 1)
    with pytest.raises(DamageError, match="'bars' cannot be brought to epoch 2") as caught:
        start(path, chosen, before)
    assert "it shows nothing, and had committed epoch 1" in str(caught.value)


def test_a_sink_that_is_back_before_a_rollback_is_not_taken_past_the_other_epoch(
    path: Path,
) -> None:
    before = checkpoint(1, path, shown_epoch(path, 1))
    chosen = decided(path, 2)
    rolled_back = before.with_extra(timeline=NEW)  # the same number in the history that goes on
    with pytest.raises(DamageError, match="'bars' cannot be brought to epoch 2") as caught:
        start(path, chosen, rolled_back)
    assert f"epoch 1 of timeline {OLD}, and had committed epoch 1 of timeline {NEW}" in str(
        caught.value
    )


def test_an_epoch_is_finished_in_a_sink_that_has_the_one_before(path: Path) -> None:
    before = checkpoint(1, path, shown_epoch(path, 1))
    assert start(path, decided(path, 2), before) == {SINK: "committed from its committable"}


@pytest.mark.parametrize("known", [True, False], ids=["at another target", "not known"])
def test_an_epoch_is_finished_in_a_sink_that_began_with_it(path: Path, known: bool) -> None:
    elsewhere = checkpoint(1, path.parent / "elsewhere", None) if known else None
    outcomes = start(path, decided(path, 2), elsewhere)
    assert outcomes == {SINK: "committed from its committable"}


def test_a_start_goes_on_beside_later_epochs_only_of_its_own_history_or_of_one_to_take_back(
    path: Path,
) -> None:
    shown_epoch(path, 1)
    chosen = checkpoint(1, path, shown_epoch(path, 2))
    sinks = cast("PipelineSinks", OneSink(HandWritten(path)))
    assert sinks_ahead(sinks, chosen, OLD) == {SINK: 2}
    assert sinks_ahead(sinks, chosen, NEW, {OLD}) == {}
    with pytest.raises(LineageError, match="shows epoch 2 of another history"):
        sinks_ahead(sinks, chosen, NEW)


class Damaged(MemorySink):
    """Takes a part of an epoch, as a server does that goes on after a failed command."""

    calls = 0

    def commit(self, committable: Committable) -> None:
        self.calls += 1
        if self.calls == 1:
            raise DamageError("a key holds something else; the rest of the session WAS applied")


def test_a_commit_that_has_met_damage_is_told_and_not_repeated() -> None:
    sink = Damaged()
    rows = SimpleNamespace(schema=StructType())
    outputs = [Output(SINK, cast("Any", rows), sink)]
    compiled = SimpleNamespace(outputs=outputs)
    declared = SimpleNamespace(compiled=compiled, identity=None, settings=PipelineSettings())
    sinks = PipelineSinks(cast("Any", declared))
    status = sinks.commit({SINK: {}})[SINK]
    sinks.close()
    assert not status.is_committed
    assert "the rest of the session WAS applied" in (status.message or "")
    assert sink.calls == 1


def staged(path: Path, attempt: str) -> Committable:
    """The first epoch, by a driver that died before its commit."""
    sink = HandWritten(path)
    sink.stage(frame([1]), epoch(1), attempt)
    return sink.prepare()


def test_I3_rows_that_wait_for_their_commit_are_not_removed_by_starts_on_a_wrong_store(
    path: Path,
) -> None:
    committable = staged(path, new_attempt(1, OLD))
    sinks = cast("PipelineSinks", OneSink(HandWritten(path)))
    for generation in (1, 2, 3):  # an empty store, started again and again
        wrong = finish_sinks(sinks, None, generation, timelines=[NEW])
        assert not wrong.aborted
        assert "Is this the right store?" in wrong.of_others[0]
    HandWritten(path).commit(committable)
    assert [p.name for p in path.glob("epoch=*")] == ["epoch=000001"]


@pytest.mark.parametrize("token", ["g" + "9" * 5000 + "-", "g\u0661-x", "g-", "", "../g0001-"])
def test_what_is_staged_under_a_name_that_no_pipeline_gives_is_left_alone(token: str) -> None:
    assert not is_from_earlier(token, 2)
    assert not is_of_others(token, [OLD])


def test_what_no_epoch_owns_is_removed_by_the_next_start_on_the_same_store(path: Path) -> None:
    for attempt in (new_attempt(1, OLD), "g0001-0123456789ab"):  # also one of an earlier version
        staged(path, attempt)
    sinks = cast("PipelineSinks", OneSink(HandWritten(path)))
    assert not finish_sinks(sinks, None, 1, timelines=[OLD]).aborted  # a writer may be at work
    assert len(finish_sinks(sinks, None, 2, timelines=[OLD]).aborted) == 2
    assert not HandWritten(path).leftovers()


class Hanging(HandWritten):
    """Hangs after its first look, until another driver has gone on in a new history."""

    def newest(self) -> Receipt | None:
        seen = super().newest()
        if seen is not None and seen.timeline == OLD:
            HandWritten(self.path).unpublish_after(1)
            for number in (2, 3):
                shown_epoch(Path(self.path), number, NEW)
        return seen


class HangingWithoutTimeline(Hanging):
    """A sink of a user's, as there were before it was told which timeline is taken back."""

    def unpublish_after(self, epoch: int) -> list[int]:  # type: ignore[override]
        return super().unpublish_after(epoch)


@pytest.mark.parametrize("kind", [Hanging, HangingWithoutTimeline])
def test_a_start_that_wakes_late_takes_back_nothing_of_its_successor(
    path: Path, kind: type[Hanging]
) -> None:
    chosen = checkpoint(1, path, shown_epoch(path, 1))
    for number in (2, 3):
        shown_epoch(path, number)
    sinks = cast("PipelineSinks", OneSink(kind(path)))
    with pytest.raises(LineageError, match="has come to the place of one that was to be taken"):
        take_back_abandoned(sinks, chosen, NEW)
    there = [HandWritten(path).committed("", number) for number in (1, 2, 3)]
    assert [receipt.timeline for receipt in there if receipt is not None] == [OLD, NEW, NEW]


def test_a_sink_that_is_not_told_the_timeline_takes_back_what_was_given_up(path: Path) -> None:
    chosen = checkpoint(1, path, shown_epoch(path, 1))
    shown_epoch(path, 2)

    class WithoutTimeline(HandWritten):
        def unpublish_after(self, epoch: int) -> list[int]:  # type: ignore[override]
            return super().unpublish_after(epoch)

    sinks = cast("PipelineSinks", OneSink(WithoutTimeline(path)))
    assert take_back_abandoned(sinks, chosen, NEW) == [
        "sink bars: 1 epochs taken back and kept aside"
    ]
    assert HandWritten(path).committed("", 2) is None
