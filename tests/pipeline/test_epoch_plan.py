"""What a start and an epoch make of the plans in a store, without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from seamark.blobs.memory import MemoryBlobs
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.errors import DamageError, FencedError, LineageError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.epoch.epoch_plan import _hints, planned_epoch, store_plan, stored_plans
from seamark.pipeline.epoch.running_epoch import (
    EpochHistory,
    PlanDiffers,
    RunningEpoch,
    fingerprint,
    new_attempt,
)
from seamark.sinks.contract import Guarantee
from seamark.spark.batch_log import Plan, parse_offsets
from seamark.store import CheckpointStore
from seamark.store.layout import ObjectLayout
from seamark.store.plans import StoredPlan

LEAVES = ("in",)
FUNCTIONS = ("rows",)
ENTRY = "sources/0/{}"


def open_on(blobs: MemoryBlobs) -> CheckpointStore:
    return CheckpointStore(blobs, ObjectLayout())


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


@pytest.fixture
def store(blobs: MemoryBlobs) -> CheckpointStore:
    store = open_on(blobs)
    store.claim(pipeline="orders")
    return store


def plan_of(batch: int, files: str, at: int = 0) -> Plan:
    offsets = f'v1\n{{"batchTimestampMs":{at}}}\n{{"logOffset":{batch}}}'
    return Plan(offsets, {ENTRY.format(batch): f"v1\n{files}"}, LEAVES)


def epoch_of(store: CheckpointStore, batch: int, files: str, at: int = 0) -> RunningEpoch:
    plan = plan_of(batch, files, at)
    entry = parse_offsets(plan.offsets)
    timeline = store.owner().timeline
    return RunningEpoch(
        identity=PipelineIdentity(name="orders", structure={}, leaves=LEAVES),
        timeline=timeline,
        batch=batch,
        entry=entry,
        plan=plan,
        attempt=new_attempt(1, "t"),
    )


def history_of(store: CheckpointStore, newest: CheckpointManifest | None = None) -> EpochHistory:
    return EpochHistory(store.owner().timeline, 1, 1, newest)


def decided(epoch: RunningEpoch) -> CheckpointManifest:
    manifest = CheckpointManifest.new(epoch.number, epoch=epoch.number)
    return manifest.with_extra(fingerprint=epoch.fingerprint)


def found(
    store: CheckpointStore,
    newest: CheckpointManifest | None = None,
    leaves: tuple[str, ...] = LEAVES,
    *,
    functions: tuple[str, ...] = FUNCTIONS,
) -> dict[int, Plan]:
    identity = PipelineIdentity(name="orders", structure={}, leaves=leaves)
    return stored_plans(store, history_of(store, newest), identity, functions)


def put(store: CheckpointStore, plan: StoredPlan) -> None:
    """Somebody else's plan, whatever is in it."""
    store.plans.keep(plan)


def stored(store: CheckpointStore, plan: Plan, leaves: tuple[str, ...] = LEAVES) -> StoredPlan:
    timeline = store.owner().timeline
    lines = parse_offsets(plan.offsets).lines
    digest = fingerprint(timeline, lines, plan.sources)
    return StoredPlan(
        timeline=timeline,
        epoch=1,
        fingerprint=digest,
        follows="",
        leaves=leaves,
        offsets=plan.offsets,
        sources=plan.sources,
    )


def three_epochs(store: CheckpointStore) -> list[RunningEpoch]:
    """Epochs that were planned one after the other, the plan of each stored."""
    line, epochs = history_of(store), []
    for batch in range(3):
        epochs.append(epoch_of(store, batch, f"file {batch}"))
        store_plan(store, epochs[-1], line, FUNCTIONS, 0)
        line.newest = decided(epochs[-1])
    return epochs


