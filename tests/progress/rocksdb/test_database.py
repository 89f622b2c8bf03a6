"""Readers beside a writer that takes sessions over as files, and folders that go and come."""

from __future__ import annotations

import gc
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from seamark.errors import RefusedError, StoreUnavailableError
from seamark.progress import SourceCheckpoint, SourceCheckpointStore, open_progress
from seamark.progress.rocksdb import database
from seamark.progress.rocksdb import ledger as backend
from tests.progress.support.children import hold, running

LARGE = 1000
KEYS = (b"a", b"b", b"c")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"rocksdb://{tmp_path}/progress"


@pytest.fixture
def _files_from_a_kilobyte_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_LARGE", LARGE)


def write(store: SourceCheckpointStore, number: int, size: int, *, clear: bool = False) -> None:
    """A session whose every value carries its number."""
    with store.session() as s:
        if clear:
            s.clear("view")
        s.put_many("view", [(key, b"%d:" % number + b"x" * size) for key in KEYS])
        s.stage_checkpoint("source", number)


def seen(store: SourceCheckpointStore) -> int:
    """The one number that everything carries, whichever way it is read."""
    rows = {key: int(value.partition(b":")[0]) for key, value in store.items("view")}
    single = {int((store.get("view", key) or b"0").partition(b":")[0]) for key in KEYS}
    found = store.read_checkpoint("source")
    number = found.sequence if found else 0
    assert rows == dict.fromkeys(KEYS, number)
    assert single == {number}
    assert store.read_all_checkpoints() == {"source": SourceCheckpoint(number, None)}
    return number


# sessions that are taken over as files


@pytest.mark.usefixtures("_files_from_a_kilobyte_on")
@pytest.mark.parametrize("forget", [False, True])
def test_a_session_that_clears_does_not_hide_one_that_is_taken_over_as_a_file(
    url: str, forget: bool
) -> None:
    with open_progress(url) as store, open_progress(url, read_only=True) as reader:
        write(store, 1, 1)
        assert seen(reader) == 1
        for number in range(2, 12, 2):
            if forget:
                store.clear_checkpoints()
            write(store, number, 1, clear=True)
            assert seen(reader) == number
            write(store, number + 1, LARGE)
            assert seen(reader) == number + 1
        assert seen(store) == 11


@pytest.mark.usefixtures("_files_from_a_kilobyte_on")
def test_a_session_that_clears_is_taken_over_as_a_file_with_what_it_clears(
    url: str, tmp_path: Path
) -> None:
    with open_progress(url) as store, open_progress(url, read_only=True) as reader:
        with store.session() as s:
            s.put_many("view", [(key, b"0:") for key in (*KEYS, b"d")])
            s.put("viewer", b"a", b"another space")
        write(store, 1, LARGE, clear=True)
        assert [*tmp_path.glob("progress/*.sst")]
        assert seen(reader) == seen(store) == 1
        assert dict(reader.items("viewer")) == {b"a": b"another space"}


class Around:
    """A database that does something right before and right after it takes a file over."""

    def __init__(self, real: Any, what: Callable[[], None]) -> None:
        self._real, self._what = real, what

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def ingest_external_file(self, *arguments: Any) -> None:
        self._what()
        self._real.ingest_external_file(*arguments)
        self._what()


@pytest.mark.usefixtures("_files_from_a_kilobyte_on")
@pytest.mark.parametrize("clear", [False, True])
def test_a_reader_sees_no_mixture_around_the_taking_over_of_a_file(url: str, clear: bool) -> None:
    saw = []
    with open_progress(url) as store, open_progress(url, read_only=True) as reader:
        write(store, 1, 1)
        write(store, 2, 1, clear=clear)
        assert seen(reader) == 2

        def look() -> None:
            saw.append(seen(reader))
            with open_progress(url, read_only=True) as fresh:
                assert seen(fresh) == saw[-1], "both see all of it or nothing"

        primary = cast(Any, store)._ledger._database
        primary._rdict = Around(primary._rdict, look)
        write(store, 3, LARGE)
        assert saw == [2, 3]
        assert seen(reader) == 3


# folders that go and come


@pytest.fixture
def reader(url: str) -> Iterator[SourceCheckpointStore]:
    """A reader that has read a first history, whose writer is closed."""
    with open_progress(url) as store:
        write(store, 1, 1)
        with store.session() as s:
            s.put("old", b"key", b"value")
    with open_progress(url, read_only=True) as opened:
        assert seen(opened) == 1
        yield opened


def test_a_reader_of_a_folder_that_is_made_anew_reads_the_new_one(
    url: str, tmp_path: Path, reader: SourceCheckpointStore
) -> None:
    for number in (7, 2, 9):
        shutil.rmtree(tmp_path / "progress")
        with open_progress(url) as store:
            write(store, number, 1)
            assert seen(reader) == number
            assert dict(reader.items("old")) == {}
            write(store, number + 1, 1)
            assert seen(reader) == number + 1
        assert seen(reader) == number + 1


def test_a_reader_of_a_folder_that_is_removed_says_so_until_there_is_one_again(
    url: str, tmp_path: Path, reader: SourceCheckpointStore
) -> None:
    shutil.rmtree(tmp_path / "progress")
    for _ in range(2):
        for read in (reader.read_all_checkpoints, lambda: reader.get("view", b"a")):
            with pytest.raises(StoreUnavailableError, match="no progress store"):
                read()
    assert not (tmp_path / "progress").exists()
    with open_progress(url) as store:
        write(store, 4, 1)
    assert seen(reader) == 4


# the garbage collector


