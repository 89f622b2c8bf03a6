"""The proof: what must be there, what is there, and the difference row by row.

What must be there comes from Spark's own offset log and the formula of the trades, never from
Seamark's manifests or the sinks. What is there is read as any reader of files and view would.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from seamark.cli.demo.pipeline import BARS, CHECKPOINTS, LARGE, LATEST
from seamark.cli.demo.trades import Bar, Trade, closed_bars, large_trades, latest_trades
from seamark.cli.demo.view_reader import Watched, open_view, rows_in_view
from seamark.errors import CheckpointNotFoundError, DamageError
from seamark.spark.batch_log import parse_offsets

Row = Trade | Bar

_EXAMPLES: Final = 3


@dataclass(frozen=True)
class SparkProgress:
    """How far Spark's own logs say that the query has come."""

    batch: int
    trades: int
    """How many trades have been read by this batch and all before it."""
    watermark_ms: int
    """The watermark that the batch ran with."""


@dataclass(frozen=True)
class SinkProof:
    """One sink: the rows that must be there against the rows that are there."""

    sink: str
    expected: Counter[Row]
    found: Counter[Row]

    @property
    def lost(self) -> Counter[Row]:
        """Rows that must be there and are not."""
        return self.expected - self.found

    @property
    def surplus(self) -> Counter[Row]:
        """Duplicate rows, and rows that should not be there at all."""
        return self.found - self.expected

    @property
    def holds(self) -> bool:
        """Whether every row is there once."""
        return self.expected == self.found

    def findings(self) -> list[str]:
        """The first rows that are wrong, one line for each."""
        lines = []
        for what, rows in (("lost", self.lost), ("too many", self.surplus)):
            shown = sorted(rows.elements())[:_EXAMPLES]
            lines += [f"{self.sink}: {what}: {row}" for row in shown]
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return {
            "expected": self.expected.total(),
            "found": self.found.total(),
            "lost": self.lost.total(),
            "duplicates": self.surplus.total(),
        }


@dataclass(frozen=True)
class Proof:
    """All sinks, compared with what Spark says that it has read."""

    progress: SparkProgress
    sinks: tuple[SinkProof, ...]
    watched: Watched | None = None
    """What a reader of the view saw on the way, when there was one."""

    @property
    def holds(self) -> bool:
        """Whether every row of every sink is there once, and the view was whole at every look."""
        is_watched_well = self.watched is None or self.watched.holds
        return all(sink.holds for sink in self.sinks) and is_watched_well

    def to_dict(self) -> dict[str, Any]:
        """The proof as JSON values."""
        watched = {"watched": self.watched.to_dict()} if self.watched is not None else {}
        return {
            "exactly_once": self.holds,
            "batches": self.progress.batch + 1,
            "trades": self.progress.trades,
            "sinks": {sink.sink: sink.to_dict() for sink in self.sinks},
        } | watched


def prove(folder: Path, watched: Watched | None = None) -> Proof:
    """Compare the sinks of a demo with Spark's own offset log."""
    progress = spark_progress(folder / CHECKPOINTS / "working")
    large = Counter[Row](large_trades(progress.trades))
    bars = Counter[Row](closed_bars(progress.trades, progress.watermark_ms))
    latest = Counter[Row](latest_trades(progress.trades))
    return Proof(
        progress,
        (
            SinkProof(BARS, bars, rows_in(folder / BARS, Bar)),
            SinkProof(LARGE, large, rows_in(folder / LARGE, Trade)),
            SinkProof(LATEST, latest, _rows_of_view(folder)),
        ),
        watched,
    )


def _rows_of_view(folder: Path) -> Counter[Row]:
    if not (folder / LATEST).exists():
        return Counter()
    with open_view(folder) as view:
        return Counter(rows_in_view(view))


def spark_progress(working: Path) -> SparkProgress:
    """The last batch that Spark has committed, from its offset and commit logs.

    A batch closes the windows that end by the watermark in its own entry of the offset log; the
    watermark that it brings forth is for the next one.
    """
    # one folder for each start of the pipeline: g1, g2, …; the last one holds the whole log
    starts = [int(copy.name[1:]) for copy in working.glob("g*") if copy.name[1:].isdigit()]
    copy = working / f"g{max(starts, default=0)}"
    committed = [int(commit.name) for commit in copy.glob("commits/[0-9]*")]
    if not committed:
        raise CheckpointNotFoundError(
            "there is no finished demo here",
            where=f"{working} has no batch that Spark has committed.",
            hint="Run the demo without --verify-only first.",
        )
    batch = max(committed)
    entry = parse_offsets((copy / "offsets" / str(batch)).read_text())
    # one line for each sink that reads the source: they advance together
    trades = {json.loads(line)["offset"] for line in entry.lines}
    if len(trades) != 1:
        raise DamageError(f"Spark's offset log has the sinks at different trades: {trades}")
    return SparkProgress(batch, trades.pop(), entry.watermark_ms)


def rows_in(sink: Path, kind: type[Row]) -> Counter[Row]:
    """All rows that a reader of the sink's folder sees."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    if not sink.exists():
        return Counter()
    try:
        dataset = ds.dataset(sink, format="parquet", partitioning="hive")
        if not dataset.files:
            return Counter()
        table = dataset.to_table(columns=list(kind._fields))
        values = [_plain(column).to_pylist() for column in table.columns]
    except (pa.ArrowException, OSError) as error:
        raise DamageError(f"{sink} cannot be read: {error}") from None
    return Counter(map(kind._make, zip(*values, strict=True)))


def _plain(column: Any) -> Any:
    """Times as milliseconds since 1970."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms")).cast(pa.int64())
    return column


def rows_of_epoch(sink: Path, epoch: int) -> int:
    """How many rows the sink shows for one epoch, from the footers of its files."""
    import pyarrow.parquet as pq

    files = sink.glob(f"epoch={epoch:06}/*.parquet")
    return sum(pq.read_metadata(file).num_rows for file in files)
