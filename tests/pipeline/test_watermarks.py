"""An output has the watermark that it has alone, or the pipeline is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from seamark import Pipeline
from seamark.errors import RefusedError
from seamark.pipeline.declaration.compile import Output, compile_outputs
from seamark.pipeline.declaration.watermarks import (
    delay_warnings,
    require_same_watermark,
    which_counts,
)
from seamark.sinks import FileSink, MemorySink
from seamark.spark.plans.plan import PlanSources, WatermarkInfo
from seamark.spark.session import WATERMARK_POLICY
from tests.pipeline.support.workloads import (
    clock,
    orders,
    payments,
    put_file,
    read_json,
    rows_in,
    settings_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Outputs = Callable[["DataFrame"], Mapping[str, "DataFrame"]]


def marked(column: str, delay_ms: int, rows: int) -> WatermarkInfo:
    return WatermarkInfo(f"{column}{delay_ms}{rows}", column, delay_ms, ("in",), frozenset({rows}))


# pure


def test_outputs_with_the_same_watermarks_or_with_none_are_accepted() -> None:
    one, again, other = marked("t", 1000, 0), marked("u", 1000, 0), marked("pt", 5000, 1)
    require_same_watermark({"a": [one], "b": [again], "c": []})
    require_same_watermark({"a": [one, other], "b": [other, again]})


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (marked("t", 1000, 1), "b: t of in, 1 s late at most, over other rows"),
        (marked("t", 60_000, 0), "b: t of in, 60 s late at most"),
        (marked("u", 1000, 1), "b: u of in, 1 s late at most"),
    ],
    ids=["rows", "delay", "column"],
)
def test_an_output_with_another_watermark_is_refused_and_told_what_to_do(
    other: WatermarkInfo, text: str
) -> None:
    with pytest.raises(RefusedError, match="different watermarks") as refused:
        require_same_watermark({"a": [marked("t", 1000, 0)], "b": [other], "c": []})
    assert f"a: t of in, 1 s late at most; {text}. Spark" in str(refused.value)
    assert "Call withWatermark once, on the source and before any filter" in str(refused.value)


def test_an_output_beside_a_join_that_has_a_second_watermark_is_refused() -> None:
    orders, paid = marked("t", 1000, 0), marked("pt", 5000, 1)
    with pytest.raises(RefusedError) as refused:
        require_same_watermark({"bars": [orders], "both": [orders, paid], "sums": [orders]})
    told = "bars, sums: t of in, 1 s late at most; both: t of in, 1 s late at most and pt of in, 5"
    assert told in str(refused.value)


def test_which_of_several_watermarks_counts_is_said_as_the_session_has_it() -> None:
    several = [marked("t", 1000, 0), marked("pt", 5000, 1)]
    assert "the slowest of them counts" in delay_warnings(several, "min")[0]
    assert "the fastest of them counts" in delay_warnings(several, "max")[0]
    assert "a store that has checkpoints keeps the policy" in which_counts("max")
    assert delay_warnings(several[:1], "min") == []


# what Spark's optimizer makes of it


def accepts(source: DataFrame, outputs: Outputs) -> bool:
    sources = PlanSources()
    sources.add("in", source)
    made = [Output(name, df, MemorySink()) for name, df in outputs(source).items()]
    try:
        compile_outputs(made, sources, output_mode="append")
    except RefusedError as error:
        assert "different watermarks" in str(error)
        return False
    return True


def counted(df: DataFrame) -> DataFrame:
    grouped = df.groupBy(f.window("t", "10 seconds").alias("w"), "k").agg(f.count("*").alias("n"))
    return grouped.selectExpr("w.start AS start", "k", "n")


def late(df: DataFrame, delay: str = "1 second") -> DataFrame:
    return df.withWatermark("t", delay)


@pytest.mark.warm
def test_only_watermarks_over_the_same_rows_are_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = read_json(spark, tmp_path, "t timestamp, k string, u timestamp")
    x, y, either = "k = 'x'", "k = 'y'", "k IN ('x', 'y')"

    def once(src: DataFrame) -> Mapping[str, DataFrame]:
        one = late(src)
        return {"x": counted(one.where(x)), "y": counted(one.where(y)), "raw": src.where(x)}

    same: Mapping[str, Outputs] = {
        "one call, filters above it": once,
        "two calls on one source": lambda s: {"a": counted(late(s)), "b": late(s)},
        "other columns": lambda s: {
            "a": counted(late(s)),
            "b": counted(late(s.selectExpr("t", "upper(k) AS k"))),
        },
        "one filter, twice": lambda s: {
            "a": counted(late(s.where(either))),
            "b": counted(late(s.select("t", "k").where(either))),
        },
    }
    different: Mapping[str, Outputs] = {
        "filters below": lambda s: {
            "a": counted(late(s.where(x))),
            "b": counted(late(s.where(y))),
        },
        # Spark pushes these filters below
        "two calls, filters above": lambda s: {
            "a": counted(late(s).where(x)),
            "b": counted(late(s).where(y)),
        },
        "two calls, a filter above the state": lambda s: {
            "a": counted(late(s)),
            "b": counted(late(s)).where(x),
        },
        "delays": lambda s: {"a": counted(late(s)), "b": counted(late(s, "1 minute"))},
        "columns": lambda s: {"a": counted(late(s)), "b": s.withWatermark("u", "1 second")},
        "a filter without state": lambda s: {"a": counted(late(s)), "b": late(s.where(x))},
    }
    assert {how: accepts(source, outputs) for how, outputs in same.items()} == dict.fromkeys(
        same, True
    )
    assert {how: accepts(source, outputs) for how, outputs in different.items()} == dict.fromkeys(
        different, False
    )


@pytest.mark.warm
def test_outputs_of_a_join_have_its_two_watermarks_and_none_has_one_of_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("orders", "payments"):
        (tmp_path / name).mkdir()
    near = f.expr("id = order AND pt >= t - INTERVAL 1 MINUTE AND pt <= t + INTERVAL 1 MINUTE")
    p = Pipeline("joined", tmp_path / "store")
    ordered = late(p.source("orders", orders(spark, tmp_path)))
    paid = p.source("payments", payments(spark, tmp_path)).withWatermark("pt", "1 minute")
    p.sink("inner", ordered.join(paid, near), FileSink(tmp_path / "inner"))
    p.sink("outer", ordered.join(paid, near, "leftOuter"), FileSink(tmp_path / "outer"))
    with settings_of(spark, {WATERMARK_POLICY: "max"}):
        assert "  the fastest of them counts" in p.explain()
    assert "  the slowest of them counts" in p.explain()
    p.sink("bars", counted(ordered), FileSink(tmp_path / "bars"))
    with pytest.raises(RefusedError, match="different watermarks"):
        p.explain()


# beside another output and alone


def write_times(folder: Path, *files: Mapping[int, str]) -> Path:
    """Files of rows: a second of the day, and a key."""
    for number, rows in enumerate(files):
        put_file(folder, number, [{"t": clock(at), "k": k} for at, k in rows.items()])
    return folder


def shown(
    spark: SparkSession, folder: Path, root: Path, outputs: Outputs
) -> dict[str, Counter[str]]:
    """What each output shows when they run as one pipeline."""
    p = Pipeline("marks", root / "store", progress=None)
    source = p.source("in", read_json(spark, folder, "t timestamp, k string"))
    made = outputs(source)
    for name, df in made.items():
        p.sink(name, df, FileSink(root / name))
    p.run()
    return {name: rows_in(root / name) for name in made}


@pytest.mark.warm
@pytest.mark.slow
def test_an_output_is_not_held_back_by_one_whose_rows_never_come(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = write_times(tmp_path / "in", {1: "y", 2: "y"}, {300: "y"}, {5000: "y"})
    x, y = "k = 'x'", "k = 'y'"
    alone = shown(spark, folder, tmp_path / "alone", lambda s: {"y": counted(late(s.where(y)))})
    assert alone["y"].total() == 2

    def apart(source: DataFrame) -> Mapping[str, DataFrame]:
        return {"x": counted(late(source.where(x))), "y": counted(late(source.where(y)))}

    with pytest.raises(RefusedError, match="different watermarks"):
        shown(spark, folder, tmp_path / "both", apart)
    assert not (tmp_path / "both" / "store").exists(), "refused before the store is claimed"

    def once(source: DataFrame) -> Mapping[str, DataFrame]:
        marked_once = late(source)
        return {"x": counted(marked_once.where(x)), "y": counted(marked_once.where(y))}

    both = shown(spark, folder, tmp_path / "both", once)
    assert both == {"x": Counter(), **alone}, "the hint of the refusal helps"


@pytest.mark.slow
@pytest.mark.warm
def test_a_patient_output_loses_no_late_row_to_an_impatient_one_under_the_policy_max(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = write_times(tmp_path / "in", {1: "x"}, {300: "x"}, {5: "x"}, {5000: "x"})

    def patient(source: DataFrame) -> Mapping[str, DataFrame]:
        return {"a": counted(late(source, "10 minutes"))}

    def beside(delay: str) -> Outputs:
        return lambda source: {**patient(source), "b": counted(late(source, delay)).drop("k")}

    with settings_of(spark, {WATERMARK_POLICY: "max"}):
        alone = shown(spark, folder, tmp_path / "alone", patient)
        assert any('"n": 2' in row for row in alone["a"]), "the late row counts"
        with pytest.raises(RefusedError, match="different watermarks"):
            shown(spark, folder, tmp_path / "both", beside("1 second"))
        assert not (tmp_path / "both" / "store").exists(), "refused before the store is claimed"
        both = shown(spark, folder, tmp_path / "both", beside("10 minutes"))
    assert both["a"] == alone["a"]