def test_a_start_finds_every_epoch_that_was_started_after_the_newest_checkpoint(
    store: CheckpointStore,
) -> None:
    epochs = three_epochs(store)
    assert found(store) == {0: epochs[0].plan, 1: epochs[1].plan, 2: epochs[2].plan}
    assert found(store, decided(epochs[1])) == {2: epochs[2].plan}
    assert found(store, decided(epochs[2])) == {}


def test_an_epoch_whose_plan_is_gone_while_a_later_one_is_there_is_not_planned_anew(
    store: CheckpointStore,
) -> None:
    epochs = three_epochs(store)
    [second] = [p for p in store.plans.entries() if p.epoch == 2]
    store.backend.delete([second.entry.key])
    with pytest.raises(LineageError, match="epoch 2 has no plan, and epoch 3"):
        found(store, decided(epochs[0]))
    assert found(store, decided(epochs[0]), functions=()) == {}


def test_of_two_drivers_that_begin_an_epoch_the_second_runs_on_the_plan_of_the_first(
    store: CheckpointStore, blobs: MemoryBlobs
) -> None:
    store_plan(store, epoch_of(store, 0, "a"), history_of(store), FUNCTIONS, 0)
    second = open_on(blobs)
    second.claim(pipeline="orders")
    line = history_of(second)
    with pytest.raises(PlanDiffers):
        store_plan(second, epoch_of(second, 0, "a and b"), line, FUNCTIONS, 0)
    assert line.plans == {0: plan_of(0, "a")}
    store_plan(second, epoch_of(second, 0, "a"), line, FUNCTIONS, 0)
    with pytest.raises(FencedError):
        store_plan(store, epoch_of(store, 1, "b"), history_of(store), FUNCTIONS, 0)


def test_a_plan_of_the_same_rows_that_was_made_at_another_time_is_not_taken_for_the_same(
    store: CheckpointStore,
) -> None:
    # current_timestamp() of a batch is the time of its plan
    store_plan(store, epoch_of(store, 0, "a", at=1), history_of(store), FUNCTIONS, 0)
    line = history_of(store)
    with pytest.raises(PlanDiffers):
        store_plan(store, epoch_of(store, 0, "a", at=2), line, FUNCTIONS, 0)
    assert line.plans == {0: plan_of(0, "a", at=1)}


def test_an_epoch_that_spark_cannot_run_on_its_plan_is_refused(store: CheckpointStore) -> None:
    store_plan(store, epoch_of(store, 0, "a"), history_of(store), FUNCTIONS, 0)
    line = history_of(store)
    other = epoch_of(store, 0, "b")
    with pytest.raises(PlanDiffers):
        store_plan(store, other, line, FUNCTIONS, 0)
    with pytest.raises(LineageError, match="cannot be run on the rows that it was started with"):
        store_plan(store, other, line, FUNCTIONS, 0)


def test_a_plan_for_other_sources_asks_for_a_start_with_the_sinks_as_they_were(
    store: CheckpointStore,
) -> None:
    store_plan(store, epoch_of(store, 0, "a"), history_of(store), FUNCTIONS, 0)
    with pytest.raises(RefusedError, match="epoch 1 was started before the pipeline was changed"):
        found(store, leaves=("in", "in"))
    assert found(store, leaves=("in", "in"), functions=()) == {}


def test_a_later_epoch_is_compared_with_the_pipeline_when_it_comes(
    tmp_path: Path, store: CheckpointStore
) -> None:
    line, twice = history_of(store), ("in", "in")
    first, second = epoch_of(store, 0, "a"), epoch_of(store, 1, "b")
    store_plan(store, first, line, FUNCTIONS, 0)
    added = Plan(second.plan.offsets + '\n{"logOffset":1}', second.plan.sources)
    whole = msgspec.structs.replace(
        stored(store, added, leaves=twice), epoch=2, follows=first.fingerprint
    )
    put(store, whole)
    with pytest.raises(RefusedError, match="epoch 1 was started before the pipeline was changed"):
        found(store, leaves=twice)
    line.plans = found(store)
    assert line.plans[0] == first.plan
    assert line.plans[1].leaves == twice
    line.newest = decided(first)
    with pytest.raises(RefusedError, match="epoch 2 was started before the pipeline was changed"):
        store_plan(store, second, line, FUNCTIONS, 0)
    copy = LocalCopy(str(tmp_path))
    copy.write("offsets/1", second.plan.offsets.encode())
    with pytest.raises(RefusedError, match="epoch 2 has to run again, and the outputs read"):
        planned_epoch(copy, first.identity, line, 1)
    assert found(store, functions=()) == {0: first.plan}
    assert found(store, decided(first), twice) == {1: line.plans[1]}


