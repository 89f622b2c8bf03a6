"""What the log says: which epochs are shown, which were taken back, and when nobody can tell."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from seamark.blobs.contract import KeyExists, Tag
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import (
    DamageError,
    InvalidInputError,
    LineageError,
    RefusedError,
    StoreUnavailableError,
)
from seamark.sinks import DeltaSink, Receipt
from seamark.sinks.contract import Sink
from seamark.sinks.delta.committable import list_in
from seamark.sinks.delta.file_changes import FileChange, UnnamedVersion
from seamark.sinks.delta.log import (
    Answer,
    LogEntry,
    TakenBack,
    entries_from,
    epochs_in,
    find_epoch,
    plan_take_back,
    read_entry,
)
from seamark.sinks.delta.place import TablePlace, entry_name
from seamark.sinks.delta.staging import Staging
from seamark.testing.conformance.sink_examples import (
    NEW,
    OLD,
    PIPELINE,
    SINK,
    Writer,
    epoch,
    receipt,
)
from tests.sinks.support.deltas import HandWrittenDelta, numbers, numbers_in


def shows(version: int, number: int, timeline: str = OLD) -> LogEntry:
    return LogEntry(
        version, "WRITE", "seamark", receipt(number, f"a{version}", timeline), changes_rows=True
    )


def restores(version: int, to: int, after: int | None = None) -> LogEntry:
    record = None if after is None else TakenBack(PIPELINE, SINK, after)
    return LogEntry(
        version,
        "RESTORE",
        "x",
        took_back=record,
        restored=to,
        changes_rows=True,
        changes_table=True,
    )


def other(version: int, *, rows: bool = False, table: bool = False) -> LogEntry:
    return LogEntry(version, "WRITE", "Spark 4.2", changes_rows=rows, changes_table=table)


def shown(*entries: LogEntry) -> list[tuple[int, int]]:
    """Version and epoch of what is shown, from entries in the order of the log."""
    epochs = epochs_in(reversed(entries), PIPELINE, SINK)
    return [(s.entry.version, s.receipt.epoch) for s in epochs if s.taken_by is None]


def test_a_restore_takes_away_what_came_after_the_version_it_goes_back_to() -> None:
    history = [other(0), shows(1, 1), shows(2, 2), shows(3, 3)]
    assert shown(*history) == [(3, 3), (2, 2), (1, 1)]
    assert shown(*history, restores(4, 1)) == [(1, 1)]
    assert shown(*history, restores(4, 1), shows(5, 2)) == [(5, 2), (1, 1)]
    assert shown(*history, restores(4, 1), restores(5, 3)) == [(3, 3), (2, 2), (1, 1)]
    assert shown(*history, restores(4, 1), shows(5, 2), restores(6, 2)) == [(2, 2), (1, 1)]


def test_what_cannot_be_told_is_not_guessed() -> None:
    def answer(number: int, *entries: LogEntry, attempt: str = "") -> Answer:
        return find_epoch(reversed(entries), PIPELINE, SINK, number, attempt)[0]

    whole = [other(0), shows(1, 1), other(2), shows(3, 2)]
    assert answer(2, *whole) is Answer.OURS
    assert answer(2, *whole, attempt="a3") is Answer.OURS
    assert answer(2, *whole, attempt="b") is Answer.OTHER
    assert answer(3, *whole) is Answer.ABSENT
    assert answer(1, *whole[2:]) is Answer.UNKNOWN
    assert answer(2, *whole, restores(4, 1), attempt="a3") is Answer.TAKEN
    assert answer(2, *whole, restores(4, 1), attempt="b") is Answer.ABSENT


def test_going_back_is_refused_when_others_have_written_since() -> None:
    def plan(after: int, *entries: LogEntry) -> Any:
        return plan_take_back(reversed(entries), PIPELINE, SINK, after, "here")

    history = [
        other(0),
        shows(1, 1),
        other(2, rows=True),
        shows(3, 2),
        other(4),
        shows(5, 3),
    ]
    assert plan(3, *history) is None
    made = plan(1, *history)
    assert (made.epochs, made.version, made.transactions) == ((2, 3), 2, {OLD: 1})
    assert made.now == receipt(1, "a1")
    with pytest.raises(RefusedError, match=r"since epoch 1: version 2 \(WRITE, Spark 4.2\)"):
        plan(0, *history)
    with pytest.raises(RefusedError, match=r"since epoch 3: version 6 \(WRITE, Spark 4.2\)"):
        plan(2, *history, other(6, table=True))
    assert plan(2, *history, other(6)).version == 4, "a compaction changes no rows"
    with pytest.raises(RefusedError, match="no longer says"):
        plan(0, *history[1:])
    again = [*history[:2], restores(2, 0, 0), shows(3, 1, NEW)]
    assert plan(0, *again).transactions == {NEW: 0}


def test_an_entry_that_is_not_json_is_damage_and_a_strangers_record_is_none_of_ours() -> None:
    log = MemoryBlobs()
    log.create(
        entry_name(0),
        b'{"commitInfo":{"seamark":{"shows":{"epoch":"x"}}}}\n{"txn":{"appId":"x","version":3}}\n',
    )
    log.create(entry_name(1), b'{"commitInfo":')
    assert read_entry(log, 0) == LogEntry(0, transactions={"x": 3})
    with pytest.raises(DamageError, match="entry 1"):
        read_entry(log, 1)
    assert read_entry(log, 2) is None


@pytest.mark.parametrize(
    "content",
    [
        b'{"commitInfo":{"a":' + b"[" * 100_000,
        b'{"x":' + b"[" * 100_000,
        b'{"commitInfo":{"a":"\xff"}}',
        b'{"add":{"path":1}}',
    ],
)
def test_an_entry_that_nobody_can_have_written_is_damage(content: bytes) -> None:
    log = MemoryBlobs()
    log.create(entry_name(0), content)
    with pytest.raises(DamageError, match="entry 0"):
        read_entry(log, 0)


def changing(entry: LogEntry, added: str = "", removed: str = "") -> LogEntry:
    """An entry with files, which are letters here."""
    return replace(entry, files=FileChange(frozenset(added), frozenset(removed)))


HISTORY = [
    other(0),
    changing(shows(1, 1), "a"),
    changing(shows(2, 2), "b"),
    changing(other(3), "c", "ab"),  # a compaction
    changing(shows(4, 3), "d"),
    shows(5, 4),  # an epoch without rows
]


@pytest.mark.parametrize(
    ("added", "removed", "epochs"),
    [
        ("", "", [4, 3, 2, 1]),
        ("", "d", [2, 1]),
        ("ab", "cd", [2, 1]),
        ("a", "cd", [1]),
        ("", "cd", []),
    ],
)
def test_a_restore_by_a_date_takes_away_what_its_files_tell(
    added: str, removed: str, epochs: list[int]
) -> None:
    back = changing(LogEntry(6, "RESTORE", "Spark 4.2"), added, removed)
    assert [epoch for _, epoch in shown(*HISTORY, back)] == epochs
    after = changing(shows(7, 5), "e")
    assert [epoch for _, epoch in shown(*HISTORY, back, after)] == [5, *epochs]


def test_a_restore_by_a_date_to_before_what_the_log_has_leaves_nothing_that_is_known() -> None:
    back = changing(LogEntry(6, "RESTORE", "Spark 4.2"), "", "cd")
    assert shown(*HISTORY[3:], back) == []


def test_a_search_below_a_restore_by_a_date_costs_what_each_version_has_changed() -> None:
    many = 8_000
    large = FileChange(frozenset(str(number) for number in range(40_000)))
    history = [changing(shows(1, 1), "a"), *(changing(other(n), "x") for n in range(2, many))]
    back = changing(LogEntry(many + 1, "RESTORE", "Spark 4.2"), "z")
    before = time.process_time()
    assert shown(*history, replace(other(many), files=large), back) == []
    assert time.process_time() - before < 4


def test_a_restore_undone_by_another_one_has_taken_nothing_away() -> None:
    back = changing(LogEntry(6, "RESTORE", "Spark 4.2"), "a", "cd")
    again = changing(LogEntry(7, "RESTORE", "Spark 4.2"), "cd", "a")
    assert [epoch for _, epoch in shown(*HISTORY, back, again)] == [4, 3, 2, 1]


def test_a_file_is_another_one_when_more_of_its_rows_are_deleted() -> None:
    log = MemoryBlobs()
    vector = b'{"storageType":"u","pathOrInlineDv":"x","offset":1}'
    added = b'{"add":{"path":"a%%20b","deletionVector":%b}}' % vector
    log.create(entry_name(0), added + b'\n{"remove":{"path":"a b"}}')
    entry = read_entry(log, 0)
    assert entry is not None
    assert entry.added == ("a b",)
    wanted = UnnamedVersion(FileChange(entry.files.added))
    wanted.go_before(entry.files)
    assert not wanted.is_reached
    wanted.go_before(FileChange(entry.files.removed))
    assert wanted.is_reached


def test_a_restore_to_a_version_that_is_no_number_is_not_taken_for_one() -> None:
    log = MemoryBlobs()
    for number, version in enumerate((b"null", b'"infinity"', b'"' + b"9" * 5000 + b'"')):
        about = b'{"operation":"RESTORE","operationParameters":{"version":%b}}' % version
        log.create(entry_name(number), b'{"commitInfo":%b}' % about)
        entry = read_entry(log, number)
        assert entry is not None
        assert entry.restored is None


@pytest.mark.parametrize("data", [b"{", b'{"columns":' + b"[" * 100_000, b'{"columns":{"\xff":1}}'])
def test_a_list_of_staged_files_that_cannot_be_read_is_damage(data: bytes) -> None:
    with pytest.raises(DamageError, match="list of the files of an epoch"):
        list_in(data, "here")


@pytest.mark.parametrize("data", [b'{"x":' + b"[" * 100_000, b'{"pipeline":"\xff"}', b"{}"])
def test_the_record_of_an_attempt_that_cannot_be_read_is_no_record(
    tmp_path: Path, data: bytes
) -> None:
    staging = Staging(TablePlace(tmp_path), PIPELINE, SINK, merges=False)
    staging.begin(receipt(1, "a1"))
    (record,) = tmp_path.rglob("epoch.json")
    record.write_bytes(data)
    assert staging.staged("a1") is None


class Repeating(MemoryBlobs):
    """A client that asks again when an answer is lost, and is then refused its own write."""

    def create(self, key: str, data: bytes) -> Tag:
        super().create(key, data)
        raise KeyExists(key)


def test_what_is_staged_is_noted_although_each_answer_gets_lost(tmp_path: Path) -> None:
    place = TablePlace(tmp_path)
    place.control = Repeating()
    staging = Staging(place, PIPELINE, SINK, merges=False)
    staging.begin_again(receipt(1, "a1"))
    staging.write_list("a1", b"what an earlier try has left")
    digest = staging.write_list("a1", b"what counts")
    assert staging.staged("a1") == receipt(1, "a1")
    assert staging.read_list("a1", digest) == b"what counts"


# on a real table


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "rows"


@pytest.fixture
def writer(table: Path) -> Writer:
    return Writer(lambda: HandWrittenDelta(table), numbers)


def clean_up_log(table: Path) -> None:
    """What happens 30 days later, when somebody else writes a checkpoint of the table."""
    write_deltalake(table, [*_no_rows()], mode="append", schema_mode="merge")
    handle = DeltaTable(str(table))
    handle.create_checkpoint()
    old = time.time() - 40 * 86400
    for path in (table / "_delta_log").glob("*.json"):
        if path.name != entry_name(handle.version()):
            os.utime(path, (old, old))
    handle.cleanup_metadata()


def _no_rows() -> list[Any]:
    import pyarrow as pa

    schema = pa.schema([("n", pa.int64()), ("word", pa.string())])
    return [pa.RecordBatch.from_pylist([{"n": 0, "word": "0"}], schema=schema)]


def test_the_newest_epoch_is_known_when_its_entry_was_cleaned_up(
    table: Path, writer: Writer
) -> None:
    first = writer.show([1], epoch(1), "a1")
    second = writer.show([2], epoch(2), "a2")
    clean_up_log(table)
    assert not (table / "_delta_log" / entry_name(2)).exists()
    sink = writer.new_handle()
    assert sink.newest() == receipt(2, "a2")
    assert sink.committed(OLD, 2) == receipt(2, "a2")
    assert sink.committed(OLD, 3) is None
    for committable in (first, second):
        sink.commit(committable)
    assert numbers_in(table) == [0, 1, 2]
    assert sink.leftovers() == []
    sink.abort("a2")
    with pytest.raises(LineageError):
        sink.commit(writer.prepare([3], epoch(2, NEW), "b2"))
    with pytest.raises(RefusedError, match="no longer says"):
        sink.require_unpublish_after(1)
    writer.show([3], epoch(3), "a3")
    assert sink.newest() == receipt(3, "a3")
    assert numbers_in(table) == [0, 1, 2, 3]


@pytest.mark.parametrize("is_known", [False, True])
def test_a_table_that_goes_on_and_is_cleaned_up_beside_a_look_is_not_damaged(
    table: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    for number in (1, 2):
        writer.show([number], epoch(number), f"a{number}")
    sink = writer.new_handle()
    if is_known:
        assert sink.newest() == receipt(2, "a2")

    def go_on() -> None:
        writer.show([3], epoch(3), "a3")
        clean_up_log(table)

    after_the_first_find(monkeypatch, go_on)
    assert sink.newest() == receipt(3, "a3")


def test_an_epoch_that_is_taken_back_and_cleaned_up_beside_a_look_is_absent(
    table: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        writer.show([number], epoch(number), f"a{number}")
    sink = writer.new_handle()
    other = writer.new_handle()

    def take_back() -> None:
        other.unpublish_after(1)
        clean_up_log(table)

    after_the_first_find(monkeypatch, take_back)
    assert sink.committed(OLD, 2) is None


def test_a_table_that_goes_on_during_every_look_is_not_called_damaged(
    table: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.show([1], epoch(1), "a1")
    clean_up_log(table)
    (record,) = (table / "_seamark").rglob("epoch.json")
    record.unlink()
    sink = writer.new_handle()
    missing = Staging.attempts

    def beside(self: Staging) -> list[str]:
        write_deltalake(table, [*_no_rows()], mode="append")
        return missing(self)

    monkeypatch.setattr(Staging, "attempts", beside)
    with pytest.raises(StoreUnavailableError, match="during each of many looks"):
        sink.newest()


def after_the_first_find(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Let another writer do something right after the table was looked up once."""
    waiting, real = [do], TablePlace.find

    def beside(self: TablePlace) -> DeltaTable | None:
        found = real(self)
        if waiting:
            waiting.pop()()
        return found

    monkeypatch.setattr(TablePlace, "find", beside)


