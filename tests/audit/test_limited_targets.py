"""An audit of anybody's store opens no table that takes too much memory or time."""

from __future__ import annotations

import bz2
import gzip
import math
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import lz4.block
import pyarrow as pa
import pytest
from pyarrow import orc
from pyarrow import parquet as pq

from seamark import limits, open_store
from seamark._common.limited_process import ask_process
from seamark.audit import iceberg, tried_folders
from seamark.audit.auditing import Access, _Reading
from seamark.audit.delta import tried_target
from seamark.audit.limited_targets import LimitedTargets, TriedTarget
from seamark.audit.tried_rows import TriedRows
from seamark.audit.verdicts import Shown
from seamark.errors import RefusedError, StoreUnavailableError
from tests.audit.test_logins import of_table
from tests.sinks.support import iceberg as iceberg_tables
from tests.sources.support.delta_logs import swell_checkpoint
from tests.sources.test_delta import append


def read(store: Path, table: Path, **targets: str) -> list[Shown]:
    found = replace(of_table("delta", str(table), version=0), columns=(("n", "struct<a b:int>"),))
    with open_store(store) as opened:
        access = Access(targets=targets)
        return list(_Reading(opened, lambda: None, access, None, [found])._read(found))  # type: ignore[arg-type, return-value]


@pytest.mark.slow
def test_a_small_log_that_unpacks_to_gigabytes_is_opened_only_if_the_user_names_the_table(
    tmp_path: Path,
) -> None:
    append(tmp_path / "t", 0)
    swell_checkpoint(tmp_path / "t", 3_000_000)
    (sink,) = [of_table("delta", "").sink]
    with pytest.raises(RefusedError, match="cannot be read with 512 MiB of memory") as caught:
        read(tmp_path / "store", tmp_path / "t")
    assert f"--target {sink}=" in str(caught.value)
    (shown,) = read(tmp_path / "store", tmp_path / "t", **{sink: str(tmp_path / "t")})
    assert "types of its columns" in shown.note  # it was not refused


def test_all_tables_of_a_store_are_tried_by_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "t", 0)
    asked: list[bytes] = []

    def counted(module: str, question: bytes, **options: Any) -> Any:
        asked.append(question)
        return ask_process(module, question, **options)

    monkeypatch.setattr("seamark.table_formats.limited_answers.ask_process", counted)
    table = TriedTarget("delta", str(tmp_path / "t"), {}, (None, 0))
    gone = TriedTarget("delta", str(tmp_path / "gone"), {}, (None,))
    tried = LimitedTargets({"a": table, "b": table, "gone": gone})
    for sink in ("a", "b", "gone", "unknown"):
        tried.require(sink)
    assert len(asked) == 1
    assert asked[0].count(b'"place"') == 2


def test_a_table_that_never_answers_is_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TABLE_PATIENCE", 0)
    tried = LimitedTargets({"a": TriedTarget("delta", str(tmp_path), {}, (None,))})
    with pytest.raises(StoreUnavailableError, match="'a' has not answered"):
        tried.require("a")


def test_the_versions_that_are_tried_are_those_that_are_opened(tmp_path: Path) -> None:
    found = of_table("delta", str(tmp_path), version=7)
    assert tried_target(found, {}) == TriedTarget("delta", str(tmp_path), {}, (None, 7), (7,))
    every = replace(found, options={"mode": "overwrite"}, epochs=found.epochs * 2)
    assert tried_target(every, {}) == TriedTarget("delta", str(tmp_path), {}, (None, 7))
    assert tried_target(replace(found, target="http://x/t"), {}) is None
    assert tried_target(replace(found, epochs=()), {}) is None


@pytest.mark.slow
def test_lists_of_an_iceberg_table_that_name_a_file_very_often_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = iceberg_tables.make_table(tmp_path)
    table.append(pa.table({"n": [1], "word": ["a"]}, schema=iceberg_tables.COLUMNS))
    table = iceberg_tables.table_at(tmp_path)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(table.io)
    found = of_table(
        "iceberg",
        "c.n.t",
        metadata_location=table.metadata_location,
        snapshot_id=snapshot.snapshot_id,
    )
    tried = iceberg.tried_target(found, {}, "")
    assert tried is not None
    LimitedTargets({"a": tried}).require("a")
    for path, times in ((manifest.manifest_path, 3_000), (snapshot.manifest_list, 200)):
        repeat_entries(Path(path.removeprefix("file://")), times)
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.avro")) < 20_000
    monkeypatch.setattr(limits, "TABLE_PATIENCE", 500)  # the processor's time counts
    with pytest.raises(RefusedError, match="cannot be read with 512 MiB of memory"):
        LimitedTargets({"a": tried}).require("a")
    in_catalog = of_table("iceberg", "c.n.t", catalog="c", table="n.t")
    assert iceberg.tried_target(in_catalog, {}, "") is None
    assert iceberg.tried_target(of_table("iceberg", "c.n.t"), {}, "") is None