def test_an_epoch_that_a_function_was_called_with_is_not_given_to_one_of_another_name(
    store: CheckpointStore,
) -> None:
    epoch = epoch_of(store, 0, "a")
    store_plan(store, epoch, history_of(store), ("a", "b"), 0)
    for renamed in (("a", "c"), ("b",)):
        with pytest.raises(RefusedError, match="epoch 1 was started before the pipeline was"):
            found(store, functions=renamed)
        with pytest.raises(RefusedError, match="may have been called with it"):
            store_plan(store, epoch, history_of(store), renamed, 0)
    # without functions nobody gets the rows a second time
    assert found(store, functions=()) == {0: epoch.plan}


def test_a_function_that_its_plan_does_not_name_does_not_get_a_begun_epoch(
    store: CheckpointStore,
) -> None:
    epoch = epoch_of(store, 0, "a")
    store_plan(store, epoch, history_of(store), ("a",), 0)
    with pytest.raises(RefusedError, match="the function of output 'b' is new"):
        found(store, functions=("a", "b"))
    with pytest.raises(RefusedError, match="the function of output 'b' is new"):
        store_plan(store, epoch, history_of(store), ("a", "b"), 0)
    # one that drops nothing by its key gets its rows twice at worst, as it says
    promises = {"a": Guarantee.IDEMPOTENT.value, "b": Guarantee.AT_LEAST_ONCE.value}
    same = replace(epoch, identity=replace(epoch.identity, guarantees=promises))
    store_plan(store, same, history_of(store), ("a", "b"), 0)


def test_a_plan_of_an_earlier_version_does_not_say_which_functions_got_it(
    store: CheckpointStore,
) -> None:
    epoch = epoch_of(store, 0, "a")
    put(store, stored(store, epoch.plan))
    assert found(store) == {0: epoch.plan}
    store_plan(store, epoch, history_of(store), FUNCTIONS, 0)


def test_the_first_epoch_without_a_plan_is_the_one_after_all_that_were_begun(
    store: CheckpointStore,
) -> None:
    history = history_of(store)
    assert history.first_unplanned == 1
    history.plans = {0: plan_of(0, "a"), 1: plan_of(1, "b"), 3: plan_of(3, "d")}
    assert history.first_unplanned == 3
    history.newest = CheckpointManifest.new(1, epoch=2, batch=1)
    assert history.first_unplanned == 3


def test_a_plan_that_follows_another_epoch_than_now_is_refused(store: CheckpointStore) -> None:
    line = history_of(store)
    first = epoch_of(store, 0, "a")
    line.newest = decided(first)
    store_plan(store, epoch_of(store, 1, "b"), line, FUNCTIONS, 0)
    again = decided(epoch_of(store, 0, "a and b"))
    with pytest.raises(LineageError, match="after a different epoch 1"):
        found(store, again)
    with pytest.raises(LineageError, match="after a different epoch 1"):
        store_plan(store, epoch_of(store, 1, "c"), history_of(store, again), FUNCTIONS, 0)


