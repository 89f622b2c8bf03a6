"""A source that is joined with itself is read twice, and each reading keeps its place.

Spark gives every reading a folder of its own for what it has planned. The folders are numbered in
the order of the plan, so the numbers of other sources move.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import seamark
from seamark.sinks import FileSink, ForeachBatchSink
from seamark.testing.crashes import SimulatedCrash, crash_at
from tests.pipeline.support.workloads import values_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm

ORDERS = 5
"""Files, each read by an epoch of its own; there are fewer of payments."""


class Shop:
    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark = spark
        self.root = root
        for name, files in (("orders", ORDERS), ("payments", 2)):
            (root / name).mkdir()
            for number in range(files):
                line = json.dumps({"id": number, "v": number * 10})
                (root / name / f"{number}.json").write_text(line)

    def pipeline(self, *, is_first: bool, function: bool = False, **options: Any) -> Any:
        from pyspark.sql import functions as f

        p = seamark.Pipeline("shop", self.root / "store", progress=None, **options)
        orders = p.source("orders", self._files("orders"))
        pairs = orders.alias("a").join(orders.alias("b"), f.expr("a.id = b.id"))
        outputs = {"pairs": pairs.select("a.id", "b.v")}
        paid = {"paid": p.source("payments", self._files("payments"))}
        for name, df in {**(outputs if is_first else {}), **paid, **outputs}.items():
            p.sink(name, df, FileSink(self.root / name))
        if function:
            called = ForeachBatchSink(lambda df, _: df.count(), idempotent=True)
            p.sink("called", orders, called)
        return p

    def _files(self, name: str) -> DataFrame:
        reader = self._spark.readStream.schema("id long, v long").option("maxFilesPerTrigger", 1)
        return reader.json(str(self.root / name))

    def ids(self, output: str) -> Counter[int]:
        return Counter(row["id"] for row in values_in(self.root / output))


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("function", [False, True])
def test_an_epoch_runs_again_on_what_each_reading_was_planned_for(
    shop: Shop, is_first: bool, function: bool
) -> None:
    with pytest.raises(SimulatedCrash):
        shop.pipeline(
            is_first=is_first, function=function, on_step=crash_at("prepare", "before", 4)
        ).run()
    if function:
        shutil.rmtree(shop.root / "store" / "working")  # the plan is in the store
    shop.pipeline(is_first=is_first, function=function).run()
    assert shop.ids("pairs") == Counter(range(ORDERS))
    assert shop.ids("paid") == Counter(range(2))
