"""One wrong bit, a lost file, a failing disk: nothing is shown that the sink cannot vouch for."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from seamark.errors import DamageError, StoreUnavailableError
from seamark.sinks import folders, read_receipts
from seamark.sinks.epoch_folder import drop_litter, folder_name, require_only_files
from seamark.sinks.publish import published_epochs
from seamark.testing.conformance.sink_examples import OLD, epoch, receipt
from tests.sinks.support.frames import frame
from tests.sinks.support.hand_written import (
    ROWS,
    HandWritten,
    HandWrittenParquet,
    mount_sinks,
    prepared,
    rows_below,
    shown_epoch,
    staged_files,
)
from tests.support.faults import Fault
from tests.support.recording import Recording


@pytest.fixture
def path(tmp_path: Path) -> Path:
    HandWritten(tmp_path / "rows").open("trades", "bars", None)
    return tmp_path / "rows"


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << at % 8
    file.write_bytes(data)


def test_I7_a_flipped_bit_in_any_staged_file_stops_the_commit(path: Path) -> None:
    _, committable = prepared(path)
    files = staged_files(path)
    assert len(files) > 3
    for file in files:
        whole = file.read_bytes()
        for at in range(0, len(whole), 1 if len(whole) < 50 else 13):
            flip(file, at)
            with pytest.raises(DamageError):
                HandWritten(path).commit(committable)
            file.write_bytes(whole)
    assert rows_below(path) == []
    HandWritten(path).commit(committable)
    assert rows_below(path) == ROWS


def test_I7_a_flipped_bit_is_noticed_by_the_process_that_prepared(path: Path) -> None:
    sink, committable = prepared(path)
    file = staged_files(path)[-1]
    stat = file.stat()
    flip(file, 3)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    with pytest.raises(DamageError, match=file.name):
        sink.commit(committable)
    assert rows_below(path) == []


def test_I7_a_flipped_bit_in_a_published_record_is_never_believed(path: Path) -> None:
    committable = shown_epoch(path)
    record = path / "epoch=000001" / "_seamark.json"
    whole = record.read_bytes()
    for at in range(len(whole)):
        flip(record, at)
        sink = HandWritten(path)
        for question in (
            lambda sink=sink: sink.committed(OLD, 1),
            sink.newest,
            lambda: read_receipts(path),
            lambda sink=sink: sink.commit(committable),
        ):
            with pytest.raises(DamageError):
                question()
        record.write_bytes(whole)
    assert HandWritten(path).newest() == receipt(1, "a1")


def lose(folder: Path) -> None:
    next(folder.glob("part-*")).unlink()


def add(folder: Path) -> None:
    (folder / "part-99999.json").write_text('{"n":99}\n')


def cut(folder: Path) -> None:
    file = next(folder.glob("part-*"))
    file.write_bytes(file.read_bytes()[:-1])


def lose_the_record(folder: Path) -> None:
    (folder / "_seamark.json").unlink()


@pytest.mark.parametrize("harm", [lose, add, cut, lose_the_record])
def test_what_is_not_what_was_prepared_is_not_published(
    harm: Callable[[Path], None], path: Path
) -> None:
    sink, committable = prepared(path)
    harm(path / "_seamark/staging/a1/epoch=000001")
    for by in (sink, HandWritten(path)):
        with pytest.raises(DamageError, match="cannot be published"):
            by.commit(committable)
    assert rows_below(path) == []


def test_rows_staged_again_after_the_decision_are_not_published(path: Path) -> None:
    _, decided = prepared(path)
    again = HandWritten(path)
    again.stage(frame([99]), epoch(1), "a1")
    again.prepare()
    with pytest.raises(DamageError, match="not the one that the checkpoint knows"):
        HandWritten(path).commit(decided)
    assert rows_below(path) == []


def test_other_rows_published_under_the_same_names_are_noticed(path: Path) -> None:
    committable = shown_epoch(path)
    with pytest.raises(DamageError, match="not the one that was prepared"):
        HandWritten(path).commit({**committable, "digest": "0" * 64})


def test_neither_staged_nor_published_is_damage_and_says_so(path: Path) -> None:
    sink, committable = prepared(path)
    sink.abort("a1")
    with pytest.raises(DamageError, match="neither published nor staged") as caught:
        sink.commit(committable)
    assert "mounted" in str(caught.value)
    shutil.rmtree(path)
    with pytest.raises(DamageError, match="neither published nor staged"):
        HandWritten(path).commit(committable)
    assert not path.exists()


def test_a_flipped_bit_among_many_files_is_found(tmp_path: Path) -> None:
    sink = HandWrittenParquet(tmp_path, parts=40)
    sink.stage(frame(range(80)), epoch(1), "a1")
    committable = sink.prepare()
    assert committable["files"] == 40
    flip(next(tmp_path.glob("_seamark/staging/a1/*/half=0/part-00038.parquet")), 0)
    with pytest.raises(DamageError, match=r"half=0/part-00038\.parquet"):
        HandWrittenParquet(tmp_path).commit(committable)


# errors of the disk


@pytest.mark.parametrize("call", ["fsync", "open", "scandir", "write"])
def test_an_error_of_the_disk_while_preparing_shows_nothing(
    call: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = HandWritten(path)
    sink.stage(frame(ROWS), epoch(1), "a1")
    fault = Fault("fail_before", rf"^{call} ")
    recording = Recording(faults=[fault])
    mount_sinks(monkeypatch, recording.wrap(os), recording.wrap(fcntl))
    with pytest.raises(StoreUnavailableError, match="making durable"):
        sink.prepare()
    mount_sinks(monkeypatch, os, fcntl)
    assert recording.fired(fault)
    assert rows_below(path) == []
    sink.abort("a1")
    assert sink.leftovers() == []


def test_a_full_disk_says_what_to_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = HandWritten(path)
    sink.stage(frame(ROWS), epoch(1), "a1")
    recording = Recording(faults=[Fault("disk_full", "_seamark.json")])
    mount_sinks(monkeypatch, recording.wrap(os), recording.wrap(fcntl))
    with pytest.raises(StoreUnavailableError, match="free some space"):
        sink.prepare()


@pytest.mark.parametrize("kind", ["fail_before", "fail_after"])
@pytest.mark.parametrize("call", ["rename", "fsync"])
def test_a_commit_that_failed_is_repeated_with_success(
    call: str, kind: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, committable = prepared(path)
    fault = Fault(kind, rf"^{call} ")  # type: ignore[arg-type]
    recording = Recording(faults=[fault])
    mount_sinks(monkeypatch, recording.wrap(os), recording.wrap(fcntl))
    with pytest.raises(StoreUnavailableError, match="publishing"):
        sink.commit(committable)
    assert recording.fired(fault)
    sink.commit(committable)
    mount_sinks(monkeypatch, os, fcntl)
    assert rows_below(path) == ROWS
    assert sink.leftovers() == []


def test_an_abort_waits_for_a_dying_spark_that_still_writes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(path)
    late = [path / "_seamark/staging/a1/part-late.json", path / "_seamark/staging/a1/part-2.json"]
    recording = Recording()

    def a_last_write(folder: str) -> None:
        if folder.endswith("/a1") and late:
            late.pop().touch()
        os.rmdir(folder)

    wrapped = recording.wrap(os)
    wrapped.rmdir = a_last_write
    mount_sinks(monkeypatch, wrapped, recording.wrap(fcntl))
    HandWritten(path).abort("a1")
    assert late == []
    assert HandWritten(path).leftovers() == []


def test_an_abort_that_never_comes_to_an_end_says_why(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(path)
    monkeypatch.setattr(folders, "_PAUSE", 0.0)
    full = OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
    recording = Recording(faults=[Fault("fail_before", "^rmdir", count=None, error=full)])
    mount_sinks(monkeypatch, recording.wrap(os), recording.wrap(fcntl))
    with pytest.raises(StoreUnavailableError, match="earlier run still alive"):
        HandWritten(path).abort("a1")


# links


@pytest.mark.parametrize("name", ["_seamark", "_seamark/staging", "_seamark/staging/a1"])
def test_nothing_is_removed_through_a_link_in_the_sinks_folder(path: Path, name: str) -> None:
    prepared(path)
    there = path.parent / "elsewhere"
    (path / name).rename(there)
    (path / name).symlink_to(there)
    before = sorted(there.rglob("*"))
    with pytest.raises(StoreUnavailableError, match="is a link"):
        HandWritten(path).abort("a1")
    with pytest.raises(StoreUnavailableError, match="is a link"):
        HandWritten(path).stage(frame(ROWS), epoch(1), "a1")
    assert sorted(there.rglob("*")) == before


def test_a_link_in_the_place_of_a_staged_file_is_never_shown(path: Path) -> None:
    _, committable = prepared(path)
    file = next(one for one in staged_files(path) if one.name.startswith("part-"))
    file.rename(path.parent / "elsewhere")
    file.symlink_to(path.parent / "elsewhere")
    with pytest.raises((DamageError, StoreUnavailableError)):
        HandWritten(path).commit(committable)
    assert rows_below(path) == []


def test_a_pipe_in_the_place_of_a_record_is_damage_and_not_waited_for(path: Path) -> None:
    shown_epoch(path)
    record = path / "epoch=000001" / "_seamark.json"
    record.unlink()
    os.mkfifo(record)
    with pytest.raises(DamageError, match="regular file"):
        read_receipts(path)


def test_only_what_hadoop_left_is_litter(tmp_path: Path) -> None:
    kept = ["part-0.parquet", "_kind=a/part-1.parquet", "day=1/_kind=b/part-2.parquet"]
    litter = [
        "_SUCCESS",
        ".part-0.parquet.crc",
        "_temporary/0/part-9.parquet",
        "day=1/.part-2.parquet.crc",
        "_kind=a/_temporary/x",
    ]
    for name in kept + litter:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    drop_litter(str(tmp_path), empty_files=False)
    left = [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()]
    assert sorted(left) == sorted(kept)


def test_a_link_in_the_place_of_an_epoch_is_not_listed_read_or_moved(path: Path) -> None:
    sink, committable = prepared(path)
    sink.commit(committable)
    there = path.parent / "elsewhere"
    (path / folder_name(1)).rename(there)
    (path / folder_name(1)).symlink_to(there)
    before = sorted(there.rglob("*"))
    for act in (
        lambda: published_epochs(str(path)),
        lambda: read_receipts(path),
        lambda: HandWritten(path).unpublish_after(0),
        lambda: HandWritten(path).newest(),
    ):
        with pytest.raises(StoreUnavailableError, match="is a link"):
            act()
    assert sorted(there.rglob("*")) == before


def test_the_folder_of_a_sink_may_be_a_link_itself(path: Path) -> None:
    sink, committable = prepared(path)
    sink.commit(committable)
    link = path.parent / "link"
    link.symlink_to(path)
    assert published_epochs(str(link)) == [1]


@pytest.mark.parametrize("name", ["part-1.parquet", "day=1/part-1.parquet", "day=2", "_hidden"])
def test_links_and_pipes_below_an_epoch_are_found_before_it_is_read(
    tmp_path: Path, name: str
) -> None:
    folder = tmp_path / folder_name(1)
    (folder / "day=1").mkdir(parents=True)
    (folder / "day=1" / "part-0.parquet").write_bytes(b"")
    require_only_files(str(folder))
    (folder / name).symlink_to(tmp_path)
    with pytest.raises(StoreUnavailableError, match="is a link"):
        require_only_files(str(folder))
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(DamageError, match="neither a file nor a folder"):
        require_only_files(str(folder))


def test_a_file_of_an_epoch_that_is_mostly_a_hole_is_damage(tmp_path: Path) -> None:
    """Spark would read gigabytes of nothing."""
    folder = tmp_path / folder_name(1)
    folder.mkdir()
    (folder / "part-0.json").write_bytes(b"{}\n" * 1_000_000)
    require_only_files(str(folder))
    os.truncate(folder / "part-0.json", 1 << 40)
    with pytest.raises(DamageError, match="mostly a hole"):
        require_only_files(str(folder))


def test_an_epoch_that_is_gone_is_fine_and_one_that_is_a_file_is_damage(
    tmp_path: Path,
) -> None:
    require_only_files(f"{tmp_path}/{folder_name(1)}")
    (tmp_path / folder_name(2)).write_bytes(b"")
    with pytest.raises(DamageError, match="neither a file nor a folder"):
        require_only_files(f"{tmp_path}/{folder_name(2)}")
