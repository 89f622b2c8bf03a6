"""A source that begins 'now' begins once: an epoch that runs again begins at the same moment.

Spark's rate source notes the moment of its first start, as Kafka's does with ``latest``. Whatever
comes between two starts would otherwise be read by nobody.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import seamark
from seamark.pipeline.recovery.working_dirs import WorkingDirs
from seamark.sinks import FileSink, ForeachBatchSink
from seamark.testing.crashes import SimulatedCrash, crash_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm


class Clocks:
    """Pipelines on one store that read files, a clock, or both."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark = spark
        self._root = root
        self.calls: list[tuple[str, list[int]]] = []
        (root / "in").mkdir()
        self.add(0)

    def add(self, number: int) -> None:
        (self._root / "in" / f"{number}.json").write_text(json.dumps({"v": number}))

    def pipeline(self, *sinks: str, function: bool = False, **options: Any) -> seamark.Pipeline:
        p = seamark.Pipeline("clocks", self._root / "store", progress=None, **options)
        sources: dict[str, DataFrame] = {}
        for name in sinks:
            source = "ticks" if name.startswith("ticks") else "files"
            if source not in sources:
                sources[source] = p.source(source, getattr(self, f"_{source}")())
            rows = sources[source]
            target = ForeachBatchSink(self._called, idempotent=True) if function else None
            p.sink(name, rows, target or FileSink(self._root / name))
        return p

    def _files(self) -> DataFrame:
        reader = self._spark.readStream.schema("v long").option("maxFilesPerTrigger", 1)
        return reader.json(str(self._root / "in"))

    def _ticks(self) -> DataFrame:
        return self._spark.readStream.format("rate").option("rowsPerSecond", 7).load()

    def _called(self, rows: DataFrame, epoch: Any) -> None:
        times = (
            rows.selectExpr("unix_millis(timestamp) AS at") if "timestamp" in rows.columns else None
        )
        self.calls.append((epoch.key, sorted(r.at for r in times.collect()) if times else []))

    def beginning(self) -> str:
        """What the clock has noted about its first start."""
        (copy,) = (self._root / "store" / "working").glob("g*/offsets/..")
        noted = [path.read_text() for path in copy.glob("sources/*/0")]
        (own,) = [text for text in noted if '"path"' not in text]
        return own

    def wipe(self) -> None:
        shutil.rmtree(self._root / "store" / "working")


@pytest.fixture
def clocks(spark: SparkSession, tmp_path: Path) -> Clocks:
    return Clocks(spark, tmp_path)


def crash(pipeline: seamark.Pipeline) -> None:
    with pytest.raises(SimulatedCrash):
        pipeline.run()


def test_the_first_epoch_after_a_reset_begins_where_it_began(clocks: Clocks) -> None:
    clocks.pipeline("ticks").run()
    crash(clocks.pipeline("ticks_again", policy="auto_reset", on_step=at_epoch(1)))
    began = clocks.beginning()
    again = clocks.pipeline("ticks_again").run()
    assert "with what was planned for the first epoch" in again.report.working_copy
    assert clocks.beginning() == began


def test_a_reset_itself_begins_anew(clocks: Clocks) -> None:
    crash(clocks.pipeline("ticks", on_step=at_epoch(1)))
    began = clocks.beginning()
    clocks.pipeline("ticks").run()
    assert clocks.beginning() == began
    clocks.pipeline("ticks_again", policy="auto_reset").run()
    assert clocks.beginning() != began


def test_a_source_that_an_upgrade_adds_begins_where_it_began(clocks: Clocks) -> None:
    clocks.pipeline("files").run()
    clocks.add(1)
    crash(clocks.pipeline("files", "ticks", policy="evolve", on_step=at_epoch(2)))
    began = clocks.beginning()
    clocks.pipeline("files", "ticks", policy="evolve").run()
    assert clocks.beginning() == began


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (["ticks"], ["ticks", "ticks_again"]),
        (["ticks", "ticks_again"], ["ticks_again"]),
        (["files", "ticks"], ["ticks", "files"]),
        (["ticks"], ["files", "ticks"]),
        (["files", "ticks"], ["ticks"]),
    ],
)
def test_the_first_epoch_begins_where_it_began_also_with_other_outputs(
    clocks: Clocks, first: list[str], then: list[str]
) -> None:
    crash(clocks.pipeline(*first, on_step=at_epoch(1)))
    began = clocks.beginning()
    clocks.pipeline(*then).run()
    assert clocks.beginning() == began


@pytest.mark.parametrize("then", [["files", "ticks", "ticks_again"], ["ticks", "files"], ["ticks"]])
def test_a_source_that_an_upgrade_adds_begins_where_it_began_also_with_other_outputs(
    clocks: Clocks, then: list[str]
) -> None:
    clocks.pipeline("files").run()
    clocks.add(1)
    crash(clocks.pipeline("files", "ticks", policy="evolve", on_step=at_epoch(2)))
    began = clocks.beginning()
    clocks.pipeline(*then, policy="evolve").run()
    assert clocks.beginning() == began


def test_a_source_begins_where_it_began_also_when_a_second_upgrade_dies_half_way(
    clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks.pipeline("files").run()
    crash(clocks.pipeline("files", "ticks", policy="evolve", on_step=at_epoch(2)))
    began = clocks.beginning()
    with monkeypatch.context() as patched:
        patched.setattr(WorkingDirs, "plans_in", _dies)
        crash(clocks.pipeline("ticks", policy="evolve"))
    clocks.pipeline("ticks", policy="evolve").run()
    assert clocks.beginning() == began


def test_a_function_gets_the_rows_of_an_added_source_again_on_another_machine(
    clocks: Clocks,
) -> None:
    clocks.pipeline("files", function=True).run()
    clocks.add(1)
    after_functions = crash_at("prepare", "before", 2)
    crash(
        clocks.pipeline("files", "ticks", function=True, policy="evolve", on_step=after_functions)
    )
    first = dict(clocks.calls)
    began = clocks.beginning()
    clocks.wipe()
    clocks.calls.clear()
    clocks.pipeline("files", "ticks", function=True, policy="evolve").run()
    assert clocks.beginning() == began
    assert [rows == first[key] for key, rows in clocks.calls if key in first] == [True, True]


def _dies(*_: Any) -> None:
    raise SimulatedCrash


def at_epoch(number: int) -> Any:
    return crash_at("write", "before", number)
