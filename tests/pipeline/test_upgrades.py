"""A pipeline that changes and keeps its state: what stays the same goes on as if nothing was."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, open_store
from seamark.capture.checkpoint_contents import Sizes
from seamark.errors import RefusedError
from seamark.pipeline.declaration.compatibility import Compatibility
from seamark.pipeline.declaration.settings import Step
from seamark.pipeline.recovery import upgrade as upgrade_module
from seamark.sinks import FileSink
from seamark.store import CheckpointStore
from seamark.testing.crashes import SimulatedCrash, crash_at
from tests.cli.support.running import Cli
from tests.pipeline.support.upgrades import (
    BEFORE,
    Counting,
    World,
    counts,
    new_pairs,
    rows_of,
    sums,
)
from tests.pipeline.support.workloads import (
    KINDS,
    Shown,
    clock,
    orders,
    payments,
    provider_of,
    providers_for,
    put_file,
    read_json,
    rows_in,
    shown,
    values_in,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

STATEFUL = [kind for kind in KINDS if not kind.startswith("stateless") and "one-sink" not in kind]


@pytest.fixture(scope="module")
def unchanged(
    spark: SparkSession, input_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Shown]:
    """What the sinks of a kind show after two runs of the same pipeline."""
    known: dict[tuple[str, str], Shown] = {}

    def shows(kind: str, provider: str) -> Shown:
        if (kind, provider) not in known:
            world = World(spark, input_folder, tmp_path_factory.mktemp("unchanged"), kind)
            with provider_of(spark, provider):
                world.before().run()
                world.deliver()
                world.before().run()
            known[kind, provider] = shown(world.root)
        return known[kind, provider]

    return shows


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "provider"),
    [(kind, provider) for kind in STATEFUL for provider in providers_for(kind)],
)
def test_I15_an_operator_that_moves_goes_on_and_a_new_one_begins_empty(
    spark: SparkSession,
    input_folder: Path,
    tmp_path: Path,
    unchanged: Callable[[str, str], Shown],
    kind: str,
    provider: str,
) -> None:
    world = World(spark, input_folder, tmp_path, kind)
    with provider_of(spark, provider):
        world.before().run()
        world.deliver()
        with pytest.raises(RefusedError, match="policy='evolve'"):
            world.after().run()
        check = world.after(policy="evolve").check()
        assert check.fit is Compatibility.EVOLVES
        world.after(policy="evolve").run()
    assert shown(tmp_path) == unchanged(kind, provider)
    assert rows_in(tmp_path / "pairs") == new_pairs(world.folder, BEFORE)


# changes of other kinds, all with state on HDFS's provider


def test_outputs_are_removed_reordered_and_added_and_each_keeps_its_own_state(
    counting: Counting,
) -> None:
    counting.declare("counts", "by_id", "sums").run()
    counting.world.deliver()
    counting.declare("rows", "sums", "counts", policy="evolve").run()
    rows = rows_of(counting.world.folder)
    assert counting.newest("counts") == counts(rows)
    assert counting.newest("sums") == sums(rows)
    later = rows_of(counting.world.folder, BEFORE)
    assert len(values_in(counting.root / "rows")) == len(later)


def test_an_upgrade_is_one_checkpoint_and_show_tells_what_it_did(
    counting: Counting, capsys: pytest.CaptureFixture[str]
) -> None:
    counting.declare("counts").run()
    with open_store(counting.root / "store") as store:
        before = store.list_ids()[-1]
    run = counting.declare("sums", "counts", policy="evolve").run()
    assert "operator sums/aggregation: begins empty" in " ".join(run.report.notes)
    with open_store(counting.root / "store") as store:
        found = [store.load_by_id(i) for i in store.list_ids()]
        (upgraded,) = [m for m in found if m is not None and m.upgrade is not None]
        assert upgraded.upgrade is not None
        assert upgraded.upgrade["from"] == before
        assert upgraded.parent_id == before
        assert not upgraded.is_incremental
        assert all(store.validate_checkpoint(i).valid for i in store.list_ids())
    cli, path = Cli(capsys), counting.root / "store"
    cli("show", path, upgraded.checkpoint_id)
    assert f"Upgraded from checkpoint {before}" in cli.out
    assert "operator counts/aggregation  carried over" in cli.out
    rows = cli.document("list", path)["checkpoints"]
    notes = {row["id"]: row["note"] for row in rows}
    assert notes[upgraded.checkpoint_id] == f"upgraded from {before}"


def test_state_is_stored_once_when_an_operator_moves(counting: Counting) -> None:
    options: dict[str, Any] = {"sizes": Sizes(inline_operator=0)}
    counting.declare("by_id", **options).run()
    with open_store(counting.root / "store") as store:
        before = set(store.shared_objects.entries())
    counting.declare("sums", "by_id", policy="evolve", **options).check()
    counting.declare("sums", "by_id", policy="evolve", **options).run()
    with open_store(counting.root / "store") as store:
        newest = store.load_latest()
        assert newest is not None
        named = {each.name for each in newest.shared_objects}
    assert named & before


@pytest.mark.parametrize("whole", [True, False])
def test_a_whole_working_copy_is_rearranged_and_one_that_is_not_is_rebuilt(
    counting: Counting, *, whole: bool
) -> None:
    options: dict[str, Any] = {"sizes": Sizes(inline_operator=0)}
    counting.declare("counts", "by_id", "sums", **options).run()
    counting.world.deliver()
    if not whole:
        (damaged, *_) = sorted((counting.root / "store" / "working").glob("g*/state/2/0/*.delta"))
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    run = counting.declare("rows", "sums", "counts", policy="evolve", **options).run()
    copy = run.report.working_copy
    assert copy == "rearranged" if whole else copy.startswith("rebuilt")
    rows = rows_of(counting.world.folder)
    assert counting.newest("counts") == counts(rows)
    assert counting.newest("sums") == sums(rows)


def test_a_renamed_output_goes_on_at_a_new_target(counting: Counting) -> None:
    counting.declare("counts").run()
    counting.world.deliver()
    counting.declare("renamed", policy="evolve", renames={"counts": "renamed"}).run()
    assert counting.newest("renamed") == counts(rows_of(counting.world.folder))


def test_an_operator_in_front_begins_empty_when_asked_for_and_the_one_behind_goes_on(
    counting: Counting,
) -> None:
    counting.declare("counts").run()
    counting.world.deliver()
    with pytest.raises(RefusedError, match="counts/deduplication: refused") as refused:
        counting.declare("counts=of_new", policy="evolve").run()
    assert "begin_empty=['counts/deduplication']" in str(refused.value)
    options: dict[str, Any] = {"policy": "evolve", "begin_empty": ["counts/deduplication"]}
    counting.declare("counts=of_new", **options).run()
    folder = counting.world.folder
    new = {row["id"]: row for row in rows_of(folder, BEFORE)}.values()
    expected = Counter(counts(rows_of(folder, 0, BEFORE))) + Counter(counts(list(new)))
    assert counting.newest("counts") == dict(expected)


def test_another_key_or_function_is_refused_before_the_store_is_claimed(
    counting: Counting,
) -> None:
    counting.declare("counts").run()
    with open_store(counting.root / "store") as store:
        owner = store.owner()
    for other in ("counts=by_id", "counts=sums"):
        with pytest.raises(RefusedError, match="counts/aggregation: refused"):
            counting.declare(other, policy="evolve").run()
    with open_store(counting.root / "store") as store:
        assert store.owner() == owner
    counting.world.deliver()
    counting.declare("counts=by_id", policy="evolve", begin_empty=["counts"]).check()


def test_outputs_that_shared_state_and_part_each_go_on(counting: Counting) -> None:
    counting.declare("shared", "also_shared").run()
    counting.world.deliver()
    counting.declare("shared", "also_shared", policy="evolve", share_state=False).run()
    expected = counts(rows_of(counting.world.folder))
    assert counting.newest("shared") == expected
    assert counting.newest("also_shared") == {k: n for k, n in expected.items() if k > 0}


def test_an_output_keeps_shared_state_when_the_other_one_leaves(counting: Counting) -> None:
    counting.declare("shared", "also_shared").run()
    counting.world.deliver()
    counting.declare("also_shared", policy="evolve").run()
    expected = counts(rows_of(counting.world.folder))
    assert counting.newest("also_shared") == {k: n for k, n in expected.items() if k > 0}


def test_a_pipeline_without_state_gets_its_first_stateful_output(counting: Counting) -> None:
    counting.declare("rows").run()
    counting.world.deliver()
    counting.declare("rows", "counts", policy="evolve").run()
    assert counting.newest("counts") == counts(rows_of(counting.world.folder, BEFORE))
    assert len(values_in(counting.root / "rows")) == len(rows_of(counting.world.folder))


def test_a_source_is_added_and_removed_again(counting: Counting) -> None:
    world = counting.world
    counting.declare("counts").run()
    world.deliver()

    def with_payments() -> Pipeline:
        p, source = counting.pipeline(policy="evolve")
        paid = p.source("payments", payments(world.spark, world.folder))
        p.sink("paid", paid.groupBy("paid").count(), FileSink(world.root / "paid"))
        p.sink("counts", source.groupBy("k").count(), FileSink(world.root / "counts"))
        return p

    with_payments().run()
    assert counting.newest("counts") == counts(rows_of(world.folder))
    paid = [
        json.loads(line)["paid"]
        for path in (world.folder / "payments").iterdir()
        for line in path.read_text().splitlines()
    ]
    shows = sorted(values_in(world.root / "paid"), key=lambda row: row["epoch"])
    assert {row["paid"]: row["count"] for row in shows} == dict(Counter(paid))
    put_file(world.folder / "orders", 90, [{"id": 9000, "k": 1, "v": 1, "t": clock(0)}])
    counting.declare("counts", policy="evolve").run()
    assert counting.newest("counts") == counts(rows_of(world.folder, 0, 99))


def test_a_longer_window_goes_on_and_open_windows_close_as_they_are(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    world = World(spark, input_folder, tmp_path, "windowed")

    def bars(length: str, **options: Any) -> Pipeline:
        p = world.pipeline(**options)
        source = p.source("orders", orders(spark, world.folder)).withWatermark("t", "10 seconds")
        grouped = source.groupBy(f.window("t", length), "k").count()
        p.sink("bars", grouped, FileSink(tmp_path / "bars"))
        return p

    bars("20 seconds").run()
    world.deliver()
    with pytest.raises(RefusedError, match="window length"):
        bars("60 seconds").run()
    run = bars("60 seconds", policy="evolve").run()
    assert "windows that are open close as they are" in " ".join(run.report.notes)
    lengths = {
        (row["window"]["end"] - row["window"]["start"]).total_seconds()
        for row in values_in(tmp_path / "bars")
        if row["epoch"] > BEFORE + 1
    }
    assert lengths == {20.0, 60.0}


# cut off, and taken back


def test_I15_an_upgrade_that_dies_leaves_the_old_pipeline_or_the_new_one(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.declare("counts").run()
    counting.world.deliver()
    expected = counts(rows_of(counting.world.folder))
    died = []

    def dies(target: Any, name: str, *, after: bool) -> None:
        real = getattr(target, name)

        def dying(*args: Any, **kwargs: Any) -> Any:
            if after:
                real(*args, **kwargs)
            died.append((name, after))
            raise SimulatedCrash(f"{name}, {'after' if after else 'before'}")

        with monkeypatch.context() as patched:
            patched.setattr(target, name, dying)
            with pytest.raises(SimulatedCrash):
                counting.declare("sums", "counts", policy="evolve").run()

    for target, name in [
        (upgrade_module, "empty_state"),
        (upgrade_module, "place"),
        (CheckpointStore, "begin_timeline"),
    ]:
        for after in (False, True):
            dies(target, name, after=after)
            # the pipeline as it was still fits
            assert counting.declare("counts").check().fit is Compatibility.SAME
    dies(upgrade_module, "save_with_retry", after=False)
    assert counting.declare("counts").check().fit is Compatibility.SAME
    dies(upgrade_module, "save_with_retry", after=True)
    assert counting.declare("counts").check().fit is Compatibility.REFUSED
    shutil.rmtree(counting.root / "store" / "working")
    assert counting.declare("sums", "counts", policy="evolve").check().fit is Compatibility.SAME
    counting.declare("sums", "counts").run()
    assert counting.newest("counts") == expected
    assert counting.newest("sums") == sums(rows_of(counting.world.folder, BEFORE))
    assert len(died) == 8


def test_the_old_pipeline_goes_on_after_an_upgrade_that_died(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.declare("counts").run()
    counting.world.deliver()

    def dying(*_: Any) -> None:
        raise SimulatedCrash("before the decision")

    with monkeypatch.context() as patched:
        patched.setattr(upgrade_module, "save_with_retry", dying)
        with pytest.raises(SimulatedCrash):
            counting.declare("sums", "counts", policy="evolve").run()
    counting.declare("counts").run()
    assert counting.newest("counts") == counts(rows_of(counting.world.folder))


def test_a_rollback_leads_back_to_before_the_upgrade(counting: Counting) -> None:
    counting.declare("counts").run()
    with open_store(counting.root / "store") as store:
        before = store.list_ids()[-1]
    counting.world.deliver()
    counting.declare("sums", "counts", policy="evolve").run()
    counting.declare("counts", policy="evolve").rollback(before)
    counting.declare("counts").run()
    assert counting.newest("counts") == counts(rows_of(counting.world.folder))
    per_epoch = Counter((row["epoch"], row["k"]) for row in values_in(counting.root / "counts"))
    assert set(per_epoch.values()) == {1}


def test_an_upgrade_that_was_rolled_back_is_made_again(counting: Counting) -> None:
    counting.declare("counts").run()
    with open_store(counting.root / "store") as store:
        before = store.list_ids()[-1]
    counting.world.deliver(BEFORE + 1)
    counting.declare("sums", "counts", policy="evolve").run()
    counting.declare("sums", "counts", policy="evolve").rollback(before)
    counting.world.deliver()
    counting.declare("sums", "counts", policy="evolve").run()
    folder = counting.world.folder
    assert counting.newest("counts") == counts(rows_of(folder))
    assert counting.newest("sums") == sums(rows_of(folder, BEFORE))
    for output in ("counts", "sums"):
        shows = Counter((row["epoch"], row["k"]) for row in values_in(counting.root / output))
        assert set(shows.values()) == {1}


def test_a_pipeline_is_changed_right_after_a_rollback(counting: Counting) -> None:
    counting.declare("counts").run()
    with open_store(counting.root / "store") as store:
        earlier = store.list_ids()[0]
    counting.declare("counts").rollback(earlier)
    run = counting.declare("sums", "counts", policy="evolve").run()
    assert f"sink counts: {BEFORE - 1} epochs taken back and kept aside" in run.report.notes
    folder = counting.world.folder
    assert counting.newest("counts") == counts(rows_of(folder))
    assert counting.newest("sums") == sums(rows_of(folder, 1))
    shows = Counter((row["epoch"], row["k"]) for row in values_in(counting.root / "counts"))
    assert set(shows.values()) == {1}


def test_a_sink_that_does_not_show_its_epoch_yet_cannot_be_removed(counting: Counting) -> None:
    hook = crash_at(Step.COMMIT, "before", BEFORE)
    with pytest.raises(SimulatedCrash):
        counting.declare("counts", "rows", on_step=hook).run()
    with pytest.raises(RefusedError, match=r"sink rows: refused \(it does not show epoch 3 yet"):
        counting.declare("counts", policy="evolve").run()
    counting.declare("counts", "rows").run()
    counting.declare("counts", policy="evolve").run()


# what would exchange or mix state in silence


def test_equal_operators_of_an_output_that_change_places_keep_their_own_state(
    counting: Counting,
) -> None:
    world = counting.world

    def split(first: int, second: int, **options: Any) -> Pipeline:
        p = world.pipeline(**options)
        source = p.source("orders", orders(world.spark, world.folder))
        one, other = (
            source.where(f"k = {k}").select("id").dropDuplicates(["id"]) for k in (first, second)
        )
        p.sink("ids", one.union(other), FileSink(world.root / "ids"))
        return p

    split(1, 2).run()
    world.deliver()
    with pytest.raises(RefusedError, match=r"deduplication reads orders where \(k = 1\)"):
        split(2, 1).run()
    split(2, 1, policy="evolve").run()
    ids = [row["id"] for row in rows_of(world.folder) if row["k"] in (1, 2)]
    assert rows_in(world.root / "ids") == Counter(json.dumps({"id": i}) for i in set(ids))


@pytest.mark.parametrize("policy", ["strict", "evolve"])
def test_a_filter_that_gives_a_join_its_keys_is_a_part_of_the_join(
    spark: SparkSession, input_folder: Path, tmp_path: Path, policy: Any
) -> None:
    from pyspark.sql import functions as f

    world = World(spark, input_folder, tmp_path, "inner-join")

    def joined(key: str, policy: Any) -> Pipeline:
        p = world.pipeline(policy=policy)
        ordered = p.source("orders", orders(spark, world.folder))
        paid = p.source("payments", payments(spark, world.folder))
        both = ordered.join(paid, f.expr("paid <= v")).where(f"{key} = order")
        p.sink("main", both.select("id", "order"), FileSink(tmp_path / "main"))
        return p

    joined("id", policy).run()
    with pytest.raises(RefusedError, match=r"filter \(id = order\) → \(k = order\)"):
        joined("k", policy).run()


@pytest.mark.parametrize("policy", ["strict", "evolve"])
@pytest.mark.parametrize("way", ["repartition", "explode", "groups", "table"])
def test_a_join_whose_keys_come_from_anywhere_above_it_goes_on_with_the_same_keys_only(
    spark: SparkSession, input_folder: Path, tmp_path: Path, policy: Any, way: str
) -> None:
    from pyspark.sql import functions as f

    world = World(spark, input_folder, tmp_path, "inner-join")
    table = spark.range(9).selectExpr("int(id) AS n")

    def joined(key: str, policy: Any) -> Pipeline:
        p = world.pipeline(policy=policy)
        ordered = p.source("orders", orders(spark, world.folder)).withWatermark("t", "9 seconds")
        paid = p.source("payments", payments(spark, world.folder)).withWatermark("pt", "9 seconds")
        both = ordered.join(paid, f.expr("id = order AND pt BETWEEN t AND t + INTERVAL 1 MINUTE"))
        if way == "repartition":
            both = both.repartition(3).where(f"{key} = paid")
        elif way == "explode":
            both = both.withColumn("n", f.explode(f.array("k", "v"))).where(f"{key} = paid")
        elif way == "groups":
            counted = both.groupBy(f.window("t", "20 seconds"), "k", "v", "paid", "id", "order")
            both = counted.count().where(f"{key} = paid")
        else:  # two columns that equal a third one are equal
            both = both.join(table, f.expr(f"{key} = n AND paid = n"))
        p.sink("main", both.select("id", "order", "k", "v"), FileSink(tmp_path / "main"))
        return p

    joined("k", policy).run()
    joined("k", policy).run()
    with pytest.raises(RefusedError, match=r"stream-stream join planned inner by .*k = "):
        joined("v", policy).run()


@pytest.mark.parametrize("policy", ["strict", "evolve"])
def test_the_two_sides_of_a_stream_that_is_joined_with_itself_keep_their_own_state(
    spark: SparkSession, input_folder: Path, tmp_path: Path, policy: Any
) -> None:
    from pyspark.sql import functions as f

    world = World(spark, input_folder, tmp_path, "inner-join")

    def paired(first: int, second: int, policy: Any) -> Pipeline:
        p = world.pipeline(policy=policy)
        ordered = p.source("orders", orders(spark, world.folder)).withWatermark("t", "9 seconds")
        one = ordered.where(f"k = {first}").selectExpr("id", "v AS v1", "t AS t1")
        other = ordered.where(f"k = {second}").selectExpr("id AS pair", "v AS v2", "t AS t2")
        both = one.join(other, f.expr("v1 = v2 AND t1 = t2")).select("id", "pair")
        p.sink("main", both, FileSink(tmp_path / "main"))
        return p

    paired(1, 2, policy).run()
    with pytest.raises(RefusedError, match=r"sides filter \(k = 1\).* → filter \(k = 2\)"):
        paired(2, 1, policy).run()
    paired(1, 3, policy).run()  # filters may change


@pytest.mark.parametrize("policy", ["strict", "evolve"])
def test_outputs_that_exchange_their_sources_are_refused(
    spark: SparkSession, input_folder: Path, tmp_path: Path, policy: Any
) -> None:
    world = World(spark, input_folder, tmp_path, "windowed")

    def once(first: str, second: str) -> Pipeline:
        p = world.pipeline(policy=policy)
        columns = "order int, id int"
        sources = {
            name: p.source(name, read_json(spark, world.folder / name, columns))
            for name in ("orders", "payments")
        }
        for sink, name in (("first", first), ("second", second)):
            p.sink(sink, sources[name].dropDuplicates(["id"]), FileSink(tmp_path / sink))
        return p

    once("orders", "payments").run()
    with pytest.raises(RefusedError, match="reads orders → payments"):
        once("payments", "orders").run()


def test_a_source_that_is_to_be_joined_with_itself_is_refused_before_anything_is_decided(
    counting: Counting,
) -> None:
    from pyspark.sql import functions as f

    world = counting.world

    def once(*, joined: bool, **options: Any) -> Pipeline:
        p = world.pipeline(**options)
        source = p.source("orders", orders(world.spark, world.folder))
        p.sink("ids", source.dropDuplicates(["id"]), FileSink(world.root / "ids"))
        if joined:
            both = source.alias("a").join(source.alias("b"), f.expr("a.id = b.id"))
            p.sink("twice", both.select("a.id"), FileSink(world.root / "twice"))
        return p

    once(joined=False).run()
    with open_store(world.root / "store") as store:
        owner = store.owner()
    with pytest.raises(RefusedError, match=r"source orders: refused \(it is joined with itself"):
        once(joined=True, policy="evolve").run()
    with open_store(world.root / "store") as store:
        assert store.owner() == owner
    world.deliver()
    once(joined=False).run()
    assert set(rows_in(world.root / "ids").values()) == {1}


def test_a_column_of_which_no_empty_stream_can_be_made_is_refused_and_the_old_pipeline_goes_on(
    counting: Counting,
) -> None:
    world = counting.world
    world.spark.sql("SELECT 1 AS k, map(1, 2) AS m").write.parquet(str(world.root / "maps"))

    def maps(*, new: bool, **options: Any) -> Pipeline:
        p = world.pipeline(**options)
        reader = world.spark.readStream.schema("k int, m map<int, int>")
        source = p.source("maps", reader.parquet(str(world.root / "maps")))
        p.sink("keys", source.select("k"), FileSink(world.root / "keys"))
        if new:
            p.sink("once", source.select("k").dropDuplicates(["k"]), FileSink(world.root / "once"))
        return p

    maps(new=False).run()
    with open_store(world.root / "store") as store:
        owner = store.owner()
    with pytest.raises(RefusedError, match="a type of column for which no empty state"):
        maps(new=True, policy="evolve").run()
    with open_store(world.root / "store") as store:
        assert store.owner() == owner, "it was claimed"
    maps(new=False).run()
