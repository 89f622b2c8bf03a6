"""What an attempt has written is found again and removed, and nothing else is."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from seamark.errors import DamageError, RefusedError, StoreUnavailableError
from seamark.limits import LARGEST_DOCUMENT
from seamark.sinks.iceberg.data_names import is_of_attempt, new_token
from seamark.sinks.iceberg.files import Folder
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


# what others have put beside the table


def _beside(folder: Path) -> Path:
    return folder / "warehouse/db/rows/_seamark"


def _linked(place: Path, victim: Path) -> Path:
    """A link in a place that is moved into the folder that it leads to, if it is there."""
    there = victim / "there"
    if place.exists():
        place.rename(there)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        there.mkdir()
        (there / "precious.txt").write_bytes(b"mine")
    place.symlink_to(there)
    return there


def _clear_away(writer: Writer) -> None:
    sink = writer.new_handle()
    for attempt in sink.leftovers():
        sink.abort(attempt)


@pytest.mark.parametrize(
    "which",
    ["", "{output}", "{output}/staging", "{output}/staging/g0000-a", "{output}/staging/a2"],
)
def test_no_link_beside_a_table_is_followed(writer: Writer, folder: Path, which: str) -> None:
    writer.show([1], epoch(1), "a1")
    writer.prepare([2], epoch(2), "a2")
    victim = folder / "victim"
    victim.mkdir()
    place = _beside(folder) / which.format(output=iceberg.OUTPUT.name)
    there = _linked(place, victim)
    before = sorted(there.rglob("*"))
    with pytest.raises(StoreUnavailableError, match="is a link"):
        _clear_away(writer)
    with pytest.raises(StoreUnavailableError, match="is a link"):
        writer.prepare([3], epoch(3), place.name if "staging/" in which else "a3")
    assert sorted(there.rglob("*")) == before
    assert place.is_symlink()


def test_a_linked_file_of_an_attempt_is_not_read_and_only_the_link_goes(
    writer: Writer, folder: Path, tmp_path: Path
) -> None:
    writer.prepare([1], epoch(1), "a1")
    precious = tmp_path / "precious.json"
    precious.write_text("[]")
    staged = _beside(folder) / iceberg.OUTPUT.name / "staging/a1"
    (staged / "prepared").symlink_to(precious)
    writer.new_handle().abort("a1")
    assert precious.exists()
    assert not staged.exists()
    writer.prepare([1], epoch(1), "a1")
    (staged / "journal-x.json").symlink_to(precious)
    with pytest.raises(StoreUnavailableError, match=r"journal-x\.json is a link"):
        writer.new_handle().abort("a1")


def test_a_pipe_in_place_of_a_journal_is_never_waited_for(writer: Writer, folder: Path) -> None:
    writer.prepare([1], epoch(1), "a1")
    journal = _beside(folder) / iceberg.OUTPUT.name / "staging/a1/journal-x.json"
    os.mkfifo(journal)
    with pytest.raises(DamageError, match="not a regular file"):
        writer.new_handle().abort("a1")


@pytest.mark.parametrize("size", [LARGEST_DOCUMENT, LARGEST_DOCUMENT + 1])
@pytest.mark.parametrize("name", ["journal-x.json", "epoch.json"])
def test_a_file_beside_a_table_costs_no_more_than_is_stored(
    writer: Writer, folder: Path, name: str, size: int
) -> None:
    writer.prepare([1], epoch(1), "a1")
    with open(_beside(folder) / iceberg.OUTPUT.name / f"staging/a1/{name}", "wb") as file:
        file.truncate(size)
    with pytest.raises(RefusedError, match=f"has {size} bytes"):
        writer.new_handle().abort("a1")


def test_a_file_system_that_is_not_local_gives_no_more_than_the_limit(tmp_path: Path) -> None:
    io = PyArrowFileIO()
    place = Folder(io, f"file://{tmp_path}", "_seamark/out")
    place._local = None  # as on an object store
    place.write("epoch.json", b"1234")
    assert place.read("epoch.json", 4) == b"1234"
    assert place.read("gone.json", 4) is None
    with pytest.raises(RefusedError, match="more than 3 bytes"):
        place.read("epoch.json", 3)


def test_a_table_that_fsspec_reaches_is_local_as_well(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (tmp_path / "_seamark").symlink_to(victim)
    place = Folder(FsspecFileIO({}), f"file://{tmp_path}", "_seamark/out")
    with pytest.raises(StoreUnavailableError, match="is a link"):
        place.write("epoch.json", b"")