def test_a_handle_that_is_collected_while_another_folder_is_opened_lets_go_of_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = f"rocksdb://{tmp_path}/first", f"rocksdb://{tmp_path}/second"
    opened: list[SourceCheckpointStore] = []
    real = database._options

    def options(*, create: bool) -> Any:
        gc.collect()  # it may start at any moment, so also here
        return real(create=create)

    gc.disable()
    try:
        cycle: list[object] = [open_progress(first)]
        cycle.append(cycle)
        del cycle
        monkeypatch.setattr(database, "_options", options)
        opening = threading.Thread(target=lambda: opened.append(open_progress(second)), daemon=True)
        opening.start()
        opening.join(280)
        assert not opening.is_alive(), "it waits for itself"
    finally:
        gc.enable()
    with running(hold, first) as child:
        assert child.hear() == "open"
    write(opened[0], 1, 1)
    assert seen(opened[0]) == 1
    opened[0].close()
    with open_progress(first) as store:
        write(store, 1, 1)


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why the next openings beside a writer fail, each once."""
    opened, failures = database.Secondary._opened, list[str]()

    def fails_once(self: database.Secondary) -> Any:
        if failures:
            raise StoreUnavailableError(failures.pop())
        return opened(self)

    monkeypatch.setattr(database.Secondary, "_opened", fails_once)
    return failures


def test_a_reader_that_cannot_open_the_database_again_at_once_tries_once_more(
    url: str, failures: list[str]
) -> None:
    with open_progress(url) as writer, open_progress(url, read_only=True) as reader:
        write(writer, 1, 10)
        secondary = cast("Any", reader)._ledger._database
        failures.append("a file was removed just now")
        secondary._rdict.close()  # then it cannot catch up, as after a file was removed
        assert seen(reader) == 1
        assert not failures


def test_a_reader_that_comes_while_the_writer_starts_tries_once_more(
    url: str, failures: list[str]
) -> None:
    with open_progress(url) as writer:
        write(writer, 1, 10)
        failures.append("the primary may have switched to a new MANIFEST and deleted the old one")
        with open_progress(url, read_only=True) as reader:
            assert seen(reader) == 1
        assert not failures


# what the writer's RocksDB does to its files


FILES = (
    "flush write compact",  # the reader has older rows in memory than there are in files
    "start write compact",
    "compact write flush compact",
    "flush write look write compact start",
    "write flush large compact look write start",
    "large write large look compact large start",
)


@pytest.mark.usefixtures("_files_from_a_kilobyte_on")
@pytest.mark.parametrize("steps", FILES)
def test_I2_a_reader_sees_the_newest_rows_whatever_the_writer_does_to_its_files(
    url: str, steps: str
) -> None:
    number = 1
    writer = open_progress(url)
    write(writer, number, 10)
    with open_progress(url, read_only=True) as reader:
        assert seen(reader) == number
        for step in steps.split():
            if step in ("write", "large"):
                number += 1
                write(writer, number, 2 * LARGE if step == "large" else 10)
            elif step == "look":
                assert seen(reader) == number
            elif step == "start":
                writer.close()
                writer = open_progress(url)
            elif step == "flush":
                rocksdb_of(writer).flush()
            else:
                rocksdb_of(writer).compact_range(None, None)
        assert seen(reader) == number
        assert seen(reader) == number, "also at the second look"
    writer.close()


def rocksdb_of(store: SourceCheckpointStore) -> Any:
    return cast("Any", store)._ledger._database._rdict


def test_I2_files_that_change_while_a_reader_opens_them_are_read_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, changes = database.Secondary._opened, list[int]()
    with open_progress(url) as writer, open_progress(url, read_only=True) as reader:
        write(writer, 1, 10)
        rocksdb_of(writer).flush()

        def changed_meanwhile(self: database.Secondary) -> Any:
            found = opened(self)
            if len(changes) < 5:  # more often than a failure is tried again
                changes.append(len(changes) + 2)
                write(writer, changes[-1], 10)
                rocksdb_of(writer).compact_range(None, None)
            return found

        monkeypatch.setattr(database.Secondary, "_opened", changed_meanwhile)
        assert seen(reader) == 6
        assert changes == [2, 3, 4, 5, 6]


def test_a_reader_of_files_that_never_stay_the_same_says_so(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = database.Secondary._opened
    monkeypatch.setattr(database, "_PATIENCE", 0.1)
    with open_progress(url) as writer, open_progress(url, read_only=True) as reader:
        write(writer, 1, 10)

        def always_changed(self: database.Secondary) -> Any:
            found = opened(self)
            write(writer, 2, 10)
            rocksdb_of(writer).flush()
            return found

        monkeypatch.setattr(database.Secondary, "_opened", always_changed)
        rocksdb_of(writer).flush()
        with pytest.raises(StoreUnavailableError, match="changed at every look"):
            reader.get("view", b"a")


def test_a_reader_that_is_closed_while_another_thread_looks_stays_closed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_progress(url) as writer:
        write(writer, 1, 10)
        reader = open_progress(url, read_only=True)
        secondary = cast("Any", reader)._ledger._database
        look = secondary._manifest
        closing = threading.Thread(target=reader.close)

        def closed_meanwhile() -> Any:
            if closing.ident is None:
                closing.start()
                closing.join(0.5)
            return look()

        monkeypatch.setattr(secondary, "_manifest", closed_meanwhile)
        snapshot = secondary.snapshot()
        closing.join()
        for look_again in (secondary.snapshot, lambda: snapshot.get(b"a")):
            with pytest.raises(RefusedError, match="closed in the meantime"):
                look_again()
        assert secondary._rdict is None
        assert not Path(secondary._scratch.name).exists()
