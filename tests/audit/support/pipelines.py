"""A pipeline of ten epochs, and ways to damage what its sink shows."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from seamark import Pipeline, open_store
from seamark.audit.auditing import Access, Audit, audit
from seamark.sinks import FileSink
from seamark.sinks.contract import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCHS = 10
ROWS = 20
SCHEMA = "n bigint, name string, price double, at timestamp"
COLUMNS = ("n", "name", "price", "at")


def write_input(folder: Path, epochs: int = EPOCHS, first: int = 0) -> None:
    """A file for each epoch."""
    folder.mkdir(exist_ok=True)
    for number in range(first, first + epochs):
        rows = [
            {
                "n": number * ROWS + row,
                "name": f"name-{row % 5}" if row % 7 else None,
                "price": row / 3,
                "at": f"2026-03-01T{number % 24:02}:{row:02}:00.000001Z",
            }
            for row in range(ROWS)
        ]
        path = folder / f"{number:04}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def pipeline(
    spark: SparkSession, root: Path, sink: Sink, name: str = "trades", **options: Any
) -> Pipeline:
    p = Pipeline("audited", root / "store", progress=None, **options)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(root / "input"))
    p.sink(name, p.source("rows", rows), sink)
    return p


def ten_epochs(spark: SparkSession, root: Path, sink: Sink | None = None, **options: Any) -> Path:
    """Run all epochs; the store."""
    write_input(root / "input")
    pipeline(spark, root, sink or FileSink(root / "out"), **options).run(available_now=True)
    return root / "store"


def audited(spark: SparkSession, store: Path, **targets: str) -> Audit:
    with open_store(store) as opened:
        return audit(opened, lambda: spark, access=Access(targets=targets))


def damage_found(found: Audit) -> list[tuple[str, str, str]]:
    """Sink, epochs and result of all that is not as it was written."""
    return [
        (sink.sink, verdict.epochs, verdict.result.value)
        for sink in found.sinks
        for verdict in sink.verdicts
        if verdict.result.is_damage
    ]


# what can happen to files


def lose(rows: list[dict[str, Any]], chosen: random.Random) -> None:
    rows.remove(chosen.choice(rows))


def double(rows: list[dict[str, Any]], chosen: random.Random) -> None:
    rows.append(dict(chosen.choice(rows)))


def edit(rows: list[dict[str, Any]], chosen: random.Random) -> None:
    row, column = chosen.choice(rows), chosen.choice(COLUMNS)
    if column == "at":
        row["at"] = row["at"].replace(microsecond=(row["at"].microsecond + 1) % 1_000_000)
    elif column == "name":
        row["name"] = None if row["name"] else ""
    else:
        row[column] = row[column] + 1


ROW_DAMAGE: dict[str, Callable[[list[dict[str, Any]], random.Random], None]] = {
    "lost": lose,
    "doubled": double,
    "edited": edit,
}


def rewrite(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Write a Parquet file again with other rows, and nothing else changed."""
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    # Spark itself writes times as INT96, which others read as nanoseconds
    is_of_spark = table.schema.field("at").type == pa.timestamp("ns")
    changed = pa.Table.from_pylist(rows, schema=table.schema)
    pq.write_table(changed, path, use_deprecated_int96_timestamps=is_of_spark)


def damage(out: Path, chosen: random.Random) -> tuple[str, set[int]]:
    """Do one kind of damage to a folder of epochs; which, and to which epochs."""
    folders = sorted(out.glob("epoch=*"))
    kind = chosen.choice([*ROW_DAMAGE, "exchanged"])
    if kind == "exchanged":
        one, other = chosen.sample(folders, 2)
        aside = out / "_aside"
        one.rename(aside)
        other.rename(one)
        aside.rename(other)
        return kind, {int(each.name.partition("=")[2]) for each in (one, other)}
    folder = chosen.choice(folders)
    files = [path for path in folder.glob("part-*") if pq.read_metadata(path).num_rows]
    rewrite(chosen.choice(files), lambda rows: ROW_DAMAGE[kind](rows, chosen))
    return kind, {int(folder.name.partition("=")[2])}
