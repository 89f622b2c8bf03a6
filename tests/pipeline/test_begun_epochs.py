"""A function gets the same rows in every try of an epoch, or the epoch does not run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from seamark import Pipeline, open_store
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import DamageError, LineageError, RefusedError
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.epoch.begun_epoch import changes_since, next_tables
from seamark.pipeline.epoch.epoch_plan import stored_plans
from seamark.pipeline.epoch.running_epoch import EpochHistory
from seamark.sinks import FileSink, ForeachBatchSink
from seamark.sinks.contract import Guarantee
from seamark.store import CheckpointStore
from seamark.store.layout import ObjectLayout
from seamark.store.plans import StoredPlan
from seamark.testing.crashes import SimulatedCrash, crash_at
from tests.pipeline.support.tables import Table, by_key
from tests.pipeline.support.workloads import values_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FUNCTIONS = ("rows",)
IDEMPOTENT = {"rows": Guarantee.IDEMPOTENT.value}


def structure_with(**options: str) -> dict[str, Any]:
    return {
        "output_mode": "append",
        "state_partitions": 2,
        "sources": {"in": {"format": "csv", "options": options}},
        "sinks": {"rows": {"kind": "function", "target": "f", "options": {}, "columns": []}},
        "operators": [],
    }


def at_version(version: int) -> dict[str, ConnectorCheckpoint]:
    return {"names": ConnectorCheckpoint(offsets={"version": str(version)})}


def identity_with(
    structure: dict[str, Any],
    tables: dict[str, ConnectorCheckpoint] | None = None,
    guarantees: dict[str, str] = IDEMPOTENT,
) -> PipelineIdentity:
    return PipelineIdentity(
        name="shop",
        structure=structure,
        leaves=("in",),
        tables=tables or {},
        guarantees=guarantees,
    )


def started_with(
    structure: dict[str, Any] | None,
    tables: dict[str, ConnectorCheckpoint] | None = None,
    timeline: str = "a" * 32,
) -> StoredPlan:
    return StoredPlan(
        timeline=timeline,
        epoch=3,
        fingerprint="",
        follows="",
        leaves=("in",),
        offsets="",
        structure=structure,
        tables=tables or {},
    )


@pytest.fixture
def store() -> CheckpointStore:
    made = CheckpointStore(MemoryBlobs(), ObjectLayout())
    made.claim(pipeline="shop")
    return made


def test_an_epoch_runs_again_in_the_pipeline_that_it_was_started_in() -> None:
    stored = started_with(structure_with(path="a"), at_version(1))
    assert (
        changes_since(stored, identity_with(structure_with(path="a"), at_version(1)), FUNCTIONS)
        == []
    )
    assert (
        changes_since(started_with(None), identity_with(structure_with(path="a")), FUNCTIONS) == []
    )


def test_a_changed_source_and_another_version_of_a_table_are_named() -> None:
    stored = started_with(structure_with(path="a"), at_version(1))
    changes = changes_since(
        stored, identity_with(structure_with(path="b"), at_version(2)), FUNCTIONS
    )
    assert "table 'names' is not what it was: version 1 → version 2" in changes
    assert len(changes) > 1


def test_a_function_that_promises_nothing_gets_rows_of_a_changed_pipeline() -> None:
    stored = started_with(structure_with(path="a"), at_version(1))
    other = structure_with(path="b")
    assert (
        changes_since(
            stored,
            identity_with(other, at_version(2), {"rows": Guarantee.AT_LEAST_ONCE.value}),
            FUNCTIONS,
        )
        == []
    )


def test_a_table_without_versions_is_not_compared() -> None:
    files = {"names": ConnectorCheckpoint(offsets={"files": "1"})}
    more = {"names": ConnectorCheckpoint(offsets={"files": "2"})}
    structure = structure_with(path="a")
    assert (
        changes_since(started_with(structure, files), identity_with(structure, more), FUNCTIONS)
        == []
    )


def test_a_function_may_have_another_name_and_rows_no_other_columns() -> None:
    now, columns = structure_with(path="a"), structure_with(path="a")
    now["sinks"]["rows"]["target"] = "g"
    columns["sinks"]["rows"]["columns"] = [["v", "bigint"]]
    stored = started_with(structure_with(path="a"))
    assert changes_since(stored, identity_with(now), FUNCTIONS) == []
    assert changes_since(stored, identity_with(columns), FUNCTIONS) != []


def test_a_structure_that_cannot_be_compared_is_damage() -> None:
    with pytest.raises(DamageError, match="the plan of epoch 3 does not say in a known way"):
        changes_since(
            started_with({"sources": 1}), identity_with(structure_with(path="a")), FUNCTIONS
        )


def test_the_next_epoch_is_joined_with_tables_as_it_was_started(store: CheckpointStore) -> None:
    newest = CheckpointManifest.new(1, epoch=2, table_offsets=at_version(1))
    assert next_tables(store, None) == {}
    assert next_tables(store, newest) == at_version(1)
    store.plans.keep(started_with(None, at_version(5), store.owner().timeline))
    assert next_tables(store, None) == at_version(5)
    assert next_tables(store, newest) == at_version(5)
    assert next_tables(store, newest.replace(epoch=3)) == at_version(1)  # it is decided


def test_an_adopted_query_that_has_gone_past_a_begun_epoch_is_not_adopted_again(
    store: CheckpointStore,
) -> None:
    timeline = store.owner().timeline
    store.plans.keep(started_with(None, timeline=timeline))
    history = EpochHistory(timeline, 1, 1, first_batch=3)
    identity = identity_with(structure_with(path="a"))
    with pytest.raises(LineageError, match="epoch 3 was started here, and the adopted query has"):
        stored_plans(store, history, identity, ("rows",))
    assert stored_plans(store, history, identity, ()) == {}


class Shop:
    """A function and files that show the same rows: a number of a table for each key of a line."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._root = spark, root
        self._table = Table(root / "table.db")
        (root / "in").mkdir()
        (root / "in" / "0.csv").write_text("1,x\n2,x")

    def write_names(self, *keys: int) -> None:
        import deltalake
        import pyarrow as pa

        rows = pa.table({"v": pa.array(keys, pa.int64())})
        deltalake.write_deltalake(self._root / "names", rows, mode="overwrite")

    def pipeline(
        self, *, sep: str = ",", version: Literal["recorded", "latest"] = "recorded", **options: Any
    ) -> Pipeline:
        p = Pipeline("shop", self._root / "store", progress=None, **options)
        read = self._spark.readStream.schema("v long").option("sep", sep)
        rows = p.source("in", read.csv(str(self._root / "in")))
        if (self._root / "names").exists():
            rows = rows.join(p.table("names", self._root / "names", version=version), "v")
        p.sink("rows", rows, ForeachBatchSink(by_key(self._table), idempotent=True))
        p.sink("files", rows, FileSink(self._root / "out"))
        return p

    def of_one_state(self, *outputs: str, **options: Any) -> Pipeline:
        """Functions that share a stateful part: the query reads its source once for all."""
        p = Pipeline("shop", self._root / "store", progress=None, **options)
        read = self._spark.readStream.schema("v long")
        once = p.source("in", read.csv(str(self._root / "in"))).dropDuplicates(["v"])
        for name in outputs:
            p.sink(name, once, ForeachBatchSink(by_key(self._table), idempotent=True, name="f"))
        return p

    def deliver(self, number: int, line: str) -> None:
        (self._root / "in" / f"{number}.csv").write_text(line)

    def lose_checkpoints_after(self, epoch: int) -> None:
        folder = self._root / "store"
        with open_store(folder) as store:
            later = [number for number, of in store.list() if of > epoch]
        for number in later:
            (folder / f"checkpoints/checkpoint_{number:06}/manifest.json").write_text("{")

    def begin(self, pipeline: Pipeline | None = None) -> None:
        """Call the function, and die before there is a checkpoint."""
        with pytest.raises(SimulatedCrash):
            (pipeline or self.pipeline(on_step=crash_at("write", "after", 1))).run()

    @property
    def shown(self) -> tuple[Counter[int], Counter[int]]:
        return self._table.values(), Counter(row["v"] for row in values_in(self._root / "out"))


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path)