def repeat_entries(file: Path, times: int) -> None:
    """Have the one block of an Avro file hold its entries many times, which packs well."""
    data = file.read_bytes()
    sync = data[-16:]  # the header ends with it, and so does every block
    head, rest = data[: data.index(sync) + 16], data[data.index(sync) + 16 :]
    count, rest = _number(rest)
    size, rest = _number(rest)
    plain = zlib.decompress(rest[:size], -15) if b"deflate" in head else rest[:size]
    if b"deflate" not in head:
        before, _, after = head.partition(b"avro.codec")
        length, after = _number(after)
        head = before + b"avro.codec" + _encoded(7) + b"deflate" + after[length:]
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(plain * times) + packer.flush()
    file.write_bytes(head + _encoded(count * times) + _encoded(len(packed)) + packed + sync)


def _number(data: bytes) -> tuple[int, bytes]:
    value = shift = 0
    for at, byte in enumerate(data):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), data[at + 1 :]
    raise AssertionError("no number")


def _encoded(number: int) -> bytes:
    rest, encoded = number << 1, b""
    while rest > 0x7F:
        encoded += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return encoded + bytes([rest])


def swollen(path: Path) -> None:
    """A file of some kilobytes that holds gigabytes of rows: a long text very often."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), ["a" * 1_000_000])
    names = {name: {"PARQUET:field_id": str(at)} for at, name in enumerate(("n", "word"), 1)}
    fields = [
        pa.field("n", pa.int64(), metadata=names["n"]),
        pa.field("word", text.type, metadata=names["word"]),
    ]
    pq.write_table(
        pa.table([pa.array(range(3000)), text], schema=pa.schema(fields)),
        path,
        compression="zstd",
        dictionary_pagesize_limit=1 << 30,
        store_schema=False,
    )
    assert path.stat().st_size < 100_000


def delta_at(folder: Path) -> TriedTarget:
    deltalake.write_deltalake(folder, pa.table({"n": [1], "word": ["a"]}))
    (file,) = folder.glob("*.parquet")
    before = file.stat().st_size
    swollen(file)
    entry = folder / "_delta_log" / f"{0:020}.json"
    entry.write_text(entry.read_text().replace(f":{before},", f":{file.stat().st_size},"))
    found = tried_target(of_table("delta", str(folder), version=0), {})
    assert found is not None
    return found


def iceberg_at(folder: Path) -> TriedTarget:
    folder.mkdir()
    table = iceberg_tables.make_table(folder)
    table.append(pa.table({"n": [1], "word": ["a"]}, schema=iceberg_tables.COLUMNS))
    table = iceberg_tables.table_at(folder)
    (file,) = folder.rglob("*.parquet")
    swollen(file)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    where, number = table.metadata_location, snapshot.snapshot_id
    point = of_table("iceberg", "c.n.t", metadata_location=where, snapshot_id=number)
    found = iceberg.tried_target(point, {}, "")
    assert found is not None
    return found


def folder_at(folder: Path, name: str = "part-0.parquet") -> Path:
    epoch = folder / "epoch=000001"
    epoch.mkdir(parents=True)
    return epoch / name


def files_of(folder: Path, file_format: str = "parquet") -> TriedTarget:
    return TriedTarget("files", str(folder), {"format": file_format})


def files_at(folder: Path) -> TriedTarget:
    swollen(folder_at(folder))
    return files_of(folder)


def zipped_at(folder: Path) -> TriedTarget:
    member = gzip.compress(bytes(64 << 20))
    folder_at(folder, "part-0.json.gz").write_bytes(member * 20)
    return files_of(folder, "json")


def nameless_at(folder: Path) -> TriedTarget:
    """Spark reads all files of an epoch as the format says, whatever they are called."""
    swollen(folder_at(folder, "part-0"))
    return files_of(folder)


def nearly_hidden_at(folder: Path) -> TriedTarget:
    """A name with ``=`` may be that of a partition, so Spark does not pass over it."""
    file = folder_at(folder, "_k=1") / "_n=1.parquet"
    file.parent.mkdir()
    swollen(file)
    return files_of(folder)


def damaged_at(folder: Path) -> TriedTarget:
    """Spark reads the declared columns alone."""
    path = folder_at(folder)
    swollen(path)
    first = pq.ParquetFile(path).metadata.row_group(0).column(0)
    data = bytearray(path.read_bytes())
    at = first.dictionary_page_offset or first.data_page_offset
    data[at : at + 16] = b"\xff" * 16
    path.write_bytes(data)
    return files_of(folder)


def second_stream_at(folder: Path) -> TriedTarget:
    streams = zlib.compress(b"{}\n"), zlib.compress(bytes(64 << 20), 9) * 20
    folder_at(folder, "part-0.json.deflate").write_bytes(b"".join(streams))
    return files_of(folder, "json")


def zstd_at(folder: Path) -> TriedTarget:
    frame = pa.compress(bytes(512 << 20), codec="zstd", asbytes=True)
    folder_at(folder, "part-0.csv.zst").write_bytes(frame * 3)
    return files_of(folder, "csv")


def skipping_at(folder: Path) -> TriedTarget:
    """Spark looks for the next block in what is no bzip2."""
    streams = bz2.compress(b"{}\n"), b"no stream", bz2.compress(bytes(32 << 20)) * 60
    folder_at(folder, "part-0.json.bz2").write_bytes(b"".join(streams))
    return files_of(folder, "json")


def claiming_at(folder: Path) -> TriedTarget:
    """Spark takes memory for what stands before a block, and its process ends without it."""
    folder_at(folder, "part-0.json.lz4").write_bytes(struct.pack(">II", 1 << 30, (1 << 31) - 16))
    return files_of(folder, "json")


def claiming_text_at(folder: Path) -> TriedTarget:
    part = b"\xff\xff\xff\xff\x07\x00a"
    data = struct.pack(">II", (1 << 31) - 1, len(part)) + part
    folder_at(folder, "part-0.json.snappy").write_bytes(data)
    return files_of(folder, "json")


def rows_of_one_bit_at(folder: Path) -> TriedTarget:
    rows = pa.table({"is": pa.repeat(pa.scalar(True), 100_000_000)})
    pq.write_table(rows, folder_at(folder), row_group_size=len(rows), compression="zstd")
    return files_of(folder)


def test_rows_are_counted_whatever_a_file_says_of_all_of_them(tmp_path: Path) -> None:
    rows = pa.table({"is": [True] * 100_000})
    orc.write_table(rows, tmp_path / "a", compression="uncompressed")
    data = bytearray((tmp_path / "a").read_bytes())
    named = b"\x30\xa0\x8d\x06"  # the sixth field of the footer: 100 000 rows
    at = data.rindex(named)
    data[at : at + len(named)] = b"\x30\x81\x80\x00"
    (tmp_path / "b").write_bytes(data)
    assert orc.ORCFile(tmp_path / "b").nrows == 1
    least = rows.num_rows * limits.TRIED_ROW
    assert [unpacked_size(tmp_path / name, "orc") >= least for name in "ab"] == [True, True]


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        delta_at,
        iceberg_at,
        files_at,
        zipped_at,
        nameless_at,
        nearly_hidden_at,
        damaged_at,
        second_stream_at,
        zstd_at,
        skipping_at,
        claiming_at,
        claiming_text_at,
        rows_of_one_bit_at,
    ],
)
def test_small_files_whose_rows_unpack_to_gigabytes_are_not_read(
    tmp_path: Path, make: Callable[[Path], TriedTarget]
) -> None:
    tried = make(tmp_path / "t")
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.*") if file.is_file()) < 2_000_000
    with pytest.raises(RefusedError, match=r"of sink 'a' cannot be read with 512 MiB of memory"):
        LimitedTargets({"a": tried}).require("a")


def test_the_rows_of_usual_files_are_within_the_limits(tmp_path: Path) -> None:
    rows = pa.table({"n": list(range(1000)), "word": ["a"] * 1000})
    pq.write_table(rows, folder_at(tmp_path / "parquet"))
    orc.write_table(rows, folder_at(tmp_path / "orc", "part-0.orc"))
    text = b'{"n":1}\n' * 1000
    for name, data in {
        "part-0.json": text,
        "part-0.json.gz": gzip.compress(text),
        "part-0.json.bz2": bz2.compress(text) * 2,
        "part-0.json.deflate": zlib.compress(text) * 2,
        "part-0.json.zst": pa.compress(text, codec="zstd", asbytes=True) * 2,
    }.items():
        folder_at(tmp_path / name, name).write_bytes(data)
    kinds = {"parquet": "parquet", "orc": "orc"}
    tried = {
        folder.name: files_of(folder, kinds.get(folder.name, "json"))
        for folder in tmp_path.iterdir()
    }
    targets = LimitedTargets(tried)
    for name in tried:
        targets.require(name)


def test_what_a_file_takes_that_only_spark_can_read_is_not_known(tmp_path: Path) -> None:
    """Java takes any name for a time zone; the other library reads no such column."""
    times = pa.array([[{"t": 0}]], pa.list_(pa.struct([("t", pa.timestamp("us"))])))
    odd = folder_at(tmp_path / "odd", "part-0.orc")
    orc.write_table(pa.table({"v": times, "n": [1]}), odd, compression="uncompressed")
    odd.write_bytes(odd.read_bytes().replace(b"GMT", b"ZZZ"))
    orc.write_table(pa.table({"n": [1]}), folder_at(tmp_path / "usual", "part-0.orc"))
    folder_at(tmp_path / "broken", "part-0.orc").write_bytes(b"no rows")
    tried = {folder.name: files_of(folder, "orc") for folder in tmp_path.iterdir()}
    targets = LimitedTargets(tried)
    assert {name for name in [*tried, "named"] if targets.is_sure(name)} == {"usual", "named"}


def hollow(path: Path) -> None:
    """Zeros in a file of columns, none of which are stored."""
    rows = pa.table({"n": pa.repeat(0, 4_000_000), "word": pa.nulls(4_000_000, pa.string())})
    pq.write_table(rows, path, compression="none", use_dictionary=False)
    data = path.read_bytes()
    with open(path, "wb") as file:
        file.truncate(len(data))
        for at in range(0, len(data), 4096):
            if any(block := data[at : at + 4096]):
                file.seek(at)
                file.write(block)


def test_a_file_that_is_mostly_a_hole_gets_no_time_and_memory_by_its_length(tmp_path: Path) -> None:
    path = folder_at(tmp_path / "t")
    hollow(path)
    assert list(tried_folders._files(str(path.parent))) == []  # the audit calls it damaged
    for file in (str(path), f"file://{path}", f"file:{path}"):
        with pytest.raises(MemoryError, match="mostly a hole"):
            TriedRows(math.inf).read(file, path.stat().st_size, list)
    table = tmp_path / "table"
    target = delta_at(table)
    (rows,) = table.glob("*.parquet")
    hollow(rows)
    with pytest.raises(RefusedError, match="mostly a hole"):
        LimitedTargets({"a": target}).require("a")


def test_all_that_a_file_unpacks_to_is_counted(tmp_path: Path) -> None:
    text = b'{"n":1}\n' * 1000
    for name, data in {
        "a.gz": gzip.compress(text),
        "a.bz2": bz2.compress(text),
        "a.deflate": zlib.compress(text),
        "a.zst": pa.compress(text, codec="zstd", asbytes=True),
        "a.lz4": in_a_block(text, lz4.block.compress(text, store_size=False)),
        "a.snappy": in_a_block(text, pa.compress(text, codec="snappy", asbytes=True)),
    }.items():
        (tmp_path / name).write_bytes(data * 3)
        assert unpacked_size(tmp_path / name, "csv") == 3 * len(text)
    rows = pa.table({"n.a": list(range(1000)), "word": ["a"] * 1000, "is": [True] * 1000})
    pq.write_table(rows, tmp_path / "a")
    orc.write_table(rows, tmp_path / "b")
    least = rows.nbytes + rows.num_rows * limits.TRIED_ROW
    assert unpacked_size(tmp_path / "a", "parquet") >= least
    assert unpacked_size(tmp_path / "b", "orc") >= least


def in_a_block(plain: bytes, packed: bytes) -> bytes:
    return struct.pack(">II", len(plain), len(packed)) + packed


def unpacked_size(path: Path, file_format: str) -> int:
    pieces = tried_folders._pieces_of(str(path), file_format)
    assert pieces is not None
    return sum(pieces())


def test_a_file_is_counted_each_time_that_it_is_unpacked() -> None:
    rows = TriedRows(math.inf)
    rows._raise_limits = lambda: None  # type: ignore[method-assign]
    rows.read("a", 10, lambda: [limits.TRIED_FLOOR])
    with pytest.raises(MemoryError, match="10 bytes of files unpack to more than"):
        rows.read("a", 10, lambda: [1])


def test_a_file_that_is_gone_by_now_does_not_end_the_look_at_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs are merged meanwhile; what comes after them is tried all the same."""
    (tmp_path / "there.parquet").write_bytes(b"rows")
    names = ["gone.parquet", "there.parquet"]
    monkeypatch.setattr(os, "walk", lambda folder: iter([(folder, [], names)]))
    found = list(tried_folders._files(str(tmp_path)))
    assert found == [str(tmp_path / "there.parquet")]
