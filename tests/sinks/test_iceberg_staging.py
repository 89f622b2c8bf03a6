"""What an attempt has written is found again and removed, and nothing else is."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from seamark.sinks.iceberg.data_names import is_of_attempt, new_token
from seamark.sinks.iceberg.staging import Staging
from seamark.testing.conformance.sink_examples import Writer, epoch, receipt
from tests.sinks.support import iceberg
from tests.sinks.support.iceberg import HandWritten


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    iceberg.make_table(tmp_path)
    return tmp_path


@pytest.fixture
def writer(folder: Path) -> Writer:
    return Writer(lambda: HandWritten(iceberg.properties(folder), iceberg.TABLE), iceberg.frame)


def test_nothing_of_an_attempt_is_left_after_its_abort(writer: Writer, folder: Path) -> None:
    writer.prepare([1, 2], epoch(1), "a1")
    assert len(iceberg.data_files(folder)) == 1
    writer.new_handle().abort("a1")
    assert iceberg.data_files(folder) == set()
    assert [*folder.rglob("staging/*")] == []


def test_files_of_a_task_that_nobody_was_told_of_go_with_the_commit(
    writer: Writer, folder: Path
) -> None:
    committable = writer.prepare([1], epoch(1), "a1")
    stray = folder / f"warehouse/db/rows/data/{_name('a1')}"
    stray.write_bytes(b"half")
    table = iceberg.table_at(folder)
    Staging.of(table, iceberg.OUTPUT).note("a1", "lost", [f"file://{stray}"])
    writer.new_handle().commit(committable)
    assert not stray.exists()
    assert iceberg.data_files(folder) == iceberg.referenced_files(folder)
    assert iceberg.numbers(folder) == [1]


def test_a_crash_between_commit_and_clearing_away_loses_no_row(
    writer: Writer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise OSError("the machine is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Staging, "settle", dies)
        writer.show([1], epoch(1), "a1")
    assert writer.new_handle().leftovers() == ["a1"]
    assert writer.new_handle().newest() == receipt(1, "a1")
    writer.show([2], epoch(2), "a2")
    assert writer.new_handle().leftovers() == []
    assert writer.new_handle().committed("", 1) == receipt(1, "a1")
    assert iceberg.numbers(folder) == [1, 2]


def test_aborting_an_attempt_that_is_shown_only_clears_away(
    writer: Writer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Staging, "settle", lambda *_: None)
        writer.show([1], epoch(1), "a1")
    writer.new_handle().abort("a1")
    assert writer.new_handle().leftovers() == []
    assert iceberg.numbers(folder) == [1]
    assert writer.new_handle().newest() == receipt(1, "a1")


def test_two_outputs_share_a_table_and_nothing_else(writer: Writer, folder: Path) -> None:
    writer.show([1], epoch(1), "a1")
    other = HandWritten(iceberg.properties(folder), iceberg.TABLE)
    other.open("trades", "others", iceberg.SCHEMA)
    assert (other.newest(), other.leftovers()) == (None, [])
    writer.stage([2], epoch(2), "a2")
    other.abort("a2")
    assert writer.new_handle().leftovers() == ["a2"]


def _name(attempt: str) -> str:
    return f"00000-0-{new_token(iceberg.OUTPUT.name, attempt)}.parquet"


@pytest.mark.parametrize(
    "named",
    [
        "{folder}/precious.txt",
        "file://{folder}/precious.txt",
        "file://{table}/data/../../../../precious.txt",
        "file://{table}/data/precious.txt?/{own}",
        "file://{table}/data/precious.txt#{own}",
        "file://{table}/data/precious.txt",
        "file://{table}/data/{other}",
        "file://{table}/metadata/{own}",
        "file://{table}/data/../{own}",
        "file://{table}/data/x/../../{own}",
    ],
)
def test_a_journal_removes_nothing_that_its_attempt_cannot_have_written(
    writer: Writer, folder: Path, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    writer.stage([1], epoch(1), "a1")
    own, other = _name("a1"), _name("a2")
    table = folder / "warehouse/db/rows"
    precious = [
        folder / "precious.txt",
        table / "data/precious.txt",
        table / "data" / other,
        table / "metadata" / own,
        table / own,
    ]
    for path in precious:
        path.write_bytes(b"of somebody else")
    (table / "data/x").mkdir()
    journal = table / f"_seamark/{iceberg.OUTPUT.name}/staging/a1/journal-forged.json"
    journal.write_text(json.dumps([named.format(folder=folder, table=table, own=own, other=other)]))
    with caplog.at_level(logging.WARNING, "seamark.sinks"):
        writer.new_handle().abort("a1")
    assert [path for path in precious if not path.exists()] == []
    assert "1 files that its attempt cannot have written" in caplog.text
    assert writer.new_handle().leftovers() == []


@pytest.mark.parametrize("data", [b"{", b"[" * 100_000, b'["\xff"]', b"[1]"])
def test_a_journal_that_cannot_be_read_stops_nobody(
    writer: Writer, folder: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    writer.stage([1], epoch(1), "a1")
    (staged,) = folder.rglob("staging/a1")
    (staged / "journal-damaged.json").write_bytes(data)
    with caplog.at_level(logging.WARNING, "seamark.sinks"):
        writer.new_handle().abort("a1")
    assert "journal-damaged.json cannot be read" in caplog.text
    assert writer.new_handle().leftovers() == []


@pytest.mark.parametrize("data", [b'{"x":' + b"[" * 100_000, b'{"pipeline":"\xff"}', b"\xff"])
def test_the_record_of_an_attempt_that_cannot_be_read_is_no_record(
    writer: Writer, folder: Path, data: bytes
) -> None:
    writer.stage([1], epoch(1), "a1")
    (record,) = folder.rglob("staging/a1/epoch.json")
    record.write_bytes(data)
    assert Staging.of(iceberg.table_at(folder), iceberg.OUTPUT).staged("a1") is None


def test_files_of_every_layout_of_a_table_are_known_by_their_names() -> None:
    name = _name("a1")
    output = iceberg.OUTPUT.name
    below = ["s3://b/other", "s3://b/t/data"]
    for path in (f"day=1/word=a%2Fb/{name}", f"0101/1111/0000/{name}", f"0101/1/10101-{name}"):
        assert is_of_attempt(f"s3://b/t/data/{path}", below, output, "a1")
        assert is_of_attempt(f"s3://b/other/{path}", below, output, "a1")
        assert not is_of_attempt(f"s3://b/t/data/{path}", below, output, "a2")
        assert not is_of_attempt(f"s3://b/t/data/{path}", below, "other.sink", "a1")
        assert not is_of_attempt(f"s3://b/t/database/{path}", below, output, "a1")


@pytest.mark.parametrize(
    "properties",
    [
        {"write.object-storage.enabled": "true"},
        {
            "write.object-storage.enabled": "true",
            "write.object-storage.partitioned-paths": "false",
        },
        {"write.data.path": "file://{folder}/warehouse/elsewhere/"},
    ],
)
def test_an_abort_finds_its_files_in_every_layout_of_a_table(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    named = {name: value.format(folder=tmp_path) for name, value in properties.items()}
    iceberg.make_table(tmp_path, properties=named)
    writer = Writer(lambda: HandWritten(iceberg.properties(tmp_path), iceberg.TABLE), iceberg.frame)
    writer.prepare([1, 2], epoch(1), "a1")
    assert len(iceberg.data_files(tmp_path)) == 1
    writer.new_handle().abort("a1")
    assert iceberg.data_files(tmp_path) == set()
