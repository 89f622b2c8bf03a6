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
from seamark.errors import RefusedError
from seamark.pipeline.declaration.compatibility import Compatibility
from seamark.sinks import FileSink
from tests.pipeline.support.workloads import (
    EPOCHS,
    KINDS,
    PROVIDERS,
    Shown,
    orders,
    payments,
    provider_of,
    providers_for,
    rows_in,
    shown,
    windowed,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

BEFORE = 3
"""Files that the pipeline has read when it changes."""
STATEFUL = [kind for kind in KINDS if not kind.startswith("stateless") and "one-sink" not in kind]


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