@pytest.mark.warm
def test_a_first_epoch_is_joined_with_the_version_of_its_first_try(shop: Shop) -> None:
    pytest.importorskip("deltalake")
    shop.write_names(1)
    shop.begin()
    shop.write_names(1, 2)
    shop.pipeline().run()
    assert shop.shown == (Counter([1]), Counter([1]))


@pytest.mark.warm
def test_epochs_whose_checkpoints_are_lost_are_each_joined_with_the_version_of_their_first_try(
    shop: Shop,
) -> None:
    pytest.importorskip("deltalake")
    for epoch in (1, 2, 3):
        shop.write_names(*range(epoch + 2))
        shop.deliver(epoch, f"{epoch + 1},x\n{epoch + 2},x")  # the last one is not in the table
        shop.pipeline(version="latest").run()
    shows = shop.shown
    shop.lose_checkpoints_after(1)
    with pytest.raises(RefusedError, match="epoch 3 was started before"):
        shop.pipeline().run()
    shop.pipeline().run()
    assert shop.shown == shows


@pytest.mark.warm
@pytest.mark.parametrize("policy", ["strict", "warn", "auto_reset"])
def test_a_first_epoch_is_finished_before_its_pipeline_is_changed(shop: Shop, policy: str) -> None:
    shop.begin()
    with pytest.raises(RefusedError, match="was started before the pipeline was changed"):
        shop.pipeline(sep=";", policy=policy).run()
    shop.pipeline().run()
    assert shop.shown == (Counter([1, 2]), Counter([1, 2]))


@pytest.mark.warm
def test_a_function_joins_after_the_begun_epoch_and_never_gets_it_under_two_names(
    shop: Shop,
) -> None:
    shop.begin(shop.of_one_state("rows", on_step=crash_at("write", "after", 1)))
    for name in ("more", "another"):
        joins = shop.of_one_state("rows", name, on_step=crash_at("write", "after", 1))
        with pytest.raises(RefusedError, match=f"the function of output '{name}' is new"):
            joins.run()
    shop.of_one_state("rows").run()
    assert shop.shown[0] == Counter([1, 2])
    shop.deliver(1, "3,x")
    shop.of_one_state("rows", "more").run()
    assert shop.shown[0] == Counter([1, 2, 3, 3])
