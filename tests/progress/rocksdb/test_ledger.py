"""RocksDB for real: its lock, readers beside the writer, and sessions handed over as files."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamark.errors import FencedError, RefusedError, StoreUnavailableError
from seamark.progress import SourceCheckpoint, open_progress
from seamark.progress.rocksdb import ledger as rocksdb
from tests.progress.support.children import (
    SPACES,
    hold,
    run_sessions,
    running,
    whole_number,
    write_number,
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"rocksdb://{tmp_path}/progress"


def assert_free(url: str) -> None:
    """Another process can open it to write."""
    with running(hold, url) as child:
        assert child.hear() == "open"


# the lock


def test_a_second_process_is_told_that_there_is_a_first(url: str) -> None:
    with running(hold, url) as child:
        assert child.hear() == "open"
        with pytest.raises(FencedError, match="another process") as caught:
            open_progress(url)
        assert "read_only=True" in str(caught.value)
        child.tell(("write", 1))
        assert child.hear() == "done", "the first one is not disturbed"
    with open_progress(url) as store:
        assert whole_number(store) == 1


def test_the_lock_is_free_after_closing(url: str) -> None:
    store = open_progress(url)
    items = store.items("data")
    write_number(store, 1)
    rows = store.items(SPACES[0])
    next(rows)
    store.begin()
    store.close()
    assert_free(url)
    for left in (items, rows):
        with pytest.raises(RefusedError, match="closed"):
            next(left)


def test_the_lock_is_free_when_a_handle_is_dropped(url: str) -> None:
    store = open_progress(url)
    write_number(store, 1)
    del store
    assert_free(url)


def test_the_lock_is_free_when_a_handle_is_dropped_that_is_being_read(url: str) -> None:
    store = open_progress(url)
    write_number(store, 1)
    rows: Iterator[tuple[bytes, bytes]] = store.items(SPACES[0])
    next(rows)
    del store
    assert_free(url)
    with pytest.raises(RefusedError, match="closed"):
        next(rows)


def test_the_lock_is_free_when_a_handle_is_dropped_in_a_session(url: str) -> None:
    store = open_progress(url)
    store.begin().put("data", b"key", b"value")
    del store
    assert_free(url)


def test_the_lock_is_free_when_a_session_fails(url: str) -> None:
    def fails() -> None:
        store = open_progress(url)
        with store.session() as s:
            s.put("data", b"key", b"value")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        fails()
    del caught
    assert_free(url)


def test_a_handle_is_in_no_cycle(url: str) -> None:
    gc.disable()
    try:
        store = open_progress(url)
        write_number(store, 1)
        gone = weakref.ref(store)
        del store
        assert gone() is None
    finally:
        gc.enable()


# handles of one process


def test_handles_of_one_process_share_the_folder(url: str, tmp_path: Path) -> None:
    os.symlink(tmp_path, tmp_path / "link")
    first, second = open_progress(url), open_progress(f"rocksdb://{tmp_path}/link/progress")
    write_number(first, 1)
    assert whole_number(second) == 1
    first.close()
    write_number(second, 2)
    second.close()
    assert_free(url)


def test_a_thread_does_not_wait_for_itself(url: str) -> None:
    with open_progress(url) as first, open_progress(url) as second:
        first.begin()
        for wait in (second.begin, second.clear_checkpoints):
            with pytest.raises(RefusedError, match="another handle"):
                wait()
        first.rollback()
        write_number(second, 1)


# reading beside the writer


def test_a_reader_follows_a_writer_in_another_process(url: str) -> None:
    with running(run_sessions, url) as child:
        assert child.hear() == 0
        with open_progress(url, read_only=True) as reader:
            for _ in range(50):
                told = child.hear()
                found = reader.read_checkpoint("source")
                assert found is not None
                assert found.sequence >= told, "what was reported is seen"
                values = {value for _, value in reader.items(SPACES[0])}
                assert len(values) == 1
                assert int(values.pop()) >= found.sequence
        assert child.hear() > 0


def test_a_reader_outlives_the_writer_and_sees_the_next_one(url: str) -> None:
    with running(run_sessions, url) as child:
        child.hear()
        child.hear()
        reader = open_progress(url, read_only=True)
        child.kill()
        last = [1, *child.hear_all()][-1]
    found = whole_number(reader)
    assert found in (last, last + 1)
    with open_progress(url) as store:
        write_number(store, found + 1)
        assert whole_number(reader) == found + 1
    assert whole_number(reader) == found + 1
    reader.close()


def test_a_reader_of_nothing_says_so_and_makes_nothing(url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="no progress store"):
        open_progress(url, read_only=True)
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnavailableError):
        open_progress(f"rocksdb://{tmp_path}/file")


# large sessions


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb, "_LARGE", 0)


@pytest.mark.usefixtures("all_large")
def test_a_session_taken_over_as_a_file_is_read_by_key_and_by_range(
    url: str, tmp_path: Path
) -> None:
    with open_progress(url) as store, open_progress(url, read_only=True) as reader:
        for number in range(1, 8):
            write_number(store, number)
            for handle in (store, reader):
                text = b"%d" % number
                for space in SPACES[:2]:
                    assert handle.get(space, b"key 3") == text
                assert handle.get(SPACES[2], text) == text
                assert handle.get(SPACES[2], b"%d" % (number - 1)) is None
                assert handle.read_checkpoint("source") == SourceCheckpoint(number, text)
                assert whole_number(handle) == number
        store.write_config_hash(3)
        assert (store.read_config_hash(), reader.read_config_hash()) == (3, 3)
    assert not [*tmp_path.glob("progress/ingest-*")]
    with open_progress(url) as store:
        assert whole_number(store) == 7


def test_a_session_above_the_limit_is_taken_over_as_a_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb, "_LARGE", 100_000)
    with open_progress(url) as store:
        with store.session() as s:
            s.put("data", b"small", b"x" * 90_000)
        assert not [*tmp_path.glob("progress/*.sst")]
        with store.session() as s:
            s.put("data", b"large", b"x" * 100_000)
            s.delete("data", b"small")
            s.stage_checkpoint("s", 1, b"one")
        assert [*tmp_path.glob("progress/*.sst")]
    with open_progress(url) as store:
        assert dict(store.items("data")) == {b"large": b"x" * 100_000}
        assert store.read_checkpoint("s") == SourceCheckpoint(1, b"one")


def test_who_is_turned_away_removes_nothing_of_the_writer(url: str, tmp_path: Path) -> None:
    with running(hold, url) as child:
        assert child.hear() == "open"
        in_flight = tmp_path / "progress" / "ingest-0123"
        in_flight.write_bytes(b"being handed over")
        with pytest.raises(FencedError):
            open_progress(url)
        assert in_flight.exists()


def test_what_a_dead_process_wanted_to_hand_over_is_removed(url: str, tmp_path: Path) -> None:
    open_progress(url).close()
    (tmp_path / "progress" / "ingest-0123").write_bytes(b"half a file")
    with open_progress(url) as store:
        write_number(store, 1)
    assert not [*tmp_path.glob("progress/ingest-*")]
