"""Every output of a pipeline shows what it shows alone in stock Spark, whatever runs beside it."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import pytest

from seamark import Pipeline
from seamark.pipeline.pipeline import OutputMode
from seamark.sinks import FileSink
from tests.conftest import SEED, spread
from tests.pipeline.support.random_plans import (
    Part,
    StockSpark,
    needs_rocksdb,
    random_part,
    relative,
    streams_of,
    visible,
    watermarks,
    write_rows,
)
from tests.pipeline.support.workloads import PROVIDERS, settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_MODES: Final[tuple[OutputMode, ...]] = ("append", "append", "update", "complete")


@dataclass(frozen=True)
class Case:
    """Outputs of one pipeline, and how it runs."""

    mode: OutputMode
    outputs: tuple[Part, ...]
    shared: bool
    """Whether equal parts are one DataFrame, or made anew for each output."""
    share_state: bool
    provider: str
    adaptive: bool
    coalesce: Literal["auto"] | None
    persist: bool
    """Whether the table beside the streams is persisted."""

    def __str__(self) -> str:
        how = [
            name for name in ("shared", "share_state", "adaptive", "persist") if getattr(self, name)
        ]
        outputs = " | ".join(map(str, self.outputs))
        return f"{self.mode} {self.provider} {self.coalesce} {' '.join(how)}: {outputs}"


def random_case(dice: random.Random) -> Case:
    mode = dice.choice(_MODES)
    outputs = [random_part(dice, mode)]
    while len(outputs) < dice.choice((2, 2, 3, 4)):
        near = dice.random() < 0.7
        new = relative(dice, dice.choice(outputs), mode) if near else random_part(dice, mode)
        marks = {watermarks(each) for each in (*outputs, new)} - {frozenset()}
        if len(marks) < 2:  # others are refused: one would hold back the other
            outputs.append(new)
    providers = set(PROVIDERS) - ({"hdfs"} if any(map(needs_rocksdb, outputs)) else set())
    return Case(
        mode,
        tuple(outputs),
        dice.random() < 0.8,
        dice.random() < 0.6,
        dice.choice(sorted(providers)),
        dice.random() < 0.5,
        dice.choice(("auto", None)),
        dice.random() < 0.5,
    )


def wrong(spark: SparkSession, root: Path, case: Case, stock: StockSpark) -> str:
    """Which outputs differ from stock Spark's, in words; empty when none does."""
    streams = streams_of(spark, stock.folder)
    if case.persist:
        streams.table.persist()
    p = Pipeline(
        "as-stock",
        root / "store",
        output_mode=case.mode,
        coalesce=case.coalesce,
        share_state=case.share_state,
        progress=None,
    )
    p.source("orders", streams.orders)
    p.source("payments", streams.payments)
    for number, part in enumerate(case.outputs):
        p.sink(f"o{number}", streams.build(part, shared=case.shared), FileSink(root / f"o{number}"))
    with settings_of(
        spark, {**PROVIDERS[case.provider], _ADAPTIVE: "true" if case.adaptive else "false"}
    ):
        p.run()
    streams.table.unpersist()
    found = []
    for number, part in enumerate(case.outputs):
        rows, wanted = visible(root / f"o{number}", case.mode), stock(part, case.mode)
        if rows != wanted:
            found.append(
                f"{part} has {rows.total()} rows and alone {wanted.total()}; "
                f"only here {list(rows - wanted)[:2]}, only alone {list(wanted - rows)[:2]}"
            )
    return "; ".join(found)


@pytest.fixture(scope="module")
def stock(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> StockSpark:
    base = tmp_path_factory.mktemp("stock")
    return StockSpark(spark, write_rows(base / "in"), base)


def part(text: str) -> Part:
    """An output, written as it is printed."""
    made: Part | None = None
    for name in text.split("."):
        made = Part(name, made)
    assert made is not None
    return made


def case(mode: OutputMode, provider: str, *outputs: str, share_state: bool = True) -> Case:
    parts = tuple(map(part, outputs))
    return Case(mode, parts, True, share_state, provider, share_state, "auto", share_state)


SAMPLE: Final = (
    # every other one also runs outside of chaos: all modes, all providers, and what most users do
    case("append", "hdfs", "marked.windowed", "marked.windowed", "marked", share_state=False),
    case("append", "rocksdb", "marked.once_within", "marked.once_within.by_id", "marked.sessions"),
    case("append", "format2", "marked.inner.picked", "marked.outer", "marked.inner.some.table"),
    case("append", "rocksdb", "marked.transformed", "marked.transformed.table", "marked.limited"),
    case("append", "rocksdb-changelog", "marked.windowed.again", "marked.windowed.made"),
    case("append", "hdfs", "united.by_id", "united.by_id.picked.named", "united.once.by_id"),
    case("update", "rocksdb", "marked.totals", "marked.totals", "marked.once", share_state=False),
    case("append", "rocksdb", "plain.limited", "marked.windowed", "plain.limited_twice.some"),
    case("append", "format2-changelog", "marked.running", "marked.running.some", "marked.self"),
    case("append", "hdfs", "marked.paid_limited", "plain.running", "marked.inner"),
    case("complete", "hdfs", "marked.by_id.some", "marked.by_id.made", "marked.windowed"),
    case("complete", "rocksdb", "plain.totals.top", "paying.totals", "plain.seen.top.some"),
)
SAMPLED: Final = 6


def test_the_sample_has_every_mode_every_provider_and_both_ways_of_sharing() -> None:
    chosen = [SAMPLE[number] for number in spread(SAMPLED, len(SAMPLE))]
    assert len(chosen) == SAMPLED
    assert {each.mode for each in chosen} == set(_MODES)
    assert {each.provider for each in chosen} == set(PROVIDERS)
    for how in ("share_state", "adaptive", "persist"):
        assert {getattr(each, how) for each in chosen} == {True, False}, how


@pytest.mark.sampled(SAMPLED)
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_outputs_that_share_parts_show_what_they_show_alone(
    spark: SparkSession, tmp_path: Path, case: Case, stock: StockSpark
) -> None:
    assert wrong(spark, tmp_path, case, stock) == ""


@pytest.mark.chaos
@pytest.mark.warm
@pytest.mark.timeout(0)
def test_any_outputs_together_show_what_they_show_alone(
    spark: SparkSession, tmp_path: Path, stock: StockSpark
) -> None:
    seed = os.environ[SEED]
    number = int(os.environ.get("SEAMARK_CHAOS_PLANS", "60"))
    dice = random.Random(seed)
    print(f"{SEED}={seed}: {number} pipelines")  # noqa: T201 - shown by -rP
    failed = []
    for _ in range(number):
        chosen = random_case(dice)
        try:
            why = wrong(spark, tmp_path / "case", chosen, stock)
        except Exception as error:  # noqa: BLE001 - the next case goes on
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
        if why:
            failed.append(f"{chosen}: {why}")
        print(f"{'failed' if why else 'ok'} {chosen} {why}", flush=True)  # noqa: T201 - shown by -rP
        shutil.rmtree(tmp_path / "case", ignore_errors=True)
    assert not failed, f"with {SEED}={seed}:\n" + "\n".join(failed)
