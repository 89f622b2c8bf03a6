"""An aggregation that goes on with other functions: what it kept goes on, what is new begins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, open_store
from seamark.capture.checkpoint_contents import Sizes
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.errors import RefusedError
from seamark.pipeline.declaration.compatibility import Compatibility
from seamark.pipeline.recovery import upgrade as upgrade_module
from seamark.pipeline.recovery import value_rewrite
from seamark.sinks import FileSink
from seamark.testing.crashes import SimulatedCrash
from tests.pipeline.support.upgrades import BEFORE, World, pairs, rows_of
from tests.pipeline.support.workloads import PROVIDERS, orders, provider_of, rows_in, values_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Rows = list[dict[str, Any]]
FUNCTIONS: dict[str, tuple[str, Callable[[Rows], Any]]] = {
    "n": ("count(1)", len),
    "total": ("sum(v)", lambda rows: sum(row["v"] for row in rows)),
    "mean": (
        "avg(v)",
        lambda rows: sum(row["v"] for row in rows) / len(rows),
    ),
    "top": ("max(v)", lambda rows: max(row["v"] for row in rows)),
    # kept as texts, next to which nothing has a fixed place
    "last": ("max(concat('order ', id))", lambda rows: max(f"order {row['id']}" for row in rows)),
    "best": ("max_by(id, v * 1000 + id)", lambda rows: max(rows, key=_rank)["id"]),
    "exact": ("sum(cast(v as decimal(10, 2)))", lambda rows: sum(row["v"] for row in rows)),
    "all": ("sort_array(collect_set(v))", lambda rows: sorted({row["v"] for row in rows})),
}


def _rank(row: dict[str, Any]) -> int:
    return int(row["v"]) * 1000 + int(row["id"])


class Totals:
    """Pipelines with one aggregation, of which each computes something else."""

    def __init__(self, spark: SparkSession, files: Path, root: Path) -> None:
        self.world = World(spark, files, root, "windowed")
        self.root = root

    def declare(self, *columns: str, moved: bool = False, **options: Any) -> Pipeline:
        from pyspark.sql import functions as f

        p = self.world.pipeline(output_mode="update", **options)
        source = p.source("orders", orders(self.world.spark, self.world.folder))
        if moved:
            p.sink("pairs", pairs(source), FileSink(self.root / "pairs"))
        chosen = [f.expr(FUNCTIONS[name][0]).alias(name) for name in columns]
        p.sink("totals", source.groupBy("k").agg(*chosen), FileSink(self.root / "totals"))
        return p

    def evolve(self, before: str, after: str, **options: Any) -> Pipeline:
        """The pipeline with the columns ``after``, of which the new ones begin empty."""
        had, has = before.split(), after.split()
        (operator,) = self.declare(*has)._declared().identity.structure["computes"]["totals"]
        texts = dict(zip(has, operator["functions"], strict=True))
        begin_empty = [f"totals/{text}" for name, text in texts.items() if name not in had]
        return self.declare(*has, policy="evolve", begin_empty=begin_empty, **options)

    def newest(self) -> dict[int, dict[str, Any]]:
        """The newest row of each key; files of before and after have different columns."""
        from pyarrow import parquet

        shows: dict[int, dict[str, Any]] = {}
        for folder in sorted((self.root / "totals").glob("epoch=*")):
            for path in folder.glob("part-*"):
                rows = parquet.ParquetFile(path).read().to_pylist()
                shows |= {row["k"]: row for row in rows}
        return shows

    def expected(self, column: str, since: int = 0) -> dict[int, Any]:
        """What a column shows when it begins with the file of that number."""
        by_key: dict[int, Rows] = defaultdict(list)
        for row in rows_of(self.world.folder, since, 99):
            by_key[row["k"]].append(row)
        return {key: FUNCTIONS[column][1](rows) for key, rows in by_key.items()}


@pytest.fixture
def totals(spark: SparkSession, input_folder: Path, tmp_path: Path) -> Totals:
    return Totals(spark, input_folder, tmp_path)


CHANGES: list[tuple[str, str]] = [
    ("n total", "n total top mean"),
    ("n mean total", "total top n"),
    ("last n best", "exact best last"),
    ("all n", "top n all"),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("before", "after"), CHANGES)
@pytest.mark.parametrize("moved", [False, True])
def test_functions_that_stay_go_on_and_new_ones_begin_empty(
    totals: Totals, provider: str, before: str, after: str, moved: bool
) -> None:
    sizes: dict[str, Any] = {"sizes": Sizes(inline_operator=0)}
    kept = [name for name in after.split() if name in before.split()]
    with provider_of(totals.world.spark, provider):
        totals.declare(*before.split(), **sizes).run()
        totals.world.deliver()
        totals.evolve(before, after, moved=moved, **sizes).run()
        totals.declare(*after.split(), moved=moved, **sizes).run()
    shows = totals.newest()
    for name in after.split():
        since = 0 if name in kept else BEFORE
        expected = totals.expected(name, since)
        assert {key: shows[key][name] for key in expected} == expected, name
    with open_store(totals.root / "store") as store:
        assert all(store.validate_checkpoint(i).valid for i in store.list_ids())


def test_a_function_of_which_nothing_was_said_is_refused_before_the_store_is_claimed(
    totals: Totals,
) -> None:
    totals.declare("n").run()
    with open_store(totals.root / "store") as store:
        owner = store.owner()
    with pytest.raises(RefusedError, match=r"nothing is known of max\(") as refused:
        totals.declare("n", "top", policy="evolve").run()
    assert "begins it empty, as of the next epoch" in str(refused.value)
    # of what it keeps for a group without rows, Spark says nothing
    with pytest.raises(RefusedError, match="keeps an object of its own"):
        totals.evolve("n", "n all").run()
    with open_store(totals.root / "store") as store:
        assert store.owner() == owner
    totals.world.deliver()
    totals.declare("n").run()
    assert {key: row["n"] for key, row in totals.newest().items()} == totals.expected("n")


def test_a_rewrite_that_dies_leaves_the_old_functions_and_a_rollback_leads_back(
    totals: Totals, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals.declare("n", "total").run()
    with open_store(totals.root / "store") as store:
        before = store.list_ids()[-1]
    totals.world.deliver(BEFORE + 1)
    real = value_rewrite.rewritten_state
    for after in (False, True):

        def dying(*given: Any, after: bool = after) -> Any:
            if after:
                real(*given)
            raise SimulatedCrash("while rows are written again")

        with monkeypatch.context() as patched:
            patched.setattr(upgrade_module, "rewritten_state", dying)
            with pytest.raises(SimulatedCrash):
                totals.evolve("n total", "n top").run()
        assert totals.declare("n", "total").check().fit is Compatibility.SAME
    totals.evolve("n total", "n top").run()
    totals.declare("n", "total").rollback(before)
    totals.world.deliver()
    totals.declare("n", "total").run()
    for name in ("n", "total"):
        assert {key: row[name] for key, row in totals.newest().items()} == totals.expected(name)


def test_what_a_killed_upgrade_has_left_is_removed_by_the_next_start(
    totals: Totals, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals.declare("n", "total").run()
    working = totals.root / "store" / "working"

    def dying(*_: Any) -> None:
        raise SimulatedCrash("while rows are written again")

    with monkeypatch.context() as patched:
        patched.setattr(value_rewrite, "rewrite_values", dying)
        patched.setattr(LocalCopy, "destroy", lambda _: None)  # a process that is killed
        with pytest.raises(SimulatedCrash):
            totals.evolve("n total", "n top").run()
    # the state with which operators begin, made before the claim, and the one to be rewritten
    assert len(list(working.glob("upgrade-*"))) == 2
    totals.declare("n", "total").run()
    assert list(working.glob("upgrade-*")) == []


def test_windows_that_are_open_get_the_new_function_for_the_rows_to_come(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    def bars(world: World, *, top: bool, **options: Any) -> Pipeline:
        p = world.pipeline(**options)
        source = p.source("orders", orders(spark, world.folder)).withWatermark("t", "10 seconds")
        functions = [f.count("*").alias("n"), *([f.max("v").alias("top")] if top else [])]
        grouped = source.groupBy(f.window("t", "20 seconds"), "k").agg(*functions)
        p.sink("bars", grouped.select("window.start", "k", "n"), FileSink(world.root / "bars"))
        if top:
            tops = grouped.select("window.start", "k", "top")
            p.sink("tops", tops, FileSink(world.root / "tops"))
        return p

    changed, unchanged = (
        World(spark, input_folder, tmp_path / name, "windowed") for name in ("one", "other")
    )
    bars(changed, top=False).run()
    changed.deliver()
    options: dict[str, Any] = {"policy": "evolve", "begin_empty": ["bars/max(v)"]}
    bars(changed, top=True, **options).run()
    bars(unchanged, top=False).run()
    unchanged.deliver()
    bars(unchanged, top=False).run()
    assert rows_in(changed.root / "bars") == rows_in(unchanged.root / "bars")
    later = [row for row in rows_of(changed.folder, BEFORE) if row["k"] == 1]
    tops = [row for row in values_in(changed.root / "tops") if row["k"] == 1]
    # of the rows that came before, it knows nothing
    assert tops
    assert {row["top"] for row in tops} - {None} <= {row["v"] for row in later}


@pytest.mark.parametrize("policy", ["strict", "evolve"])
def test_what_is_selected_in_another_order_goes_on_from_its_own_state(
    totals: Totals, policy: str
) -> None:
    def declare(*selected: str, **options: Any) -> Pipeline:
        from pyspark.sql import functions as f

        p = totals.world.pipeline(output_mode="update", **options)
        source = p.source("orders", orders(totals.world.spark, totals.world.folder))
        both = source.groupBy("k").agg(f.sum("v").alias("x"), f.sum("id").alias("y"))
        p.sink("totals", both.selectExpr("k", *selected), FileSink(totals.root / "totals"))
        return p

    declare("x - y AS z").run()
    totals.world.deliver()
    changed = declare("- y + x AS z", policy=policy)
    if policy == "strict":
        with pytest.raises(RefusedError, match=r"functions \(sum\(v\), sum\(id\)\) → "):
            changed.run()
        return
    changed.run()
    by_key: dict[int, int] = defaultdict(int)
    for row in rows_of(totals.world.folder, 0, 99):
        by_key[row["k"]] += row["v"] - row["id"]
    assert {key: row["z"] for key, row in totals.newest().items()} == by_key