@pytest.mark.parametrize(
    "path", ["../../x/0", "sources/../0", "sources/0/../../../x", "state/0/0/1.delta", "metadata"]
)
def test_a_plan_cannot_write_outside_the_logs_of_the_sources(
    store: CheckpointStore, path: str
) -> None:
    plan = plan_of(0, "a")
    put(store, stored(store, Plan(plan.offsets, {path: "x"})))
    with pytest.raises(DamageError, match="not an entry of a source's log"):
        found(store)


def test_a_plan_that_does_not_hold_what_it_says_is_damage(store: CheckpointStore) -> None:
    whole = stored(store, plan_of(0, "a"))
    wrong = [
        msgspec.structs.replace(whole, offsets="nonsense"),
        msgspec.structs.replace(whole, leaves=("in", "in")),
        msgspec.structs.replace(whole, fingerprint="0" * 64),
        msgspec.structs.replace(whole, sources={}),
    ]
    for plan in wrong:
        other = open_on(MemoryBlobs())
        other.claim(pipeline="orders")
        timeline = other.owner().timeline
        put(other, msgspec.structs.replace(plan, timeline=timeline))
        with pytest.raises(DamageError):
            found(other, leaves=plan.leaves)


@pytest.mark.parametrize("watermark", ["1e999", '"x"', "[]", "9" * 400])
def test_a_plan_with_a_watermark_that_is_none_is_damage_before_anything_runs(
    store: CheckpointStore, watermark: str
) -> None:
    plan = plan_of(0, "a")
    offsets = plan.offsets.replace('{"batchT', f'{{"batchWatermarkMs":{watermark},"batchT')
    put(store, stored(store, Plan(offsets, plan.sources)))
    with pytest.raises(DamageError, match="the plan of epoch 1 is damaged") as caught:
        found(store)
    assert "new timeline" in (caught.value.hint or "")


def test_an_epoch_that_a_sink_shows_runs_again_at_the_time_that_its_rows_may_contain(
    tmp_path: Path, store: CheckpointStore
) -> None:
    history, identity = history_of(store), epoch_of(store, 0, "file").identity
    history.plans[0] = plan_of(0, "file", at=1)
    copy = LocalCopy(str(tmp_path))
    copy.write("sources/0/0", b"v1\nfile")
    copy.write("offsets/0", plan_of(0, "file", at=2).offsets.encode())
    with pytest.raises(PlanDiffers):
        planned_epoch(copy, identity, history, 0)
    copy.write("offsets/0", plan_of(0, "file", at=1).offsets.encode())
    assert planned_epoch(copy, identity, history, 0).plan.has_rows_of(history.plans[0])


def test_an_epoch_does_not_run_on_a_plan_that_came_after_another_epoch(
    tmp_path: Path, store: CheckpointStore
) -> None:
    first, other = epoch_of(store, 0, "a"), epoch_of(store, 0, "a and b")
    copy = LocalCopy(str(tmp_path))
    copy.write("sources/0/1", b"v1\nfile")
    copy.write("offsets/1", plan_of(1, "file").offsets.encode())
    line = history_of(store, decided(first))
    then = planned_epoch(copy, first.identity, line, 1).plan
    assert then.follows == first.fingerprint
    for newest, expected in ((first, PlanDiffers), (other, LineageError)):
        line = history_of(store, decided(newest))
        line.plans[1] = msgspec.structs.replace(then, offsets=plan_of(1, "file", at=1).offsets)
        with pytest.raises(expected):
            planned_epoch(copy, first.identity, line, 1)


def test_what_to_do_about_a_file_of_a_plan_goes_by_where_the_plan_is_from(
    store: CheckpointStore,
) -> None:
    history = history_of(store)
    history.first_batch = 3  # an adopted query's; a new store would take its plan again
    assert "adopted query" in _hints(3, history)[1]
    assert "roll back" in _hints(4, history)[0]
    history.newest = CheckpointManifest.new(1, epoch=4, batch=3)
    assert "Start again" in _hints(3, history)[0]
    assert "roll back" in _hints(4, history)[1]
