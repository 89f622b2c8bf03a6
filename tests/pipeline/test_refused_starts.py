"""A start that is refused has changed no target, whatever refuses it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import seamark
from seamark import open_store
from seamark.errors import FencedError, LineageError, RefusedError
from seamark.pipeline.declaration.compile import Output
from seamark.pipeline.recovery.sink_opening import prepare_targets
from seamark.progress import rocksdb_url
from seamark.sinks import DeltaSink, FileSink, KeyValueSink, MemorySink, Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Shop:
    """A pipeline with a folder that it has written to, and targets that are not there yet."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark = spark
        self.root = root
        (root / "in").mkdir()
        (root / "in" / "0.json").write_text(json.dumps({"v": 0}))

    def pipeline(self, *columns: str, **more: Sink) -> seamark.Pipeline:
        p = seamark.Pipeline("shop", self.root / "store", progress=None)
        rows = p.source("in", self._spark.readStream.schema("v long").json(str(self.root / "in")))
        rows = rows.selectExpr("v", *columns)
        p.sink("rows", rows, FileSink(self.root / "rows"))
        for name, sink in more.items():
            p.sink(name, rows, sink)
        return p

    def new_sinks(self) -> dict[str, Sink]:
        return {
            "files": FileSink(self.root / "new/files"),
            "table": DeltaSink(self.root / "new/table"),
            "view": KeyValueSink(rocksdb_url(self.root / "new/view"), key="v"),
        }

    def require_unchanged(self) -> None:
        assert not (self.root / "new").exists()

    def require_made(self) -> None:
        assert sorted(path.name for path in (self.root / "new").iterdir()) == [
            "files",
            "table",
            "view",
        ]


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path)


class Refusing(MemorySink):
    def open(self, *_: Any) -> None:
        raise RefusedError("it does not fit")


@pytest.mark.warm
def test_a_sink_that_refuses_is_asked_before_any_other_changes_its_target(shop: Shop) -> None:
    with pytest.raises(RefusedError, match="it does not fit"):
        shop.pipeline(**shop.new_sinks(), last=Refusing()).run()
    shop.require_unchanged()
    assert not (shop.root / "rows").exists()


@pytest.mark.warm
def test_a_changed_pipeline_that_is_refused_has_changed_no_target(shop: Shop) -> None:
    shop.pipeline().run()
    with pytest.raises(RefusedError):
        shop.pipeline("v + 1 AS w", **shop.new_sinks()).run()
    shop.require_unchanged()


@pytest.mark.warm
def test_a_store_that_does_not_know_what_a_sink_shows_has_changed_no_target(shop: Shop) -> None:
    shop.pipeline().run()
    shutil.rmtree(shop.root / "store")
    with pytest.raises(LineageError, match="the store has no checkpoint"):
        shop.pipeline(**shop.new_sinks()).run()
    shop.require_unchanged()


@pytest.mark.warm
def test_a_start_that_nothing_refuses_makes_all_targets(shop: Shop) -> None:
    shop.pipeline(**shop.new_sinks()).run()
    shop.require_made()


class Noting(MemorySink):
    is_prepared = False

    def prepare_target(self) -> None:
        self.is_prepared = True


def test_who_was_overtaken_while_it_started_changes_no_target(tmp_path: Path) -> None:
    sink = Noting()
    outputs = [Output("rows", cast(Any, None), sink)]
    with open_store(tmp_path) as ours, open_store(tmp_path) as theirs:
        ours.claim(pipeline="shop")
        theirs.claim(pipeline="shop")
        with pytest.raises(FencedError):
            prepare_targets(outputs, ours)
        assert not sink.is_prepared
        prepare_targets(outputs, theirs)
        assert sink.is_prepared