def test_a_repeated_commit_of_an_older_epoch_leaves_the_record_of_the_newest(
    table: Path, writer: Writer
) -> None:
    sink = writer.stage([1], epoch(1), "a1")
    first = sink.prepare()
    sink.commit(first)
    sink.stage(numbers([2]), epoch(2), "a2")
    sink.commit(sink.prepare())
    sink.commit(first)
    clean_up_log(table)
    assert writer.new_handle().newest() == receipt(2, "a2")


def test_nothing_is_guessed_when_the_record_beside_the_table_is_gone_too(
    table: Path, writer: Writer
) -> None:
    committable = writer.show([1], epoch(1), "a1")
    clean_up_log(table)
    (record,) = (table / "_seamark").rglob("epoch.json")
    record.unlink()
    sink = writer.new_handle()
    for ask in (sink.newest, lambda: sink.committed(OLD, 1)):
        with pytest.raises(DamageError, match="no longer says"):
            ask()
    sink.commit(committable)
    assert numbers_in(table) == [0, 1]


def test_a_restore_by_somebody_else_is_noticed_and_a_rollback_goes_on_from_there(
    table: Path, writer: Writer
) -> None:
    writer.show([1], epoch(1), "a1")
    second = writer.show([2], epoch(2), "a2")
    DeltaTable(str(table)).restore(1)
    sink = writer.new_handle()
    assert sink.newest() == receipt(1, "a1")
    assert sink.committed(OLD, 2) is None
    with pytest.raises(LineageError, match="taken away by version 3"):
        sink.commit(second)
    writer.show([20], epoch(2, NEW), "b2")
    assert numbers_in(table) == [1, 20]
    DeltaTable(str(table)).restore(2)
    assert writer.new_handle().newest() == receipt(2, "a2")


