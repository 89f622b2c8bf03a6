"""A start after Kafka has lost rows: refused, or with a gap that is recorded. Without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from seamark.blobs.memory import MemoryBlobs
from seamark.capture.plans import install_plan
from seamark.checkpoint_dir.places.local import LocalCopy, LocalDirectory
from seamark.errors import (
    InvalidInputError,
    PositionUnavailable,
    RefusedError,
    SourceUnavailableError,
)
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint, OperatorCheckpoint
from seamark.native.restore import restore_directory
from seamark.pipeline.declaration.compatibility import Compatibility, check_store
from seamark.pipeline.declaration.compile import Compiled, Output
from seamark.pipeline.declaration.settings import PipelineSettings
from seamark.pipeline.declaration.source_positions import require_known_sources
from seamark.pipeline.declaration.structure import DeclaredPipeline, PipelineIdentity
from seamark.pipeline.epoch.epoch_manifest import source_offsets
from seamark.pipeline.epoch.epoch_plan import store_plan
from seamark.pipeline.epoch.pipeline_sinks import PipelineSinks
from seamark.pipeline.epoch.running_epoch import RunningEpoch, new_attempt
from seamark.pipeline.recovery.recovery import Recovery
from seamark.pipeline.recovery.rollback import roll_back
from seamark.pipeline.recovery.starting_point import StartingPoint
from seamark.spark.batch_log import Plan, parse_offsets
from seamark.spark.kafka.positions import PartitionEnds, TopicFacts
from seamark.state.pack import PackBuilder
from seamark.store import CheckpointStore
from seamark.store.index_parts import LOG
from seamark.store.layout import ObjectLayout
from tests.pipeline.test_starts import function

LEAVES = ("trades", "other", "trades")


def kafka(earliest: int, latest: int, topic_id: str = "one") -> dict[str, TopicFacts]:
    ends = PartitionEnds(earliest, latest)
    return {"t": TopicFacts(topic_id=topic_id, partitions={0: ends})}


def structure(**may_lose: str) -> dict[str, Any]:
    return {"sources": {"trades": {"may_lose": may_lose}}, "sinks": {}}


def line(offset: int) -> str:
    return json.dumps({"t": {"0": offset}}, separators=(",", ":"))


def plan(offset: int, ahead: int = 0) -> Plan:
    return Plan("\n".join(["v1", "{}", line(offset), '{"logOffset":1}', line(offset + ahead)]))


class World:
    """A store, a Kafka, and machines that each have a directory of their own."""

    def __init__(self, base: Path, outputs: tuple[Output, ...] = (), **may_lose: str) -> None:
        self._base = base
        self._blobs = MemoryBlobs()
        nothing = cast(Any, None)
        self._compiled = Compiled(df=nothing, outputs=outputs, branches=(), leaves=LEAVES)
        self._structure = structure(**may_lose)
        self.absent: tuple[str, ...] = ()
        """Topics that the options name and Kafka does not know."""
        self.ahead = 0
        """Rows that the second leaf of the source has read more than the first."""
        self.kafka: dict[str, TopicFacts] | None = kafka(0, 1000)
        self.kafka_again: dict[str, TopicFacts] | None = None
        """What a second look finds, if that is something else."""
        self.meanwhile: Callable[[], object] = lambda: None
        """What happens while Kafka is looked at again."""

    def open(self) -> CheckpointStore:
        return CheckpointStore(self._blobs, ObjectLayout())

    def identity(self) -> PipelineIdentity:
        return PipelineIdentity(
            name="orders",
            structure=self._structure,
            leaves=LEAVES,
            topics={} if self.kafka is None else {"trades": self.kafka},
            topics_again=self._looked_at_again,
            absent={"trades": self.absent} if self.absent else {},
            addresses={"trades": "kafka.bootstrap.servers=broker:9092, subscribe=t"},
        )

    def _looked_at_again(self) -> dict[str, dict[str, TopicFacts]]:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        now = self.kafka_again or self.kafka
        return {} if now is None else {"trades": now}

    def start(self, machine: str = "one", **settings: Any) -> tuple[CheckpointStore, StartingPoint]:
        declared = DeclaredPipeline(
            compiled=self._compiled,
            identity=self.identity(),
            settings=PipelineSettings(digests=False, **settings),
        )
        store = self.open()
        place = LocalCopy(self._base / machine)
        return store, Recovery(declared, store, PipelineSinks(declared), place=place).run()

    def run(self, offset: int, machine: str = "one", **settings: Any) -> StartingPoint:
        """Start, and run one epoch that ends at an offset."""
        store, start = self.start(machine, **settings)
        copy, history = start.copy, start.history
        copy.write("metadata", b'{"id":"x"}')
        batch = history.newest.epoch if history.newest is not None else 0
        install_plan(copy, batch, plan(offset, self.ahead))
        epoch = self.epoch(start, offset)
        copy.write(f"commits/{batch}", b"v1\n{}")
        store.save(self._checkpoint(history.next_id, epoch, copy, history.newest))
        return start

    def epoch(self, start: StartingPoint, offset: int) -> RunningEpoch:
        newest = start.history.newest
        return RunningEpoch(
            identity=self.identity(),
            timeline=start.history.timeline,
            batch=newest.epoch if newest is not None else 0,
            entry=parse_offsets(plan(offset, self.ahead).offsets),
            plan=plan(offset, self.ahead),
            attempt=new_attempt(1, "t"),
        )

    def _checkpoint(
        self, number: int, epoch: RunningEpoch, copy: Any, parent: CheckpointManifest | None
    ) -> CheckpointManifest:
        logs = {path: copy.read(path) for path in copy.files_below(".")}
        pack = PackBuilder()
        pack.add_all(list(logs), list(logs.values()), compress=True)
        return CheckpointManifest.new(
            number,
            epoch=epoch.number,
            wal_position=epoch.batch,
            source_offsets=source_offsets(LEAVES, epoch.entry.lines, epoch.number),
            operator_states={LOG: OperatorCheckpoint.inline(b"".join(pack.finish()))},
        ).with_extra(
            fingerprint=epoch.fingerprint,
            leaves=list(LEAVES),
            structure=self._structure,
            source_ids=epoch.identity.source_ids_after(parent.source_ids if parent else None),
            gaps=list(parent.gaps) or None if parent is not None else None,
        )


def ends_at(start: StartingPoint, batch: int) -> list[str]:
    return list(parse_offsets(start.copy.read_text(f"offsets/{batch}") or "").lines)


def newest(start: StartingPoint) -> CheckpointManifest:
    assert start.history.newest is not None
    return start.history.newest


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.run(120)
    return world


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (kafka(500, 900), "120 is wanted, earliest is 500, latest is 900: 380 rows are lost"),
        (kafka(0, 100), "shorter than what was read"),
        (kafka(0, 900, "two"), "120 rows of the new topic would never be read"),
    ],
)
def test_a_start_without_the_next_rows_is_refused_and_fences_nobody(
    world: World, now: dict[str, TopicFacts], told: str
) -> None:
    owner, world.kafka = world.open().owner(), now
    with pytest.raises(PositionUnavailable, match=told):
        world.start()
    assert world.open().owner() == owner


@pytest.mark.parametrize("settings", [{}, {"reanchor": {"trades": "earliest"}}])
def test_rows_that_another_run_has_read_since_kafka_was_looked_at_are_not_ahead_of_it(
    world: World, settings: Any
) -> None:
    """It is taken over, and has saved more checkpoints meanwhile."""
    world.kafka, world.kafka_again = kafka(0, 100), kafka(0, 130)
    _, start = world.start(**settings)
    assert not newest(start).gaps
    assert newest(start).source_offsets["trades"].offsets == {"t-0": "120"}


def test_rows_that_a_running_pipeline_has_read_before_they_went_are_not_missed(
    world: World,
) -> None:
    store, _ = world.start()
    world.kafka, world.kafka_again = kafka(0, 100), kafka(500, 900)

    def read_on() -> None:
        read = store.load_latest()
        assert read is not None
        lines = {"line": line(600), "line#2": line(600)}
        at = {"trades": ConnectorCheckpoint({"t-0": "600"}, 2, lines)}
        store.save(read.replace(checkpoint_id=2, epoch=2, source_offsets=at))

    world.meanwhile = read_on
    check = check_store(world.open(), world.identity(), "strict")
    assert (check.gone, world.open().list_ids()) == (None, [1, 2])


def test_the_next_epoch_begins_at_the_anchor_and_every_later_checkpoint_tells_it(
    world: World,
) -> None:
    world.kafka = kafka(500, 900)
    _, start = world.start(reanchor={"trades": "earliest"})
    assert ends_at(start, 0) == [line(500), '{"logOffset":1}', line(500)]
    assert newest(start).source_offsets["trades"].offsets == {"t-0": "500"}
    assert newest(start).epoch == 1
    [note] = [note for note in start.report.notes if "gap" in note]
    assert "t-0 went on at 500 instead of 120, 380 rows were never read" in note
    for offset in (600, 700, 800):  # the option is not needed any more
        world.run(offset)
    _, later = world.start()
    assert len(newest(later).gaps) == 1
    assert note in later.report.notes


def test_a_recorded_gap_is_not_made_again_whatever_the_option_says(world: World) -> None:
    world.kafka = kafka(500, 900)
    world.start(reanchor={"trades": "earliest"})
    _, start = world.start(reanchor={"trades": "latest"})
    assert ends_at(start, 0)[0] == line(500)
    assert len(newest(start).gaps) == 1


@pytest.mark.parametrize("machine", ["one", "another"])
def test_an_epoch_that_runs_again_begins_after_the_gap_in_every_working_copy(
    world: World, machine: str
) -> None:
    world.kafka = kafka(500, 900)
    world.run(700, reanchor={"trades": "earliest"})
    _, start = world.start(machine)
    # Spark would read batch 1 again from where offsets/0 ends
    assert ends_at(start, 0)[0] == line(500)
    assert ends_at(start, 1)[0] == line(700)


@pytest.mark.parametrize("epochs", [0, 1, 2])
def test_a_directory_for_stock_spark_begins_after_the_gap(
    world: World, tmp_path: Path, epochs: int
) -> None:
    world.kafka = kafka(0, 900, "two")  # at 120 Spark would pass over 120 rows of it
    store, _ = world.start(reanchor={"trades": "earliest"})
    for epoch in range(epochs):
        world.run(300 + epoch)
    number = max(store.list_ids())
    made = LocalDirectory(tmp_path / "made")
    restore_directory(store, number, made)
    offsets = {path: made.read(path).decode() for path in made.listing() if "offsets" in path}
    if epochs < 2:
        assert parse_offsets(offsets["offsets/0"]).lines[0] == line(0)
    newest_line = line(299 + epochs) if epochs else line(0)
    assert parse_offsets(offsets[f"offsets/{epochs}"]).lines[0] == newest_line


def test_what_was_planned_before_the_rows_were_lost_is_not_run(world: World) -> None:
    _, start = world.start()
    install_plan(start.copy, 1, plan(300))
    world.kafka = kafka(500, 900)
    _, start = world.start(reanchor={"trades": "earliest"})
    assert start.copy.batches("offsets") == [0]


def test_a_topic_that_was_made_again_is_read_from_its_first_row(world: World) -> None:
    world.kafka = kafka(0, 900, "two")
    _, start = world.start(reanchor={"trades": "earliest"})
    assert ends_at(start, 0)[0] == line(0)
    assert newest(start).source_ids == {"trades": {"t": "two"}}
    world.start()  # it is the topic of the checkpoint now


def test_a_start_that_did_not_look_forgets_no_topic(world: World) -> None:
    world.kafka = None
    world.run(200)
    world.kafka = kafka(0, 900, "two")
    with pytest.raises(PositionUnavailable, match="200 rows of the new topic would never be read"):
        world.start()


def test_a_gap_in_one_source_forgets_no_topic_of_another(world: World) -> None:
    ids = {"trades": {"t": "one"}, "other": {"o": "id"}}
    looked = replace(world.identity(), topics={"trades": kafka(0, 9, "two")})
    assert looked.source_ids_after(ids) == {"trades": {"t": "two"}, "other": {"o": "id"}}


@pytest.mark.parametrize("settings", [{}, {"reanchor": {"trades": "earliest"}}, {"policy": "warn"}])
def test_a_topic_that_was_deleted_is_told_with_the_position_and_the_ways_on(
    world: World, settings: Any
) -> None:
    owner, world.kafka, world.absent = world.open().owner(), {}, ("t",)
    with pytest.raises(PositionUnavailable, match="the topic 't' is gone") as gone:
        world.start(**settings)
    assert "t-0: 120 is wanted, and the topic is gone" in str(gone.value)
    for way in ("Make the topic again", "reanchor={'trades': 'earliest'}", "policy='warn'"):
        assert way in str(gone.value)
    assert world.open().owner() == owner


def test_a_topic_that_is_no_longer_subscribed_is_dropped_on_request(world: World) -> None:
    world.kafka = {"u": kafka(0, 5)["t"]}
    with pytest.raises(PositionUnavailable, match="the topic 't' is gone"):
        world.start()
    _, start = world.start(reanchor={"trades": "earliest"})
    assert ends_at(start, 0) == ["{}", '{"logOffset":1}', "{}"]
    assert "t-0 was at 120 and is not there any more" in " ".join(start.report.notes)


def test_a_topic_that_was_never_there_is_an_unavailable_source(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kafka, world.absent = {}, ("t",)
    with pytest.raises(SourceUnavailableError, match="does not know a topic") as failed:
        world.start()
    assert "subscribe=t" in str(failed.value)
    world.kafka, world.absent = kafka(0, 200), ()
    world.run(120)
    world.kafka, world.absent = {}, ("t",)
    with pytest.raises(SourceUnavailableError, match="does not know a topic"):
        world.start(policy="auto_reset")


def test_a_pattern_that_matches_no_topic_any_more_has_lost_its_positions(tmp_path: Path) -> None:
    world = World(tmp_path, failOnDataLoss="false")
    world.run(120)
    world.kafka = {}
    _, start = world.start()
    assert newest(start).gaps[0]["moves"][0]["why"] == "no topic"
    world.kafka = kafka(0, 900, "two")  # it is a new topic now, and read from its first row
    world.run(50)
    _, start = world.start()
    assert len(newest(start).gaps) == 1


@pytest.fixture
def joined(tmp_path: Path) -> World:
    """A source that two leaves read, and the second has come further."""
    world = World(tmp_path)
    world.ahead = 480
    world.run(120)
    return world


@pytest.mark.parametrize("machine", ["one", "another"])
def test_each_leaf_of_a_source_moves_only_where_its_own_rows_are_gone(
    joined: World, machine: str
) -> None:
    joined.kafka = kafka(500, 900)
    _, start = joined.start(reanchor={"trades": "earliest"})
    offsets = newest(start).source_offsets["trades"]
    assert offsets.metadata == {"line": line(500), "line#2": line(600)}
    for _ in range(2):
        assert ends_at(start, 0) == [line(500), '{"logOffset":1}', line(600)]
        assert [move["from"] for move in newest(start).gaps[0]["moves"]] == [120]
        _, start = joined.start(machine)


def test_rows_that_only_the_second_leaf_has_lost_are_told(joined: World) -> None:
    joined.kafka = kafka(0, 590)
    with pytest.raises(PositionUnavailable, match="t-0: 600 is wanted, earliest is 0") as gone:
        joined.start()
    assert gone.value.requested == f"{line(120)}\n{line(600)}".encode()
    _, start = joined.start(reanchor={"trades": {"t": {0: 590}}})
    assert ends_at(start, 0) == [line(120), '{"logOffset":1}', line(590)]


def test_with_the_policy_warn_each_leaf_stays_at_its_own_offset_in_a_new_topic(
    joined: World,
) -> None:
    joined.kafka = kafka(0, 900, "two")
    _, start = joined.start(policy="warn")
    assert ends_at(start, 0) == [line(120), '{"logOffset":1}', line(600)]
    assert [move["rows"] for move in newest(start).gaps[0]["moves"]] == [120, 600]


def test_leaves_that_come_to_the_same_place_have_one_position(joined: World) -> None:
    joined.kafka = kafka(700, 900)
    _, start = joined.start(reanchor={"trades": "earliest"})
    assert newest(start).source_offsets["trades"].metadata == {"line": line(700)}
    assert ends_at(start, 0) == [line(700), '{"logOffset":1}', line(700)]


def test_a_rollback_behind_the_gap_wants_the_lost_rows_again(world: World) -> None:
    world.kafka = kafka(500, 900)
    world.run(700, reanchor={"trades": "earliest"})
    roll_back(world.open(), 1, "orders")
    with pytest.raises(PositionUnavailable):
        world.start()


def test_the_policy_warn_goes_on_in_a_new_topic_and_records_what_it_leaves_out(
    world: World,
) -> None:
    world.kafka = kafka(0, 900, "two")
    _, start = world.start(policy="warn")
    assert ends_at(start, 0)[0] == line(120)
    assert newest(start).gaps[0]["moves"][0]["rows"] == 120


def test_the_policy_warn_does_not_go_on_without_the_next_rows(world: World) -> None:
    world.kafka = kafka(500, 900)
    with pytest.raises(PositionUnavailable):
        world.start(policy="warn")


def test_the_policy_auto_reset_starts_over(world: World) -> None:
    world.kafka = kafka(500, 900)
    _, start = world.start(policy="auto_reset")
    assert start.report.fresh_start


def test_rows_that_failOnDataLoss_lets_go_are_recorded_too(tmp_path: Path) -> None:
    world = World(tmp_path, failOnDataLoss="false")
    world.run(120)
    world.kafka = kafka(500, 900)
    _, start = world.start()
    assert newest(start).gaps[0]["moves"][0]["rows"] == 380


def test_an_epoch_that_a_function_was_called_with_never_begins_elsewhere(tmp_path: Path) -> None:
    world = World(tmp_path, (function(),))
    world.run(120)
    store, start = world.start()
    store_plan(store, world.epoch(start, 300), start.history, ("rows",), 0)
    world.kafka = kafka(500, 900)
    with pytest.raises(RefusedError, match="epoch 2 was begun"):
        world.start(reanchor={"trades": "earliest"})


def test_a_check_says_what_a_start_would_leave_out(world: World) -> None:
    world.kafka = kafka(500, 900)
    anchors: Mapping[str, Any] = {"trades": "latest"}
    check = check_store(world.open(), world.identity(), "strict", anchors)
    assert check.fit is Compatibility.GOES_ON
    assert "t-0 at 900 instead of 120, 780 rows are never read" in check.changes[0]
    refused = check_store(world.open(), world.identity(), "strict")
    assert refused.fit is Compatibility.REFUSED
    assert refused.gone is not None


def test_an_anchor_for_an_unknown_source_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'trade', which is not a source"):
        require_known_sources({"trade": "earliest"}, ["trades"])
