"""A pipeline that gets other partitions, then one more output; is replayed, and forked.

Its lives are the same in local mode and on a cluster, so what sinks show has to be the same.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seamark import Pipeline, open_store
from seamark.capture.checkpoint_contents import Sizes
from seamark.sinks import FileSink
from seamark.spark.batch_log import SHUFFLE_PARTITIONS
from tests.pipeline.support.upgrades import pairs
from tests.pipeline.support.workloads import (
    Shown,
    orders,
    payments,
    settings_of,
    values_in,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from seamark.manifest import CheckpointManifest
    from seamark.pipeline.run import Run

NEW: Final = "pairs"
"""The output that an upgrade adds."""
OUTPUTS: Final = ("sums", "once", "paid")


@dataclass(frozen=True)
class Life:
    """One run, until all files are read that there are by then."""

    name: str
    partitions: int
    files: int
    is_upgraded: bool = False


def lives(files: int) -> tuple[Life, ...]:
    """The lives of a pipeline whose sources have so many files in the end."""
    return (
        Life("begin", 4, files // 3),
        Life("rescale", 7, 2 * files // 3),
        Life("upgrade", 3, files, is_upgraded=True),
    )


@dataclass(frozen=True)
class Changing:
    """The input, the store and the sinks of such a pipeline."""

    spark: SparkSession
    root: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the pipeline is given besides: its working copy."""

    def deliver(self, files: int) -> None:
        """Let the sources have so many of the files in ``all``."""
        for name in ("orders", "payments"):
            folder = self.root / "input" / name
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted((self.root / "all" / name).iterdir())[:files]:
                shutil.copy2(path, folder / path.name)

    def pipeline(self, *, is_upgraded: bool, name: str = "shop", **options: Any) -> Pipeline:
        """Declare it; its store and its sinks are in a folder of its name."""
        from pyspark.sql import functions as f

        root = self.root / name
        # state is in shared objects, and every epoch stays
        sizes = Sizes(inline_operator=0)
        given: dict[str, Any] = {"sizes": sizes, "keep": 100, **self.options, **options}
        p = Pipeline(name, root / "store", **given)
        folder = self.root / "input"
        source = p.source("orders", orders(self.spark, folder))
        paid = p.source("payments", payments(self.spark, folder))
        if is_upgraded:  # before all others, so that every number moves
            p.sink(NEW, pairs(source), FileSink(root / NEW))
        # orders come again one epoch later, and are not late then
        marked = source.withWatermark("t", "90 seconds")
        frames = (
            _sums(marked),
            marked.dropDuplicatesWithinWatermark(["id"]),
            marked.join(paid, f.expr("id = order")).select("id", "paid"),
        )
        for output, frame in zip(OUTPUTS, frames, strict=True):
            p.sink(output, frame, FileSink(root / output))
        return p

    @property
    def lives(self) -> tuple[Life, ...]:
        """One after the other, until all files are read."""
        return lives(len(list((self.root / "all" / "orders").iterdir())))

    def run(self, life: Life, **options: Any) -> Run:
        """Live; the run, which has ended."""
        self.deliver(life.files)
        with settings_of(self.spark, {SHUFFLE_PARTITIONS: str(life.partitions)}):
            return self.pipeline(is_upgraded=life.is_upgraded, **options).run()

    def run_unchanged(self) -> None:
        """The same lives of a pipeline that never changes."""
        for life in self.lives:
            self.run(replace(life, partitions=self.lives[0].partitions, is_upgraded=False))


def shown(root: Path, name: str = "shop", after: int = 0) -> Shown:
    """What each sink of a pipeline shows of the epochs after one."""
    sinks = [path for path in (root / name).iterdir() if path.name != "store"]
    found: Shown = {}
    for path in sinks:
        rows = [row for row in values_in(path) if row.pop("epoch") > after]
        found[path.name] = Counter(json.dumps(row, default=str, sort_keys=True) for row in rows)
    return found


def checkpoints(root: Path, name: str = "shop") -> list[CheckpointManifest]:
    """All checkpoints of a pipeline, the newest last."""
    with open_store(root / name / "store") as store:
        found = [store.load_by_id(each) for each in store.list_ids()]
    return [each for each in found if each is not None]


def _sums(marked: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    grouped = marked.groupBy(f.window("t", "20 seconds"), "k")
    return grouped.agg(f.count("*").alias("n"), f.sum("v").alias("sum"))
