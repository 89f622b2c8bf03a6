"""A store and sinks that one pipeline after another uses, each changed against the one before."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seamark import Pipeline
from seamark.sinks import FileSink
from tests.pipeline.support.workloads import EPOCHS, KINDS, orders, values_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEFORE: Final = 3
"""Files that the pipeline has read when it changes."""


class World:
    """The input, and a store and sinks that one pipeline after another uses."""

    def __init__(self, spark: SparkSession, files: Path, root: Path, kind: str) -> None:
        self.spark = spark
        self.root = root
        self.kind = kind
        self._all = files
        self.folder = root / "input"
        self.deliver(BEFORE)

    def deliver(self, files: int = EPOCHS + 1) -> None:
        """Let the sources have so many files."""
        for name in ("orders", "payments"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            for path in sorted((self._all / name).iterdir())[:files]:
                shutil.copy2(path, self.folder / name / path.name)

    def pipeline(self, **options: Any) -> Pipeline:
        return Pipeline("shop", self.root / "store", **options)

    def before(self, **options: Any) -> Pipeline:
        """The pipeline as it was."""
        p = self.pipeline(**options)
        KINDS[self.kind](p, self.spark, self.folder, self.root)
        return p

    def after(self, **options: Any) -> Pipeline:
        """The same with a stateful output before all others, so that every number moves."""
        p = self.pipeline(**options)
        source = p.source("orders", orders(self.spark, self.folder))
        p.sink("pairs", pairs(source), FileSink(self.root / "pairs"))
        rest = _WithoutSource(p, source)
        KINDS[self.kind](rest, self.spark, self.folder, self.root)  # type: ignore[arg-type]
        return p

    def wipe(self) -> None:
        """Remove the working copies."""
        shutil.rmtree(self.root / "store" / "working")


class _WithoutSource:
    """A pipeline that has its first source already."""

    def __init__(self, pipeline: Pipeline, source: DataFrame) -> None:
        self._pipeline = pipeline
        self._source = source

    def source(self, name: str, df: DataFrame) -> DataFrame:
        return self._source if name == "orders" else self._pipeline.source(name, df)

    def sink(self, name: str, df: DataFrame, sink: FileSink) -> None:
        self._pipeline.sink(name, df, sink)


def pairs(source: DataFrame) -> DataFrame:
    """Each pair of values once: a stateful output without a watermark."""
    return source.select("k", "v").dropDuplicates(["k", "v"])


def new_pairs(folder: Path, since: int) -> Counter[str]:
    """What :func:`pairs` shows when it begins with the file of that number."""
    rows = [
        json.loads(line)
        for path in sorted((folder / "orders").iterdir())[since:]
        for line in path.read_text().splitlines()
    ]
    return Counter({json.dumps({"k": row["k"], "v": row["v"]}): 1 for row in rows})


class Counting:
    """Pipelines that count orders by key in update mode, declared differently at each start."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.root = world.root

    def pipeline(self, **options: Any) -> tuple[Pipeline, DataFrame]:
        p = self.world.pipeline(output_mode="update", **options)
        return p, p.source("orders", orders(self.world.spark, self.world.folder))

    def declare(
        self, *outputs: str, at: Mapping[str, str] | None = None, **options: Any
    ) -> Pipeline:
        """Outputs by their names, in their order; ``at`` are targets that have other names."""
        p, source = self.pipeline(**options)
        shared = source.groupBy("k").count()
        frames = {
            "counts": lambda: source.groupBy("k").count(),
            "sums": lambda: source.groupBy("k").sum("v").withColumnRenamed("sum(v)", "count"),
            "renamed": lambda: source.groupBy("k").count(),
            "by_id": lambda: source.groupBy("id").count(),
            "of_new": lambda: source.dropDuplicates(["id"]).groupBy("k").count(),
            "shared": lambda: shared,
            "also_shared": lambda: shared.where("k > 0"),
            "rows": lambda: source.select("id", "v"),
        }
        for name in outputs:
            # 'counts=of_new' is the output 'counts', computed as 'of_new' is
            output, _, computed = name.partition("=")
            target = self.root / (at or {}).get(output, output)
            p.sink(output, frames[computed or output](), FileSink(target))
        return p

    def newest(self, output: str, column: str = "count") -> dict[int, int]:
        """The newest value of each key that an output shows."""
        rows = sorted(values_in(self.root / output), key=lambda row: row["epoch"])
        key = "id" if rows and "id" in rows[0] else "k"
        return {row[key]: row[column] for row in rows}


def rows_of(folder: Path, first: int = 0, last: int = EPOCHS + 1) -> list[dict[str, Any]]:
    """The orders in these files."""
    paths = sorted((folder / "orders").iterdir())[first:last]
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def counts(rows: list[dict[str, Any]]) -> dict[int, int]:
    return dict(Counter(row["k"] for row in rows))


def sums(rows: list[dict[str, Any]]) -> dict[int, int]:
    total: Counter[int] = Counter()
    for row in rows:
        total[row["k"]] += row["v"]
    return dict(total)
