"""Another number of state partitions: the pipeline goes on as if it always had had them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, open_store
from seamark.capture.checkpoint_contents import Chain, Sizes
from seamark.capture.restore import restore_index
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.errors import FencedError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.native.repartition import repartition
from seamark.native.repartition_rules import OLDEST
from seamark.pipeline.declaration.compatibility import Compatibility, CompatibilityCheck
from seamark.pipeline.declaration.operator_matching import Fate
from seamark.pipeline.declaration.rescaling import with_other_partitions
from seamark.pipeline.declaration.upgrade_plan import UpgradeOptions, plan_upgrade
from seamark.pipeline.recovery import rescale as rescale_module
from seamark.pipeline.recovery import upgrade as upgrade_module
from seamark.sinks import FileSink
from seamark.spark.batch_log import SHUFFLE_PARTITIONS
from seamark.spark.session import spark_version
from seamark.store import CheckpointStore
from seamark.testing.crashes import SimulatedCrash
from tests.checkpoint_dir.support.mounts import mounted_folder
from tests.cli.support.running import Cli
from tests.pipeline.support.workloads import (
    EPOCHS,
    KINDS,
    Shown,
    orders,
    payments,
    provider_of,
    providers_for,
    rows_in,
    settings_of,
    values_in,
)
from tests.pipeline.test_upgrade_plan import BARS, MORE, ONCE, structure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = (4, 7, 3, 4)
"""Partitions of each run; a run reads one file more than the one before."""
STATEFUL = [kind for kind in KINDS if not kind.startswith("stateless") and "one-sink" not in kind]

Declare = Callable[[Pipeline, "SparkSession", Path, Path], None]


def everything(p: Pipeline, spark: SparkSession, folder: Path, root: Path) -> None:
    """Operators with and without a key, with one store and with several, in update mode."""
    from pyspark.sql import functions as f

    source = p.source("orders", orders(spark, folder))
    paid = p.source("payments", payments(spark, folder))
    outputs = {
        "by_id": source.groupBy("id").count(),
        "total": source.groupBy().agg(f.sum("v").alias("total"), f.count("*").alias("n")),
        "once": source.select("k", "v").dropDuplicates(["k", "v"]),
        "paid": source.join(paid, f.expr("id = order")).select("id", "paid"),
    }
    for name, frame in outputs.items():
        p.sink(name, frame, FileSink(root / name))


class World:
    """The input, and a store and sinks that one pipeline after another uses."""

    def __init__(
        self, spark: SparkSession, files: Path, root: Path, declare: Declare, **options: Any
    ) -> None:
        self.spark = spark
        self.root = root
        self.folder = root / "input"
        self._all = files
        self._declare = declare
        self._options = options

    def deliver(self, files: int) -> None:
        """Let the sources have so many files."""
        for name in ("orders", "payments"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            for path in sorted((self._all / name).iterdir())[:files]:
                shutil.copy2(path, self.folder / name / path.name)

    def pipeline(self, **options: Any) -> Pipeline:
        p = Pipeline("shop", self.root / "store", **{**self._options, **options})
        self._declare(p, self.spark, self.folder, self.root)
        return p

    def run(self, partitions: int, files: int, **options: Any) -> None:
        self.deliver(files)
        with in_partitions(self.spark, partitions):
            self.pipeline(**options).run()

    def shown(self) -> Shown:
        return {
            path.name: rows_in(path)
            for path in self.root.iterdir()
            if path.name not in ("store", "input")
        }

    def newest(self) -> CheckpointManifest:
        with open_store(self.root / "store") as store:
            found = store.load_latest()
        assert found is not None
        return found

    def wipe(self) -> None:
        """Remove the working copies."""
        shutil.rmtree(self.root / "store" / "working", ignore_errors=True)


def in_partitions(spark: SparkSession, partitions: int) -> Any:
    return settings_of(spark, {SHUFFLE_PARTITIONS: str(partitions)})


def stores_in(folder: Path) -> dict[str, set[int]]:
    """The partitions that each operator of a working copy has."""
    return {
        operator.name: {int(path.name) for path in operator.iterdir() if path.name.isdigit()}
        for operator in (folder / "state").iterdir()
    }


@pytest.fixture
def scalable(spark: SparkSession) -> SparkSession:
    if spark_version(spark) < OLDEST:
        pytest.skip("this Spark has no offline runner")
    return spark


@pytest.fixture(scope="module")
def unscaled(
    spark: SparkSession, input_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], list[Shown]]:
    """What the sinks of a kind show after each run when the partitions stay as they are."""
    known: dict[str, list[Shown]] = {}

    def shows(kind: str) -> list[Shown]:
        if kind not in known:
            root = tmp_path_factory.mktemp("unscaled")
            world = world_of(spark, input_folder, root, kind)
            known[kind] = []
            with provider_of(spark, "rocksdb" if kind == "transformed-state" else "hdfs"):
                for number, _ in enumerate(STEPS):
                    world.run(STEPS[0], files_of(number))
                    known[kind].append(world.shown())
        return known[kind]

    return shows


def world_of(spark: SparkSession, files: Path, root: Path, kind: str) -> World:
    if kind == "everything":
        return World(spark, files, root, everything, output_mode="update")
    return World(spark, files, root, KINDS[kind])


def files_of(number: int) -> int:
    """How many files there are at the run of that number; the last one closes all windows."""
    return EPOCHS + 1 if number == len(STEPS) - 1 else number + 2


def goes_on_in_each(
    world: World,
    provider: str,
    expected: list[Shown],
    options: Mapping[str, Any],
    steps: Sequence[int] = STEPS,
) -> None:
    with provider_of(world.spark, provider):
        for number, partitions in enumerate(steps):
            world.run(partitions, files_of(number), policy="evolve", **options)
            assert world.shown() == expected[number], f"after {steps[: number + 1]}"
            newest = world.newest()
            assert newest.state_partitions == partitions
            (copy,) = (world.root / "store" / "working").glob("g*/")
            for operator, there in stores_in(copy).items():
                # the state of one without a key stays where it is
                assert there in ({0}, set(range(partitions))), operator
    with open_store(world.root / "store") as store:
        assert all(store.validate_checkpoint(each).valid for each in store.list_ids())


@pytest.mark.spark
@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("provider", ["hdfs", "rocksdb-changelog"])
def test_I15_results_are_those_of_a_pipeline_that_kept_its_partitions(
    scalable: SparkSession,
    input_folder: Path,
    tmp_path: Path,
    unscaled: Callable[[str], list[Shown]],
    provider: str,
) -> None:
    world = world_of(scalable, input_folder, tmp_path, "everything")
    goes_on_in_each(world, provider, unscaled("everything"), {"sizes": Sizes(inline_operator=0)})


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("kind", "provider"),
    [(kind, provider) for kind in STATEFUL for provider in providers_for(kind)],
)
def test_I15_every_kind_of_operator_goes_on_in_other_partitions(
    scalable: SparkSession,
    input_folder: Path,
    tmp_path: Path,
    unscaled: Callable[[str], list[Shown]],
    kind: str,
    provider: str,
) -> None:
    world = world_of(scalable, input_folder, tmp_path, kind)
    goes_on_in_each(world, provider, unscaled(kind), {})


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("provider", ["hdfs", "rocksdb-changelog"])
def test_many_partitions_and_few_again(
    scalable: SparkSession,
    input_folder: Path,
    tmp_path: Path,
    unscaled: Callable[[str], list[Shown]],
    provider: str,
) -> None:
    world = world_of(scalable, input_folder, tmp_path, "everything")
    goes_on_in_each(world, provider, unscaled("everything"), {}, steps=(4, 200, 3, 4))


# together with other changes


class Counting:
    """Pipelines that count orders in update mode, declared differently at each start."""

    def __init__(self, spark: SparkSession, files: Path, root: Path) -> None:
        self.outputs: tuple[str, ...] = ()
        self.world = World(spark, files, root, self._declare, output_mode="update")

    def _declare(self, p: Pipeline, spark: SparkSession, folder: Path, root: Path) -> None:
        source = p.source("orders", orders(spark, folder))
        frames = {
            "counts": lambda: source.groupBy("k").count(),
            "by_id": lambda: source.groupBy("id").count(),
            "total": lambda: source.groupBy().count(),
            "rows": lambda: source.select("id"),
        }
        for name in self.outputs:
            p.sink(name, frames[name](), FileSink(root / name))

    def run(self, *outputs: str, partitions: int, files: int, **options: Any) -> None:
        self.outputs = outputs
        self.world.run(partitions, files, **options)

    def check(self, *outputs: str, partitions: int, **options: Any) -> CompatibilityCheck:
        self.outputs = outputs
        with in_partitions(self.world.spark, partitions):
            return self.world.pipeline(**options).check()

    def newest(self, output: str) -> dict[int, int]:
        """The newest count of each key that an output shows."""
        rows = sorted(values_in(self.world.root / output), key=lambda row: row["epoch"])
        return {row.get("id", row.get("k", 0)): row["count"] for row in rows}

    def expected(self, output: str, first: int = 0) -> dict[int, int]:
        key = {"counts": "k", "by_id": "id", "total": ""}[output]
        paths = sorted((self.world.folder / "orders").iterdir())[first:]
        rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        return dict(Counter(row[key] if key else 0 for row in rows))


@pytest.fixture
def counting(scalable: SparkSession, input_folder: Path, tmp_path: Path) -> Counting:
    return Counting(scalable, input_folder, tmp_path)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_outputs_come_leave_and_move_in_the_same_start(
    counting: Counting, capsys: pytest.CaptureFixture[str]
) -> None:
    counting.run("total", "by_id", "rows", partitions=4, files=2)
    with pytest.raises(RefusedError, match="policy='evolve' makes the change"):
        counting.run("total", "by_id", "rows", partitions=7, files=2)
    outputs = ("counts", "by_id", "total")
    check = counting.check(*outputs, partitions=7, policy="evolve")
    assert check.fit is Compatibility.EVOLVES
    out = capsys.readouterr().out
    assert "operator  by_id/aggregation   rescaled      4 → 7 partitions" in out
    assert "operator  total/aggregation   carried over" in out
    counting.run(*outputs, partitions=7, files=4, policy="evolve")
    assert counting.newest("by_id") == counting.expected("by_id")
    assert counting.newest("total") == counting.expected("total")
    assert counting.newest("counts") == counting.expected("counts", first=2)
    upgraded = [each for each in manifests(counting.world) if each.upgrade is not None]
    assert [each.state_partitions for each in upgraded] == [7]
    assert [each.epoch for each in upgraded] == [2]
    cli = Cli(capsys)
    cli("show", counting.world.root / "store", upgraded[0].checkpoint_id)
    assert "4 → 7 partitions" in cli.out


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_pipeline_without_state_gets_it_in_the_partitions_of_now(counting: Counting) -> None:
    counting.run("rows", partitions=4, files=2)
    counting.run("rows", "counts", partitions=3, files=3, policy="evolve")
    assert counting.newest("counts") == counting.expected("counts", first=2)
    assert counting.world.newest().state_partitions == 3


def manifests(world: World) -> list[CheckpointManifest]:
    with open_store(world.root / "store") as store:
        found = [store.load_by_id(each) for each in store.list_ids()]
    return [each for each in found if each is not None]


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("provider", "capture"), [("format2-changelog", "executors"), ("hdfs", "driver")]
)
def test_a_working_copy_on_hadoop_is_rescaled_next_to_it(
    counting: Counting, tmp_path: Path, provider: str, capture: str
) -> None:
    world, copies = counting.world, tmp_path / "copies"
    with mounted_folder(world.spark, copies) as uri, provider_of(world.spark, provider):
        there: dict[str, Any] = {"working_copy": f"{uri}/p", "capture": capture}
        there["sizes"] = Sizes(inline_operator=0)
        counting.run("by_id", "total", partitions=4, files=2, **there)
        counting.run("by_id", "total", partitions=7, files=3, policy="evolve", **there)
        counting.run("total", "by_id", partitions=3, files=4, policy="evolve", **there)
        assert [path.name for path in (copies / "p").glob("*/*/")] == ["g3"]
    for output in ("by_id", "total"):
        assert counting.newest(output) == counting.expected(output)
    assert not (world.root / "store" / "working").exists()


# cut off, and taken back


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_I15_a_rescale_that_dies_leaves_the_old_partitions_or_the_new_ones(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = counting.world
    counting.run("by_id", "total", partitions=4, files=2)

    def dies(target: Any, name: str, *, after: bool) -> None:
        real = getattr(target, name)

        def dying(*args: Any, **kwargs: Any) -> Any:
            if after:
                real(*args, **kwargs)
            raise SimulatedCrash(name)

        with monkeypatch.context() as patched:
            patched.setattr(target, name, dying)
            with pytest.raises(SimulatedCrash):
                counting.run("by_id", "total", partitions=7, files=4, policy="evolve")
        world.wipe()

    def fits(partitions: int) -> Compatibility:
        return counting.check("by_id", "total", partitions=partitions).fit

    steps = [
        (rescale_module, "restore_index"),
        (rescale_module, "repartition"),
        (rescale_module, "_taken"),
        (upgrade_module, "place"),
        (CheckpointStore, "begin_timeline"),
    ]
    for target, name in steps:
        for after in (False, True):
            dies(target, name, after=after)
            assert fits(4) is Compatibility.SAME, (name, after)
    dies(upgrade_module, "save_with_retry", after=False)
    assert fits(4) is Compatibility.SAME
    dies(upgrade_module, "save_with_retry", after=True)
    assert (fits(4), fits(7)) == (Compatibility.REFUSED, Compatibility.SAME)
    counting.run("by_id", "total", partitions=7, files=4)
    for output in ("by_id", "total"):
        assert counting.newest(output) == counting.expected(output)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_old_partitions_go_on_after_a_rescale_that_died_and_its_folder_is_removed(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.run("by_id", partitions=4, files=2)
    working = counting.world.root / "store" / "working"

    def dying(*_: Any) -> None:
        raise SimulatedCrash("in the middle")

    with monkeypatch.context() as patched:
        patched.setattr(rescale_module, "repartition", dying)
        patched.setattr(LocalCopy, "destroy", lambda _: None)  # a process that is killed
        with pytest.raises(SimulatedCrash):
            counting.run("by_id", partitions=7, files=4, policy="evolve")
    assert list(working.glob("rescale-*"))
    counting.run("by_id", partitions=4, files=4)
    assert not list(working.glob("rescale-*"))
    assert counting.newest("by_id") == counting.expected("by_id")


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_writer_that_has_lost_the_store_decides_nothing(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.run("by_id", partitions=4, files=2)

    def overtaken(*args: Any) -> int:
        with open_store(counting.world.root / "store") as other:
            other.claim(pipeline="shop")
        return repartition(*args)

    with monkeypatch.context() as patched:
        patched.setattr(rescale_module, "repartition", overtaken)
        with pytest.raises(FencedError):
            counting.run("by_id", partitions=7, files=4, policy="evolve")
    assert counting.check("by_id", partitions=4).fit is Compatibility.SAME
    counting.run("by_id", partitions=4, files=4)
    assert counting.newest("by_id") == counting.expected("by_id")


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_rollback_leads_back_to_the_old_partitions(counting: Counting, tmp_path: Path) -> None:
    world = counting.world
    counting.run("by_id", "total", partitions=4, files=2)
    before = world.newest()
    counting.run("by_id", "total", partitions=7, files=3, policy="evolve")
    # the checkpoint of before is restored with its own number of partitions
    with open_store(world.root / "store") as store:
        old = store.load_by_id(before.checkpoint_id)
        assert old is not None
        assert old.state_partitions == 4
        restored = restored_copy(store, old, tmp_path / "restored")
    assert stores_in(restored) == {"0": {0, 1, 2, 3}, "1": {0}}
    with in_partitions(world.spark, 4):
        world.pipeline().rollback(before.checkpoint_id)
    counting.run("by_id", "total", partitions=4, files=4)
    for output in ("by_id", "total"):
        assert counting.newest(output) == counting.expected(output)
        shows = Counter((row["epoch"], row.get("id")) for row in values_in(world.root / output))
        assert set(shows.values()) == {1}
    assert world.newest().state_partitions == 4


def restored_copy(store: CheckpointStore, manifest: CheckpointManifest, root: Path) -> Path:
    chain = Chain.load(store, manifest)
    assert chain.index is not None
    restore_index(LocalCopy(root), chain.index, chain.small, store.shared_objects)
    return root


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_damaged_state_is_never_rescaled(counting: Counting) -> None:
    world, sizes = counting.world, Sizes(inline_operator=0)
    counting.run("by_id", partitions=4, files=3, sizes=sizes)
    [*_, last] = [each for each in manifests(world) if each.shared_objects]
    newest = max((world.root / "store").rglob(f"*{last.shared_objects[-1].name}*"))
    newest.write_bytes(b"x" * newest.stat().st_size)
    world.wipe()
    # epoch 3 is shown and has to run again, on the partitions that it had
    with pytest.raises(RefusedError, match="Start once with the pipeline as it was"):
        counting.run("by_id", partitions=7, files=4, sizes=sizes, policy="evolve")
    counting.run("by_id", partitions=4, files=3, sizes=sizes)
    counting.run("by_id", partitions=7, files=4, sizes=sizes, policy="evolve")
    assert counting.newest("by_id") == counting.expected("by_id")
    assert world.newest().state_partitions == 7


# what is refused, before anything is claimed


def a_checkpoint(partitions: int) -> CheckpointManifest:
    return CheckpointManifest.new(1, epoch=1, state_partitions=partitions)


def planned(old: int, new: int, version: str = "4.3.0", **outputs: Any) -> Any:
    outputs = outputs or {"bars": [BARS], "once": [ONCE]}
    before = structure(outputs, state_partitions=old)
    after = structure(outputs, state_partitions=new)
    return with_other_partitions(plan_upgrade(before, after), a_checkpoint(old), after, version)


def test_every_operator_with_a_key_is_rescaled() -> None:
    plan = planned(4, 200)
    assert plan.partitions == 200
    assert not plan.refused
    rows = [row.text for row in plan.rows if row.what == "operator"]
    assert rows == [
        "operator bars/aggregation: rescaled (4 → 200 partitions)",
        "operator once/deduplication: rescaled (4 → 200 partitions)",
    ]


def test_operators_without_a_key_stay_as_they_are() -> None:
    total = {**BARS, "keys": []}
    limit = {"operator": "limit", "rows": "5"}
    plan = planned(4, 7, total=[total], some=[limit])
    assert {row.fate for row in plan.rows if row.what == "operator"} == {Fate.CARRIED}
    assert plan.partitions == 7


def test_the_same_number_changes_nothing() -> None:
    assert planned(4, 4).partitions is None


@pytest.mark.parametrize("version", ["4.0.1", "4.1.0"])
def test_a_spark_that_cannot_rescale_is_refused_with_the_number_to_set(version: str) -> None:
    (refused,) = planned(4, 7, version).refused
    assert "needs Spark 4.2 or newer" in refused.why
    assert refused.hint == "Set spark.sql.shuffle.partitions to 4."


def test_other_functions_and_other_partitions_are_two_changes() -> None:
    before = structure({"bars": [BARS]})
    after = structure({"bars": [{**BARS, **MORE}]}, state_partitions=7)
    plan = plan_upgrade(before, after, UpgradeOptions(begin_empty=("bars/max(orders.v)",)))
    assert plan.rewritten
    assert plan.refused == []
    plan = with_other_partitions(plan, a_checkpoint(4), after, "4.3.0")
    assert "one change after the other" in plan.refused[0].why


def test_nobody_can_have_more_partitions_than_there_are_folders() -> None:
    (refused,) = planned(4, 2_000_000).refused
    assert "no state has more than 1000000 partitions" in refused.why


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_state_that_cannot_be_rewritten_is_refused_before_the_store_is_claimed(
    counting: Counting,
) -> None:
    checksums = {"spark.sql.streaming.stateStore.rowChecksum.enabled": "true"}
    with settings_of(counting.world.spark, checksums):
        counting.run("by_id", partitions=4, files=2)
        with open_store(counting.world.root / "store") as store:
            owner = store.owner()
        with pytest.raises(RefusedError, match="checksums of rows") as refused:
            counting.run("by_id", partitions=7, files=3, policy="evolve")
        assert "Set spark.sql.shuffle.partitions to 4" in str(refused.value)
        with open_store(counting.world.root / "store") as store:
            assert store.owner() == owner
        counting.run("by_id", partitions=4, files=3)
    assert counting.newest("by_id") == counting.expected("by_id")