def test_an_epoch_that_was_taken_back_is_not_shown_again_by_who_was_asleep(
    table: Path, writer: Writer
) -> None:
    writer.show([1], epoch(1), "a1")
    asleep = writer.stage([2], epoch(2), "a2")
    committable = asleep.prepare()
    writer.new_handle().commit(committable)
    assert writer.new_handle().unpublish_after(1) == [2]
    with pytest.raises((DamageError, LineageError)):
        asleep.commit(committable)
    assert numbers_in(table) == [1]


def shown_to_2(writer: Writer) -> Sink:
    sink = writer.stage([1], epoch(1), "a1")
    sink.commit(sink.prepare())
    time.sleep(0.01)  # dates are in milliseconds
    writer.stage([2], epoch(2), "a2", by=sink)
    sink.commit(sink.prepare())
    return sink


def put_back(table: Path) -> None:
    """The log as it was before the last entry, as from a backup, or by a lagging replica."""
    os.unlink(table / "_delta_log" / entry_name(DeltaTable(str(table)).version()))


def restore(table: Path) -> None:
    handle = DeltaTable(str(table))
    handle.restore(handle.version() - 1)


def restore_by_date(table: Path) -> None:
    """As somebody does who knows when the table was right, and not its version."""
    handle = DeltaTable(str(table))
    first, last = (entry["timestamp"] for entry in (handle.history()[1], handle.history()[0]))
    handle.restore(datetime.fromtimestamp((first + last) / 2000, UTC))


