"""Random outputs from a small grammar, and what stock Spark shows for each of them alone.

No row is ever late, whatever else runs beside an output: Spark has one watermark for a whole query,
so late rows are the one thing that may differ. A last row far ahead closes every window.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.pipeline.support.workloads import (
    PROVIDERS,
    clock,
    orders,
    payments,
    put_file,
    settings_of,
    transformed_state,
    values_in,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = Counter[str]

_DELAY: Final = "2 minutes"

_SOUND_OPTIMIZER: Final = {
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}"
        for rule in ("EliminateLimits", "ConvertToLocalRelation", "EliminateSorts")
    )
}
"""Without it, Spark loses a limit in a batch whose source is empty, and fails in the next one."""


@dataclass(frozen=True)
class Part:
    """One step of an output: what is done to the part below it."""

    name: str
    below: Part | None = None

    def __str__(self) -> str:
        return self.name if self.below is None else f"{self.below}.{self.name}"


# the grammar

Build = Callable[["DataFrame", "Streams"], "DataFrame"]


def _windowed(df: DataFrame, _: Streams) -> DataFrame:
    from pyspark.sql import functions as f

    grouped = df.groupBy(f.window("t", "20 seconds"), "k")
    return grouped.agg(f.count("*").alias("n"), f.sum("v").alias("sum"))


def _windowed_by_id(df: DataFrame, _: Streams) -> DataFrame:
    """Reads every column, as what lies beside it may do: then both read the same exchange."""
    from pyspark.sql import functions as f

    grouped = df.groupBy(f.window("t", "20 seconds"), "id")
    return grouped.agg(f.max("k").alias("k"), f.count("*").alias("n"), f.sum("v").alias("sum"))


def _twice_windowed(df: DataFrame, _: Streams) -> DataFrame:
    from pyspark.sql import functions as f

    grouped = df.groupBy(f.window("window", "40 seconds"))
    # every aggregate below is used: else Spark removes an outer join with its watermark, and waits
    return grouped.agg(
        f.max("k").alias("k"), f.count("*").alias("n"), f.sum(f.expr("sum * n")).alias("sum")
    )


def _sessions(df: DataFrame, _: Streams) -> DataFrame:
    from pyspark.sql import functions as f

    grouped = df.groupBy(f.session_window("t", "6 seconds").alias("window"), "k")
    return grouped.agg(f.count("*").alias("n"), f.sum("v").alias("sum"))


def _totals(df: DataFrame, _: Streams) -> DataFrame:
    from pyspark.sql import functions as f

    return df.groupBy("k").agg(f.count("*").alias("n"), f.sum("v").alias("sum"))


def _seen(df: DataFrame, _: Streams) -> DataFrame:
    """Groups without a function, as of SELECT DISTINCT."""
    from pyspark.sql import functions as f

    return df.groupBy("k").agg(f.col("k").alias("n"), f.col("k").alias("sum"))


def _running(df: DataFrame, _: Streams) -> DataFrame:
    from pyspark.sql.streaming.state import GroupStateTimeout

    def add(key: Any, frames: Any, state: Any) -> Any:
        import pandas as pd

        n, total = state.get if state.exists else (0, 0)
        for frame in frames:
            n, total = n + len(frame), total + int(frame["v"].sum())
        state.update((n, total))
        yield pd.DataFrame({"k": [key[0]], "n": [n], "sum": [total]})

    return df.groupBy("k").applyInPandasWithState(
        add, "k int, n long, sum long", "n long, sum long", "append", GroupStateTimeout.NoTimeout
    )


def _transformed(df: DataFrame, _: Streams) -> DataFrame:
    made = transformed_state(df)
    return made.selectExpr("k", "rows AS n", "total + again AS sum")


def _joined(how: str) -> Build:
    def build(df: DataFrame, streams: Streams) -> DataFrame:
        from pyspark.sql import functions as f

        near = f.expr("id = order AND pt >= t - INTERVAL 1 MINUTE AND pt <= t + INTERVAL 1 MINUTE")
        return df.join(streams.paid, near, how).drop("order")

    return build


def _paid(df: DataFrame, streams: Streams) -> DataFrame:
    """Needs a watermark on the other side only."""
    from pyspark.sql import functions as f

    return df.join(streams.paid, f.expr("id = order AND t = pt"), "leftSemi")


def _top(df: DataFrame, _: Streams) -> DataFrame:
    from pyspark.sql import functions as f

    return df.orderBy(*(f.desc(name) for name in df.columns)).limit(3)


def _self_joined(df: DataFrame, _: Streams) -> DataFrame:
    from pyspark.sql import functions as f

    other = df.select(f.col("id").alias("other"), f.col("t").alias("u"), f.col("v").alias("w"))
    near = f.expr("id = other AND u >= t - INTERVAL 9 SECONDS AND u <= t + INTERVAL 9 SECONDS")
    return df.join(other, near).drop("other")


def _with_table(df: DataFrame, streams: Streams) -> DataFrame:
    return df.join(streams.table, "k", "left")


def _with_payments(df: DataFrame, streams: Streams) -> DataFrame:
    as_orders = streams.payments.selectExpr("order AS id", "paid AS k", "paid AS v", "pt AS t")
    return df.union(as_orders).withWatermark("t", _DELAY)


def _united(df: DataFrame, _: Streams) -> DataFrame:
    return df.union(df.where("k > 1"))


BASES: Final[Mapping[str, Build]] = {
    "plain": lambda df, _: df,
    "marked": lambda df, _: df.withWatermark("t", _DELAY),
    "filtered": lambda df, _: df.where("v % 4 <> 1").withWatermark("t", _DELAY),
    "united": lambda df, s: _united(df.withWatermark("t", _DELAY), s),
    "paying": _with_payments,
}
"""Of the source: id, k, v, t."""

ROWS: Final[Mapping[str, Build]] = {
    "once_within": lambda df, _: df.dropDuplicatesWithinWatermark(["id"]),
    "once": lambda df, _: df.dropDuplicates(["id", "t"]),
    "inner": _joined("inner"),
    "outer": _joined("leftOuter"),
    "paid": _paid,
    "paid_limited": lambda df, s: _paid(df, s).limit(10_000),
    "self": _self_joined,
    "limited": lambda df, _: df.limit(10_000),
    "limited_twice": lambda df, _: df.limit(10_000).where("k >= 0").limit(9_000),
}
"""State that lets rows pass, so that there may be more state above."""

_JOINED: Final = frozenset({"inner", "outer", "paid", "paid_limited"})
"""Of these, with payments, which have a watermark of their own."""

_WITHOUT_WATERMARK: Final = ("limited", "limited_twice", "once", "paid", "paid_limited")

GROUPS: Final[Mapping[str, Build]] = {
    "windowed": _windowed,
    "by_id": _windowed_by_id,
    "sessions": _sessions,
    "totals": _totals,
    "seen": _seen,
    "running": _running,
    "transformed": _transformed,
}
"""State whose results have k, n and sum."""

ABOVE: Final[Mapping[str, Build]] = {"again": _twice_windowed}
"""Of windows."""

TOPS: Final[Mapping[str, Build]] = {"top": _top}
"""Of a complete result."""

TAILS: Final[Mapping[str, Build]] = {
    "some": lambda df, _: df.where("k <> 2"),
    "picked": lambda df, _: df.drop("v", "n"),
    "made": lambda df, _: df.selectExpr("*", "k * 10 AS ten").where("ten < 35"),
    "table": _with_table,
    "named": lambda df, _: df.alias("x").selectExpr("x.*", "x.k IS NULL AS lost"),
}

STEPS: Final = {**BASES, **ROWS, **GROUPS, **ABOVE, **TOPS, **TAILS}

_MODES: Final[Mapping[str, frozenset[str]]] = {
    "append": frozenset(ROWS.keys() | GROUPS.keys() | ABOVE.keys()) - {"totals", "seen"},
    "update": frozenset({"once_within", "once", "inner", "self", "windowed", "by_id"})
    | {"totals", "seen"},
    "complete": frozenset({"windowed", "by_id", "totals", "seen"}),
}
"""Which state Spark allows in an output mode."""

_FUNCTIONS: Final = ("running", "transformed")
"""State of Python functions, which Spark allows above no other."""

_ONE_STATE: Final = ("update", "complete")
"""Modes in which Spark allows no state above other state."""


def random_part(dice: random.Random, mode: str) -> Part:
    """One output."""
    part = Part(dice.choice(list(BASES)))
    if part.name == "plain":
        if mode == "append":
            return _with_tails(dice, Part(dice.choice(_WITHOUT_WATERMARK), part))
        if dice.random() < 0.5:
            part = Part("marked")
    allowed = _MODES[mode]
    rows = [name for name in ROWS if name in allowed]
    if part.name == "plain":
        rows = [name for name in rows if name in _WITHOUT_WATERMARK]
    groups = [name for name in GROUPS if name in allowed]
    if mode == "append" and dice.random() < 0.1:
        return _with_tails(dice, part)
    if rows and dice.random() < 0.5:
        part = Part(dice.choice(rows), part)
        if mode in _ONE_STATE or dice.random() < 0.5:
            return _with_tails(dice, part)
        groups = [name for name in groups if name not in _FUNCTIONS]
    part = Part(dice.choice(groups), part)
    if part.name == "windowed" and "again" in allowed and dice.random() < 0.3:
        part = Part("again", part)
    if mode == "complete" and dice.random() < 0.3:
        part = Part("top", part)
    return _with_tails(dice, part)


def _with_tails(dice: random.Random, part: Part) -> Part:
    for _ in range(dice.choice((0, 0, 1, 2))):
        name = dice.choice(list(TAILS))
        if name not in str(part):
            part = Part(name, part)
    return part


def needs_rocksdb(part: Part) -> bool:
    """Whether an output has state that Spark keeps in RocksDB only."""
    return any(each.name == "transformed" for each in below(part))


def watermarks(part: Part) -> frozenset[str]:
    """The watermarks of an output; those that have some go together when they have the same."""
    names = {each.name for each in below(part)}
    joined = {"payments"} if names & _JOINED else set()
    return frozenset((names & BASES.keys() - {"plain"}) | joined)


def below(part: Part) -> list[Part]:
    """A part and all that it is built on."""
    return [part, *([] if part.below is None else below(part.below))]


def relative(dice: random.Random, part: Part, mode: str) -> Part:
    """An output that has a part in common with another one."""
    common = dice.choice(below(part))
    if common.name in BASES:
        return random_part(dice, mode)
    marked = below(common)[-1].name != "plain"
    if mode == "append" and marked and common.name in ROWS and dice.random() < 0.5:
        names = [n for n in GROUPS if n in _MODES[mode] and n not in _FUNCTIONS]
        return _with_tails(dice, Part(dice.choice(names), common))
    if mode == "append" and common.name == "windowed" and dice.random() < 0.5:
        return _with_tails(dice, Part("again", common))
    return _with_tails(dice, common)


# running


@dataclass
class Streams:
    """What outputs are made of; a part that was made before is taken again when it is shared.

    Watermarks are set once in any case: of several calls, Spark may let each count other rows.
    """

    orders: DataFrame
    payments: DataFrame
    table: DataFrame
    made: dict[Part, DataFrame] = field(default_factory=dict)

    @cached_property
    def paid(self) -> DataFrame:
        """Payments with their watermark."""
        return self.payments.withWatermark("pt", _DELAY)

    def build(self, part: Part, *, shared: bool) -> DataFrame:
        """The DataFrame of an output."""
        if part in self.made and (shared or part.below is None):
            return self.made[part]
        source = self.orders if part.below is None else self.build(part.below, shared=shared)
        made = STEPS[part.name](source, self)
        self.made[part] = made
        return made


def streams_of(spark: SparkSession, folder: Path) -> Streams:
    """The sources of one query, and a table beside them."""
    table = spark.createDataFrame([(n, f"name {n}") for n in range(3)], "k int, name string")
    return Streams(orders(spark, folder), payments(spark, folder), table)


def write_rows(folder: Path, epochs: int = 3) -> Path:
    """Rows in order but for a few seconds, some of them twice.

    There is one file more of payments than of orders: at the end, only payments are read.
    """
    for epoch in range(epochs):
        rows = [_row(n, epoch * 60 + n * 2 - n % 3) for n in range(epoch * 30, epoch * 30 + 30)]
        put_file(folder / "orders", epoch, rows + rows[::6])
        paid = [{"order": row["id"], "paid": 1, "pt": row["t"]} for row in rows[::2]]
        put_file(folder / "payments", epoch, paid)
    put_file(folder / "orders", epochs, [_row(999, 9000)])
    for number, at in enumerate((8700, 9600), epochs):
        put_file(folder / "payments", number, [{"order": -1, "paid": 0, "pt": clock(at)}])
    return folder


def _row(number: int, at: int) -> dict[str, Any]:
    return {"id": number, "k": number % 4, "v": number * 7 % 31, "t": clock(at + 600)}


def visible(folder: Path, mode: str) -> Rows:
    """What a reader sees; of complete results only the last one."""
    rows = values_in(folder)
    if mode == "complete" and rows:
        last = max(row["epoch"] for row in rows)
        rows = [row for row in rows if row["epoch"] == last]
    for row in rows:
        del row["epoch"]
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in rows)


class StockSpark:
    """What each output shows alone, without Seamark; run once, then remembered."""

    def __init__(self, spark: SparkSession, folder: Path, base: Path) -> None:
        self.folder = folder
        self._spark = spark
        self._base = base
        self._found: dict[tuple[str, str], Rows] = {}

    def __call__(self, part: Part, mode: str) -> Rows:
        if (str(part), mode) not in self._found:
            root = self._base / str(len(self._found))
            df = streams_of(self._spark, self.folder).build(part, shared=True)
            query = (
                df.writeStream.outputMode(mode)
                .foreachBatch(
                    lambda batch, number: batch.write.parquet(f"{root}/out/epoch={number}")
                )
                .option("checkpointLocation", f"{root}/checkpoint")
                .trigger(availableNow=True)
            )
            # where state is kept makes no difference; some state is only kept in RocksDB
            provider = PROVIDERS["rocksdb" if needs_rocksdb(part) else "hdfs"]
            with settings_of(self._spark, {**provider, **_SOUND_OPTIMIZER}):
                query.start().awaitTermination()
            self._found[str(part), mode] = visible(root / "out", mode)
        return self._found[str(part), mode]
