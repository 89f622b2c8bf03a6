"""Operators of one output that compute the same of different rows never exchange their states."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline
from seamark.errors import RefusedError
from seamark.pipeline.declaration.settings import Policy
from seamark.sinks import FileSink
from seamark.spark.plans import computation
from tests.pipeline.support.workloads import values_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm

Made = Callable[["DataFrame", str], "DataFrame"]
ROW = {"g": "x", "A": [1], "B": [1, 2]}
IDS = {"A": [1], "B": [2, 3]}


def in_memory(df: DataFrame, which: str) -> DataFrame:
    ids = df.sparkSession.createDataFrame([(n,) for n in IDS[which]], "id int")
    return df.join(ids, "id", "left_semi")


def exploded(df: DataFrame, which: str) -> DataFrame:
    return df.selectExpr("g", f"explode({which})")


class Split:
    """A store and one output with two counts, A and B, that are united in a given order."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark = spark
        self._root = root
        self._files = 0
        (root / "in").mkdir()
        for which, ids in IDS.items():
            spark.createDataFrame([(n,) for n in ids], "id int").write.parquet(f"{root}/{which}")
        self.deliver()

    def deliver(self) -> None:
        self._files += 1
        written = self._root / f"{self._files}.tmp"
        written.write_text("\n".join(json.dumps({"id": n, **ROW}) for n in (1, 2, 3)))
        written.rename(self._root / "in" / f"{self._files}.json")

    def table(self, df: DataFrame, which: str) -> DataFrame:
        return df.join(self._spark.read.parquet(f"{self._root}/{which}"), "id")

    def declare(
        self, made: Made, order: str, policy: Policy = "strict", *, named: bool
    ) -> Pipeline:
        from pyspark.sql import functions as f

        p = Pipeline("split", self._root / "store", output_mode="update", policy=policy)
        schema = "id int, g string, A array<int>, B array<int>"
        reader = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        source = p.source("in", reader.json(str(self._root / "in")))
        one, other = (
            made(source, which).groupBy("g").count().withColumn("w", f.lit(which if named else ""))
            for which in order
        )
        p.sink("counts", one.unionByName(other), FileSink(self._root / "counts"))
        return p

    @property
    def newest(self) -> dict[str, int]:
        rows = values_in(self._root / "counts")
        last = max(row["epoch"] for row in rows)
        return {row["w"]: row["count"] for row in rows if row["epoch"] == last}


@pytest.fixture
def split(spark: SparkSession, tmp_path: Path) -> Split:
    return Split(spark, tmp_path)


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", ["generator", "table in memory", "table"])
def test_equal_operators_that_change_places_are_refused_or_keep_their_own_state(
    split: Split, case: str
) -> None:
    made = {"table in memory": in_memory, "table": split.table, "generator": exploded}[case]
    split.declare(made, "AB", named=True).run(available_now=True)
    first = split.newest
    assert first["B"] == 2 * first["A"]
    split.deliver()
    with pytest.raises(RefusedError, match=r"output 'counts': aggregation (in|out)put .* → "):
        split.declare(made, "BA", named=True).run(available_now=True)
    split.declare(made, "BA", "evolve", named=True).run(available_now=True)
    assert split.newest == {which: 2 * count for which, count in first.items()}
    split.deliver()
    report = split.declare(made, "BA", named=True).run(available_now=True).report
    assert split.newest == {which: 3 * count for which, count in first.items()}
    assert not any("output 'counts'" in note for note in report.notes)


def test_operators_that_only_their_order_distinguishes_are_refused_from_the_first_start_on(
    split: Split, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for policy in ("strict", "evolve"):
        with pytest.raises(RefusedError, match="nothing but their order distinguishes 2") as caught:
            split.declare(in_memory, "AB", policy, named=False).run(available_now=True)
        assert "p.table('name', df)" in str(caught.value)
    assert not (tmp_path / "counts").exists()
    with caplog.at_level(logging.WARNING):
        split.declare(in_memory, "AB", "warn", named=False).run(available_now=True)
    assert "nothing but their order distinguishes 2" in caplog.text


def test_a_checkpoint_of_before_goes_on_and_says_once_what_it_does_not_know(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: Any) -> None:
        """Earlier versions described no more."""

    with monkeypatch.context() as patched:
        patched.setattr(computation, "tell_equal_apart", nothing)
        split.declare(exploded, "AB", named=True).run(available_now=True)
    notes = []
    for _ in range(2):
        split.deliver()
        run = split.declare(exploded, "AB", named=True).run(available_now=True)
        notes.append([note for note in run.report.notes if "does not say" in note])
    assert [len(found) for found in notes] == [1, 0]
    assert split.newest == {"A": 9, "B": 18}
