"""A KeyValueSink whose rows are written by hand instead of by Spark; all else is the real one."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from seamark.progress import SourceCheckpoint, open_progress
from seamark.sinks import Committable, Epoch, KeyValueSink
from seamark.sinks.keyvalue.view_columns import DELETED, KEY, RANK, TIME, VALUE
from seamark.testing.conformance.sink_examples import OLD, PIPELINE, SINK, epoch, through_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Row = dict[str, Any]


class HandWrittenView(KeyValueSink):
    """Rows of a number ``n``, which is the key, and perhaps ``gone``, ``time`` and ``rank``, in two
    files."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **{"key": "n", **options})

    def open(self, pipeline: str, sink: str, schema: StructType | None) -> None:
        from pyspark.sql.types import StructType as Columns

        columns = Columns().add("n", "long").add("gone", "boolean").add("time", "long")
        super().open(pipeline, sink, columns.add("rank", "long"))

    def _write(self, df: DataFrame, folder: str) -> None:
        rows: list[Any] = [row._asdict() for row in cast(Any, df).toLocalIterator()]
        Path(folder).mkdir(parents=True)
        ranks = pa.array([row.get("rank") for row in rows]).type
        for part in range(2):
            table = self._table(rows[part::2], ranks)
            pq.write_table(table, f"{folder}/part-{part:05}.parquet")

    def _table(self, rows: Sequence[Row], ranks: pa.DataType) -> pa.Table:
        keys = [None if row["n"] is None else str(row["n"]).encode() for row in rows]
        table = {
            KEY: pa.array(keys, pa.binary()),
            VALUE: pa.array([json.dumps(row, default=str).encode() for row in rows], pa.binary()),
        }
        if self._shape.delete_where:
            table[DELETED] = pa.array([bool(row.get("gone")) for row in rows], pa.bool_())
        if self._shape.expire:
            table[TIME] = pa.array([row.get("time") for row in rows], pa.int64())
        if self._shape.order_by:
            table[RANK] = pa.array([row.get("rank") for row in rows], ranks)
        return pa.table(table)


class _Line(Row):
    def _asdict(self) -> Row:
        return dict(self)


class _Lines:
    schema: Any = None

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def toLocalIterator(self) -> Iterator[_Line]:
        return map(_Line, self._rows)


def lines(*rows: Row) -> DataFrame:
    """Stands in for a DataFrame of these rows."""
    return cast("DataFrame", _Lines(rows))


def rows_of(number: int, keys: int = 3) -> list[Row]:
    """Rows of a few keys that all carry the number of their epoch."""
    return [{"n": key, "at": number} for key in range(keys)]


def told(number: int, timeline: str = OLD, watermark: int | None = None) -> Epoch:
    """An epoch as a pipeline describes it, with the position of a source."""
    return replace(
        epoch(number, timeline),
        watermark=watermark,
        positions={"orders": b"offset %d" % number},
        config_hash=7,
    )


class World:
    """One view, through as many handles as processes would have; and readers of it."""

    def __init__(
        self, url: str, staging: Path | None, kind: type[HandWrittenView] = HandWrittenView
    ) -> None:
        self.url = url
        self.given = staging
        self.kind = kind
        self._handles: list[HandWrittenView] = []
        self._attempts = itertools.count()

    def handle(self, **options: Any) -> HandWrittenView:
        """What a process that has just started would use."""
        sink = self.kind(self.url, staging=self.given, **options)
        sink.open(PIPELINE, SINK, None)
        sink.prepare_target()
        self._handles.append(sink)
        return sink

    def prepare(self, by: HandWrittenView, told: Epoch, *rows: Row) -> Committable:
        by.stage(lines(*rows), told, f"a{told.number}-{next(self._attempts)}")
        return through_json(by.prepare())

    def show(self, by: HandWrittenView, told: Epoch, *rows: Row) -> Committable:
        committable = self.prepare(by, told, *rows)
        by.commit(committable)
        return committable

    def run(self, numbers: range, **options: Any) -> Committable:
        """One process that shows these epochs; the last one's committable."""
        sink, last = self.handle(**options), {}
        for number in numbers:
            last = self.show(sink, told(number), *rows_of(number))
        return last

    # what readers see

    def rows(self) -> dict[str, Row]:
        with open_progress(self.url, read_only=True) as store:
            return {key.decode(): json.loads(value) for key, value in store.items("view")}

    def epoch(self) -> int:
        """The number that every row carries, which the source's checkpoint has to agree with."""
        found = {row["at"] for row in self.rows().values()}
        assert len(found) <= 1, found
        with open_progress(self.url, read_only=True) as store:
            source = store.read_checkpoint("orders")
        number: int = found.pop() if found else 0
        want = SourceCheckpoint(number, b"offset %d" % number) if number else None
        assert source == want
        return number

    # the server, brought back to what it was

    def close(self) -> None:
        for sink in self._handles:
            sink.close()
        self._handles.clear()

    def save(self) -> Any:
        """What the server has kept; all handles are closed."""
        self.close()
        if self.url.startswith("rocksdb"):
            folder = Path(self.url.removeprefix("rocksdb://"))
            aside = folder.with_name(f"save-{len(list(folder.parent.iterdir()))}")
            shutil.copytree(folder, aside, ignore=shutil.ignore_patterns("_seamark", "LOCK"))
            return aside
        with open_progress(self.url, read_only=True) as store:
            client = cast(Any, store)._ledger.client
            return {key: client.dump(key) for key in client.keys(self._pattern())}

    def bring_back(self, saved: Any) -> None:
        """Have the server be what it was when it was saved; the staging folder stays.

        Handles of a view in Redis stay as they are.
        """
        if self.url.startswith("rocksdb"):
            self.close()
            folder = Path(self.url.removeprefix("rocksdb://"))
            for path in folder.iterdir():
                if path.is_file():
                    path.unlink()
            shutil.copytree(saved, folder, dirs_exist_ok=True)
            return
        self.empty()
        with open_progress(self.url, read_only=True) as store:
            for key, value in saved.items():
                cast(Any, store)._ledger.client.restore(key, 0, value)

    def empty(self) -> None:
        """Have the server lose everything."""
        if self.url.startswith("rocksdb"):
            self.close()
            for path in Path(self.url.removeprefix("rocksdb://")).iterdir():
                if path.is_file():
                    path.unlink()
            return
        with open_progress(self.url, read_only=True) as store:
            client = cast(Any, store)._ledger.client
            for key in client.keys(self._pattern()):
                client.delete(key)

    def _pattern(self) -> str:
        return f"seamark:{{{self.url.partition('namespace=')[2]}}}:*"

    @property
    def staging(self) -> Path:
        """The folder in which epochs wait and are kept."""
        if self.given is None:
            return Path(self.url.removeprefix("rocksdb://"), "_seamark")
        return self.given / PIPELINE / SINK / "_seamark"

    def url_of_another(self, name: str) -> str:
        """Another view on the same server."""
        return f"{self.url}-{name}"

    def kept(self) -> list[int]:
        return sorted(int(path.name[6:]) for path in self.staging.glob("kept/*/epoch=*"))


def numbers_in(url: str) -> list[int]:
    """The numbers that a reader of a view sees, as another program reads it."""
    with open_progress(url, read_only=True) as store:
        return [json.loads(value)["n"] for _, value in store.items("view")]