@pytest.mark.parametrize("lose", [put_back, restore, restore_by_date])
def test_no_epoch_is_written_after_one_that_the_table_has_lost(
    table: Path, writer: Writer, lose: Callable[[Path], None]
) -> None:
    sink = shown_to_2(writer)
    lose(table)
    with pytest.raises(LineageError, match=r"no longer shows epoch 2|epoch 2 .* taken away"):
        writer.stage([3], epoch(3), "a3", by=sink)
    assert numbers_in(table) == [1]
    assert not [*table.rglob("a3")]


@pytest.mark.parametrize("lose", [put_back, restore, restore_by_date])
def test_no_epoch_is_shown_after_one_that_the_table_has_lost(
    table: Path, writer: Writer, lose: Callable[[Path], None]
) -> None:
    sink = shown_to_2(writer)
    writer.stage([3], epoch(3), "a3", by=sink)
    third = sink.prepare()
    lose(table)
    with pytest.raises(LineageError, match=r"no longer shows epoch 2|epoch 2 .* taken away"):
        sink.commit(third)
    assert numbers_in(table) == [1]


def test_an_epoch_that_this_run_has_taken_back_is_not_missed(table: Path, writer: Writer) -> None:
    sink = shown_to_2(writer)
    assert sink.unpublish_after(1) == [2]
    writer.stage([20], epoch(2, NEW), "b2", by=sink)
    sink.commit(sink.prepare())
    assert numbers_in(table) == [1, 20]


