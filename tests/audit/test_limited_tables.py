"""An audit of anybody's store opens no table that takes too much memory or time."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seamark import limits, open_store
from seamark._common.limited_process import ask_process
from seamark.audit import iceberg
from seamark.audit.auditing import Access, _Reading
from seamark.audit.delta import tried_table
from seamark.audit.limited_tables import LimitedTables, TriedTable
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

    monkeypatch.setattr("seamark.audit.limited_tables.ask_process", counted)
    table = TriedTable("delta", str(tmp_path / "t"), {}, (None, 0))
    gone = TriedTable("delta", str(tmp_path / "gone"), {}, (None,))
    tried = LimitedTables({"a": table, "b": table, "gone": gone})
    for sink in ("a", "b", "gone", "unknown"):
        tried.require(sink)
    assert len(asked) == 1
    assert asked[0].count(b'"place"') == 2


def test_a_table_that_never_answers_is_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TABLE_PATIENCE", 0)
    tried = LimitedTables({"a": TriedTable("delta", str(tmp_path), {}, (None,))})
    with pytest.raises(StoreUnavailableError, match="'a' has not answered"):
        tried.require("a")


def test_the_versions_that_are_tried_are_those_that_are_opened(tmp_path: Path) -> None:
    found = of_table("delta", str(tmp_path), version=7)
    assert tried_table(found, {}) == TriedTable("delta", str(tmp_path), {}, (None, 7))
    every = replace(found, options={"mode": "overwrite"}, epochs=found.epochs * 2)
    assert tried_table(every, {}) == TriedTable("delta", str(tmp_path), {}, (None, 7))
    assert tried_table(replace(found, target="http://x/t"), {}) is None
    assert tried_table(replace(found, epochs=()), {}) is None


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
    tried = iceberg.tried_table(found, {}, "")
    assert tried is not None
    LimitedTables({"a": tried}).require("a")
    for path, times in ((manifest.manifest_path, 3_000), (snapshot.manifest_list, 200)):
        repeat_entries(Path(path.removeprefix("file://")), times)
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.avro")) < 20_000
    monkeypatch.setattr(limits, "TABLE_PATIENCE", 500)  # the processor's time counts
    with pytest.raises(RefusedError, match="cannot be read with 512 MiB of memory"):
        LimitedTables({"a": tried}).require("a")
    in_catalog = of_table("iceberg", "c.n.t", catalog="c", table="n.t")
    assert iceberg.tried_table(in_catalog, {}, "") is None
    assert iceberg.tried_table(of_table("iceberg", "c.n.t"), {}, "") is None


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
