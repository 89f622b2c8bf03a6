"""Starting over is decided only when every sink can take back what it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import seamark
from seamark import open_store
from seamark.errors import RefusedError
from seamark.sinks import FileSink, ForeachBatchSink
from tests.pipeline.support.workloads import values_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.warm


class OneWay(FileSink):
    """As a topic of Kafka: what it has shown stays."""

    def require_unpublish_after(self, epoch: int) -> None:
        self.unpublish_after(epoch)

    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        raise RefusedError("nothing that was shown can be taken back", where=self.path)


class Shop:
    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark = spark
        self.root = root
        (root / "in").mkdir()
        self.add(0)

    def add(self, number: int) -> None:
        (self.root / "in" / f"{number}.json").write_text(json.dumps({"v": number}))

    def pipeline(self, target: str, *more: str, **options: Any) -> seamark.Pipeline:
        p = seamark.Pipeline("shop", self.root / "store", progress=None, **options)
        rows = p.source("in", self._spark.readStream.schema("v long").json(str(self.root / "in")))
        p.sink("rows", rows.selectExpr("v", *more), OneWay(self.root / target))
        return p

    def values(self, target: str) -> list[int]:
        return sorted(row["v"] for row in values_in(self.root / target))


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path)


def test_a_sink_that_takes_nothing_back_refuses_a_reset_before_it_is_decided(shop: Shop) -> None:
    shop.pipeline("rows").run()
    with open_store(shop.root / "store") as store:
        before = store.load_latest()
    for _ in range(2):
        with pytest.raises(RefusedError, match="cannot start over, because of sink 'rows'"):
            shop.pipeline("rows", "v + 1 AS w", policy="auto_reset").run()
    with open_store(shop.root / "store") as store:
        assert store.load_latest() == before
    shop.add(1)
    shop.pipeline("rows").run()
    assert shop.values("rows") == [0, 1]


def test_such_a_sink_starts_over_at_a_new_target(shop: Shop) -> None:
    shop.pipeline("rows").run()
    finished = shop.pipeline("elsewhere", "v + 1 AS w", policy="auto_reset").run()
    assert finished.report.fresh_start
    assert shop.values("elsewhere") == [0]
    shop.add(1)
    shop.pipeline("elsewhere", "v + 1 AS w").run()
    assert shop.values("elsewhere") == [0, 1]


def test_a_function_that_drops_rows_by_their_keys_starts_over_under_another_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls: list[list[int]] = []

    def note(rows: Any, _: Any) -> None:
        calls.append(sorted(row.v for row in rows.collect()))

    def declared(*more: str, **function: Any) -> seamark.Pipeline:
        p = seamark.Pipeline("shop", tmp_path / "store", progress=None, policy="auto_reset")
        rows = p.source("in", spark.readStream.schema("v long").json(str(tmp_path / "in")))
        p.sink("rows", rows.selectExpr("v", *more), ForeachBatchSink(note, **function))
        return p

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text(json.dumps({"v": 0}))
    declared(idempotent=True).run()
    with pytest.raises(RefusedError, match="a function cannot take back what it has written"):
        declared("v + 1 AS w", idempotent=True).run()
    assert calls == [[0]]
    declared("v + 1 AS w", idempotent=True, name="elsewhere").run()
    assert calls == [[0], [0]]
    declared("v + 2 AS x", name="elsewhere").run()  # it promises nothing
    assert calls == [[0], [0], [0]]