def test_what_was_taken_back_can_still_be_read_at_its_version(table: Path, writer: Writer) -> None:
    writer.show([1], epoch(1), "a1")
    writer.show([2], epoch(2), "a2")
    writer.new_handle().unpublish_after(0)
    for attempt in writer.new_handle().leftovers():
        writer.new_handle().abort(attempt)
    assert numbers_in(table) == []
    assert numbers_in(table, version=2) == [1, 2]


def test_the_log_tells_everybody_whose_epoch_an_entry_is(table: Path, writer: Writer) -> None:
    writer.show([1], epoch(7), "a7")
    handle = DeltaTable(str(table))
    assert handle.transaction_version(f"seamark/{PIPELINE}/{SINK}/{OLD}") == 7
    about = handle.history(1)[0]["seamark"]["shows"]
    assert (about["epoch"], about["attempt"]) == (7, "a7")
    assert json.loads(json.dumps(about))["fingerprint"] == epoch(7).fingerprint
    entry = read_entry(FilesystemBlobs(f"{table}/_delta_log"), 1)
    assert entry is not None
    assert isinstance(entry.shows, Receipt)
    assert next(entries_from(FilesystemBlobs(f"{table}/_delta_log"), 1)) == entry


def test_a_table_whose_path_has_odd_characters_is_written_and_read(tmp_path: Path) -> None:
    table = tmp_path / "a b#c é?d"
    writer = Writer(lambda: HandWrittenDelta(table), numbers)
    writer.show([1], epoch(1), "a1")
    assert numbers_in(table) == [1]
    assert writer.new_handle().newest() == receipt(1, "a1")


def test_places_where_no_table_can_be_are_refused() -> None:
    for url in ("memory://x", "http://example.com/t"):
        with pytest.raises(InvalidInputError):
            DeltaSink(url)
    with pytest.raises(InvalidInputError, match="credentials"):
        TablePlace("s3://key:secret@bucket/t")
    with pytest.raises(InvalidInputError, match="percent"):
        DeltaSink("/data/a%20b")
