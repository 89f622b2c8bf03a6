"""RocksDB's snapshots are compared with the changes before them, in memory and time that fit."""

from __future__ import annotations

import io
import json
import shutil
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seamark import limits
from seamark._common.limited_process import Answer, ask_process
from seamark.native.inspect import rocksdb_rows
from seamark.native.inspect.findings import Code, Severity
from seamark.native.inspect.rocksdb_rows import Comparison, Verdict
from tests.native.support.inspected import codes, describe, looked_at, make_logs, packed, write

rocksdict = pytest.importorskip("rocksdict")

MIB = 1 << 20
Rows = dict[bytes, bytes]


def database(folder: Path, rows: Rows) -> Path:
    """A database of these rows, compressed as well as RocksDB can."""
    options = rocksdict.Options(raw_mode=True)
    options.set_compression_type(rocksdict.DBCompressionType.zstd())
    opened = rocksdict.Rdict(str(folder), options)
    for key, value in rows.items():
        opened[key] = value
    opened.flush()
    opened.close()
    return folder


def snapshot(root: Path, version: int, rows: Rows, *, partition: int = 0) -> None:
    """``V.zip`` as Spark makes one out of a database."""
    scratch = database(root.parent / f"database-{partition}-{version}", rows)
    named = []
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(scratch.iterdir()):
            if file.suffix == ".sst":
                name = f"{file.stem}-{version}.sst"
                kept = write(root, f"state/0/{partition}/SSTs/{name}", file.read_bytes())
                names = {"localFileName": file.name, "dfsSstFileName": kept.name}
                named.append(names | {"sizeBytes": kept.stat().st_size})
            elif file.name.startswith(("CURRENT", "MANIFEST", "OPTIONS")):
                archive.write(file, file.name)
        archive.writestr("metadata", f"v1\n{json.dumps({'sstFiles': named})}")
    shutil.rmtree(scratch)
    write(root, f"state/0/{partition}/{version}.zip", out.getvalue())


def directory(root: Path, changes: list[dict[bytes, bytes | None]], *, partitions: int = 1) -> Path:
    """A query of three batches, with the same changelogs in each partition."""
    make_logs(root, 3, partitions=partitions)
    describe(root, 0, partitions)
    for partition in range(partitions):
        for version, rows in enumerate(changes, 1):
            # another key in each, which belongs to one partition
            own = rows | {b"%d-%d" % (partition, version): None}
            write(root, f"state/0/{partition}/{version}.changelog", packed(own))
    return root


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 24 * MIB
    finally:
        tracemalloc.stop()


def test_a_snapshot_is_compared_with_an_earlier_one_and_the_changes_since(tmp_path: Path) -> None:
    changes: list[dict[bytes, bytes | None]] = [
        {b"b": b"1", b"d": b"1", b"f": b"1"},
        {},
        {b"a": b"2", b"c": None, b"d": b"2", b"f": None, b"g": b"2"},
    ]
    root = directory(tmp_path / "ck", changes)
    snapshot(root, 2, {b"b": b"1", b"d": b"1", b"f": b"1"})
    snapshot(root, 3, {b"a": b"2", b"b": b"1", b"d": b"2", b"g": b"2"})
    assert looked_at(root, read_data=True).findings == []
    snapshot(root, 3, {b"a": b"2", b"b": b"1", b"d": b"2"})
    found = looked_at(root, read_data=True)
    assert [(f.code, f.path) for f in found.findings] == [
        (Code.SNAPSHOT_DISAGREES, "state/0/0/3.zip")
    ]
    assert "2.zip and the changelogs after it" in found.findings[0].message


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ({b"a": b"2", b"b": b"1", b"d": b"2", b"g": b"2"}, Verdict.SAME),
        ({b"b": b"1", b"d": b"2", b"g": b"2"}, Verdict.DIFFERS),
        ({b"a": b"2", b"b": b"1", b"d": b"1", b"g": b"2"}, Verdict.DIFFERS),
        ({b"a": b"2", b"b": b"1", b"d": b"2", b"f": b"1", b"g": b"2"}, Verdict.DIFFERS),
        ({b"a": b"2", b"b": b"1", b"d": b"2"}, Verdict.DIFFERS),
        ({b"a": b"2", b"b": b"1", b"d": b"2", b"g": b"2", b"h": b"1"}, Verdict.DIFFERS),
        ({}, Verdict.DIFFERS),
    ],
)
def test_every_row_that_is_new_gone_or_changed_counts(
    rows: Rows, verdict: Verdict, tmp_path: Path
) -> None:
    base = database(tmp_path / "base", {b"b": b"1", b"d": b"1", b"f": b"1"})
    changed = {b"a": b"2", b"c": None, b"d": b"2", b"f": None, b"g": b"2"}
    changelog = write(tmp_path, "3.changelog", packed(changed))
    kept = database(tmp_path / "kept", rows)
    comparison = Comparison(str(base), [str(changelog)], [str(kept)], 0)
    assert [*rocksdb_rows._compared(comparison)] == [verdict]


