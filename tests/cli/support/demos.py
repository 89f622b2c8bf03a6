"""A demo's folder as a run leaves it, without Spark: logs, files and the view."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from seamark.cli.demo.pipeline import CHECKPOINTS, LATEST
from seamark.cli.demo.trades import (
    DELAY_MS,
    MS_BETWEEN_TRADES,
    OPENING_MS,
    TRADES_PER_EPOCH,
    Bar,
    Trade,
    closed_bars,
    large_trades,
    latest_trades,
)
from seamark.progress import open_progress, rocksdb_url

BATCHES = 7


def watermark_of(batch: int) -> int:
    """What the offset log has for a batch: the newest trade before it, less the delay."""
    newest = OPENING_MS + (batch * TRADES_PER_EPOCH - 1) * MS_BETWEEN_TRADES
    return newest - DELAY_MS if batch else 0


def write_offsets(demo: Path, batch: int, *, start: int = 2, behind: int = 0) -> None:
    trades = (batch + 1) * TRADES_PER_EPOCH
    lines = [json.dumps({"offset": read, "timestamp": 0}) for read in (trades, trades - behind)]
    metadata = {"batchWatermarkMs": watermark_of(batch), "batchTimestampMs": 0, "conf": {}}
    file = demo / CHECKPOINTS / f"working/g{start}/offsets/{batch}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["v1", json.dumps(metadata), *lines]))


def write_commit(demo: Path, batch: int, *, start: int = 2) -> None:
    file = demo / CHECKPOINTS / f"working/g{start}/commits/{batch}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'v1\n{{"nextBatchWatermarkMs":{watermark_of(batch + 1)}}}')


def write_rows(folder: Path, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    table = pa.table(
        {name: _column(name, [row[at] for row in rows]) for at, name in enumerate(columns)}
    )
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "part-00000.parquet")
    (folder / "_seamark.json").write_text("{}")


def _column(name: str, values: list[Any]) -> Any:
    if name in ("time", "start", "end"):
        return pa.array(values, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    if name == "symbol":
        return pa.array(values, pa.string())
    whole = name in ("number", "qty", "volume", "trades")
    return pa.array(values, pa.int64() if whole else pa.float64())


def change_view(demo: Path, changes: Mapping[str, Trade | None]) -> None:
    """Write rows of the view, or remove them, in one step as its sink does."""
    with open_progress(rocksdb_url(demo / LATEST)) as store, store.session() as session:
        for symbol, row in changes.items():
            if row is None:
                session.delete("view", symbol.encode())
            else:
                session.put("view", symbol.encode(), as_json(row))


def as_json(row: Trade) -> bytes:
    time = datetime.fromtimestamp(row.time / 1000, UTC)
    text = time.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return json.dumps(row._asdict() | {"time": text}).encode()


def by_symbol(rows: Iterable[Trade]) -> dict[str, Trade]:
    return {row.symbol: row for row in rows}


def make_demo(folder: Path) -> None:
    """What a run of seven epochs leaves."""
    for batch in range(BATCHES):
        write_offsets(folder, batch)
        write_commit(folder, batch)
        read, before = (batch + 1) * TRADES_PER_EPOCH, batch * TRADES_PER_EPOCH
        bars = set(closed_bars(read, watermark_of(batch)))
        bars -= set(closed_bars(read, watermark_of(batch - 1) if batch else 0))
        epoch = f"epoch={batch + 1:06}"
        write_rows(folder / "bars" / epoch, Bar._fields, sorted(bars))
        large = [each for each in large_trades(read) if each.number >= before]
        write_rows(folder / "large" / epoch, Trade._fields, large)
    change_view(folder, by_symbol(latest_trades(BATCHES * TRADES_PER_EPOCH)))
