"""A FileSink whose rows are written by hand instead of by Spark; all else is the real one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seamark._common.exchange import exchange
from seamark._common.files import read_file, write_all
from seamark.sinks import (
    Committable,
    FileSink,
    compaction,
    epoch_folder,
    epoch_ranges,
    files,
    folders,
    publish,
    staged_epochs,
)
from seamark.sinks.target_checks import claim_folder
from seamark.testing.conformance.sink_examples import OLD, epoch
from tests.sinks.support.frames import frame
from tests.support.disk import SimulatedDisk
from tests.support.mounting import mount

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ROWS = [1, 2, 3, 4, 5, 6, 7]
MODULES = (compaction, epoch_folder, epoch_ranges, files, folders, publish, staged_epochs)


def mount_sinks(monkeypatch: pytest.MonkeyPatch, os_like: Any, fcntl_like: Any) -> None:
    """Let every I/O of a FileSink go to these instead."""
    mount(monkeypatch, os_like, fcntl_like)
    for module in MODULES:
        monkeypatch.setattr(module, "os", os_like)
    monkeypatch.setattr(compaction, "exchange", getattr(os_like, "exchange", exchange))


class HandWritten(FileSink):
    """Lines of JSON with a number each, in two files, and the litter that Hadoop leaves."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, format="json")

    def open(self, pipeline: str, sink: str, schema: StructType | None) -> None:
        claim_folder(self.path, pipeline, sink, "json", ())

    def _write(self, df: DataFrame, folder: str) -> None:
        put(f"{folder}/_temporary/0/litter", b"x")
        for at, row in enumerate(df.toLocalIterator()):
            name = f"part-{at % 2:05}-of-{row.n % 3}.json"
            put(f"{folder}/{name}", b'{"n":%d}\n' % row.n, more=True)
            put(f"{folder}/.{name}.crc", b"crc")
        put(f"{folder}/part-00009-without-rows.json", b"")


class HandRanged(HandWritten):
    """The same, grouped in folders of four epochs, and merged by hand too."""

    PER = 4

    def __init__(self, path: str | Path) -> None:
        FileSink.__init__(self, path, format="json", epochs_per_folder=self.PER)

    def open(self, pipeline: str, sink: str, schema: StructType | None) -> None:
        claim_folder(self.path, pipeline, sink, "json", (), self.PER)

    def merge(self, until: int) -> list[int]:
        """Merge all ranges up to an epoch."""
        return compaction.compact(self.path, until, self._merge_by_hand, empty_files=True)

    def _merge_by_hand(self, folder: str, epochs: list[str], target: str, size: int) -> None:
        os: Any = vars(files)["os"]  # the mounted one
        for number, where in enumerate(epochs):
            for name in sorted(os.listdir(where)):
                if name.startswith("part-"):
                    data = read_file(where, name)
                    put(f"{target}/part-{number % 2:05}-merged.json", data, more=True)
        put(f"{target}/_temporary/0/litter", b"x")
        put(f"{target}/_SUCCESS", b"")


class HandWrittenParquet(FileSink):
    """Parquet in some files below two partitions."""

    def __init__(self, path: str | Path, parts: int = 3) -> None:
        super().__init__(path, partition_by="half")
        self._parts = parts

    def open(self, pipeline: str, sink: str, schema: StructType | None) -> None:
        claim_folder(self.path, pipeline, sink, "parquet", ("half",))

    def _write(self, df: DataFrame, folder: str) -> None:
        rows = [row.n for row in df.toLocalIterator()]
        for part in range(self._parts):
            place = Path(folder, f"half={part % 2}")
            place.mkdir(parents=True, exist_ok=True)
            table = pa.table({"n": rows[part :: self._parts]})
            pq.write_table(table, place / f"part-{part:05}.parquet")


def prepared(
    path: Path, number: int = 1, attempt: str = "a1", timeline: str = OLD
) -> tuple[HandWritten, Committable]:
    sink = HandWritten(path)
    sink.stage(frame(ROWS), epoch(number, timeline), attempt)
    return sink, sink.prepare()


def shown_epoch(path: Path, number: int = 1, timeline: str = OLD, attempt: str = "") -> Committable:
    sink, committable = prepared(path, number, attempt or f"a{number}", timeline)
    sink.commit(committable)
    return committable


def staged_files(path: Path) -> list[Path]:
    return sorted(file for file in path.glob("_seamark/staging/**/*") if file.is_file())


def put(path: str, data: bytes, *, more: bool = False) -> None:
    """Write a file the way Spark would: without any fsync."""
    os: Any = vars(files)["os"]  # the mounted one
    os.makedirs(os.path.dirname(path), exist_ok=True)
    start = os.O_APPEND if more else os.O_TRUNC
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | start, 0o644)
    write_all(fd, data)
    os.close(fd)


def rows_below(path: Path) -> list[int]:
    """What a reader of JSON sees: the rows of files whose path has no hidden part."""
    contents = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*.json")}
    return sorted(rows_in(contents).elements())


def rows_on(disk: SimulatedDisk, path: str) -> Counter[int]:
    """The same on a simulated disk."""
    files = disk.files().items()
    return rows_in({at[len(path) + 1 :]: data for at, data in files if at.startswith(path + "/")})


def rows_in(contents: dict[str, bytes]) -> Counter[int]:
    rows: Counter[int] = Counter()
    for at, data in contents.items():
        if not any(part.startswith(("_", ".")) for part in at.split("/")):
            rows.update(int(line[5:-1]) for line in data.decode().splitlines())
    return rows