def test_rows_of_a_snapshot_that_unpack_to_far_more_are_not_compared(tmp_path: Path) -> None:
    rows = {b"%03d" % number: bytes(MIB) for number in range(40)}
    root = directory(tmp_path / "ck", [{}, {}, {}])
    snapshot(root, 2, rows)
    snapshot(root, 3, rows)
    (root / "state/0/0/1.changelog").unlink()  # so that only the newer one is compared
    with little_memory():
        found = looked_at(root, read_data=True)
    assert [(f.code, f.severity, f.path) for f in found.findings] == [
        (Code.SNAPSHOT_NOT_COMPARED, Severity.WARNING, "state/0/0/3.zip")
    ]


def test_a_single_row_that_is_larger_than_the_memory_for_it_stops_no_other_comparison(
    tmp_path: Path,
) -> None:
    root = directory(tmp_path / "ck", [{b"k": b"1"}, {}, {}], partitions=2)
    snapshot(root, 3, {b"k": bytes(120 * MIB)}, partition=0)
    snapshot(root, 3, {b"k": b"another"}, partition=1)
    with little_memory():
        found = looked_at(root, read_data=True)
    assert {(f.code, f.path) for f in found.findings if f.code.startswith("snapshot")} == {
        (Code.SNAPSHOT_NOT_COMPARED, "state/0/0/3.zip"),
        (Code.SNAPSHOT_DISAGREES, "state/0/1/3.zip"),
    }


def test_the_snapshots_of_all_partitions_are_compared_by_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(module: str, question: bytes, **options: Any) -> Answer:
        asked.append(module)
        return ask_process(module, question, **options)

    monkeypatch.setattr("seamark.native.inspect.rocksdb_rows.ask_process", counted)
    root = directory(tmp_path / "ck", [{}, {}, {}], partitions=4)
    for partition in range(4):
        rows = {b"key-%d" % partition: b"1"}
        snapshot(root, 3, rows, partition=partition)
        write(root, f"state/0/{partition}/1.changelog", packed(rows))
    assert looked_at(root, read_data=True).findings == []
    assert asked == ["seamark.native.inspect.rocksdb_rows"]


def test_changes_count_as_the_rows_of_a_snapshot_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {b"%03d" % number: bytes(100) for number in range(100)}
    kept = str(database(tmp_path / "database", rows))
    changelogs = [str(write(tmp_path, f"{version}.changelog", packed(rows))) for version in (1, 2)]
    comparison = Comparison(None, changelogs, [kept, kept], 0)
    assert [*rocksdb_rows._compared(comparison)] == [Verdict.SAME] * 2
    monkeypatch.setattr(limits, "RECORDS_FLOOR", 299)
    assert [*rocksdb_rows._compared(comparison)] == [Verdict.BEYOND_LIMITS] * 2
    monkeypatch.undo()
    monkeypatch.setattr(limits, "COMPARED_FLOOR", 15_000)
    assert [*rocksdb_rows._compared(comparison)] == [Verdict.BEYOND_LIMITS] * 2


def test_a_database_that_cannot_be_read_to_its_end_proves_nothing(tmp_path: Path) -> None:
    rows = {b"%05d" % number: bytes([number % 256]) * 50 for number in range(5_000)}
    folder = database(tmp_path / "database", rows)
    changelog = str(write(tmp_path, "1.changelog", packed(rows)))
    sst = next(folder.glob("*.sst"))
    data = bytearray(sst.read_bytes())
    data[len(data) // 3] ^= 0xFF
    sst.write_bytes(data)
    comparison = Comparison(None, [changelog], [str(folder)], len(data))
    assert [*rocksdb_rows._compared(comparison)] == [Verdict.UNKNOWN]
    missing = Comparison(None, [changelog], [str(tmp_path / "nothing")], 0)
    assert [*rocksdb_rows._compared(missing)] == [Verdict.UNKNOWN]


def test_time_is_for_all_snapshots_together_and_what_is_left_is_said_to_be_uncompared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMPARING_SECONDS", 0)
    root = directory(tmp_path / "ck", [{b"k": b"1"}, {}, {}])
    snapshot(root, 3, {b"k": b"another"})
    assert "snapshot-not-compared" in codes(looked_at(root, read_data=True))
