"""A FileSink publishes exactly what was prepared, and nothing in anybody else's place."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seamark._common.json_documents import seal, unseal
from seamark.errors import (
    DamageError,
    InvalidInputError,
    LineageError,
    StoreUnavailableError,
)
from seamark.sinks import epoch_folder, folders, publish, read_receipts
from seamark.testing.conformance.sink_examples import NEW, OLD, epoch, receipt
from seamark.testing.crashes import SimulatedCrash
from tests.sinks.support.frames import frame
from tests.sinks.support.hand_written import (
    ROWS,
    HandWritten,
    mount_sinks,
    prepared,
    rows_below,
    shown_epoch,
    staged_files,
)
from tests.support.recording import Recording


@pytest.fixture
def path(tmp_path: Path) -> Path:
    HandWritten(tmp_path / "rows").open("trades", "bars", None)
    return tmp_path / "rows"


# the layout


def test_readers_see_part_files_and_everything_else_is_hidden(path: Path) -> None:
    shown_epoch(path)
    names = sorted(file.name for file in path.glob("epoch=000001/*"))
    assert names[0] == "_seamark.json"
    assert len(names) > 2
    assert all(name.startswith("part-") and name.endswith(".json") for name in names[1:])
    assert {entry.name for entry in path.iterdir()} == {"_seamark", "epoch=000001"}
    assert [*path.glob("_seamark/staging/*")] == []


def test_litter_and_files_without_a_byte_are_not_published(path: Path) -> None:
    prepared(path)
    names = [file.name for file in staged_files(path)]
    assert not [name for name in names if name.startswith(".") or "without-rows" in name]
    assert names.count("_seamark.json") == 1


def test_the_committable_says_how_much_it_is_about(path: Path) -> None:
    _, committable = prepared(path)
    files = [file for file in staged_files(path) if file.name != "_seamark.json"]
    assert committable["files"] == len(files)
    assert committable["bytes"] == sum(file.stat().st_size for file in files)
    assert committable["target"] == "epoch=000001"
    assert str(path) not in json.dumps(committable), "the folder may be moved with its store"


def test_a_committable_finds_its_rows_after_the_folder_was_moved(path: Path) -> None:
    _, committable = prepared(path)
    moved = path.rename(path.parent / "moved")
    HandWritten(moved).commit(committable)
    assert rows_below(moved) == ROWS


def test_receipts_are_read_in_the_order_of_the_epochs(path: Path) -> None:
    assert read_receipts(path) == []
    for number in (2, 1, 10, 1_000_000, 999_999):
        shown_epoch(path, number)
    assert [found.epoch for found in read_receipts(path)] == [1, 2, 10, 999_999, 1_000_000]
    assert read_receipts(path)[0] == receipt(1, "a1")


# other things in the epoch's place


def test_an_empty_folder_in_the_epochs_place_is_not_written_over(path: Path) -> None:
    _, committable = prepared(path)
    (path / "epoch=000001").mkdir()
    with pytest.raises(LineageError, match="no FileSink has published it"):
        HandWritten(path).commit(committable)
    assert [*(path / "epoch=000001").iterdir()] == []
    (path / "epoch=000001").rmdir()
    HandWritten(path).commit(committable)
    assert rows_below(path) == ROWS


def test_files_of_others_in_the_epochs_place_are_left_alone(path: Path) -> None:
    _, committable = prepared(path)
    place = path / "epoch=000001"
    place.touch()
    with pytest.raises(LineageError):
        HandWritten(path).commit(committable)
    assert place.is_file()
    place.unlink()
    place.mkdir()
    (place / "part-0.json").touch()
    with pytest.raises(LineageError):
        HandWritten(path).commit(committable)
    assert [file.name for file in place.iterdir()] == ["part-0.json"]


def test_a_visible_epoch_without_a_record_is_told_and_not_skipped(path: Path) -> None:
    shown_epoch(path)
    (path / "epoch=000002").mkdir()
    sink = HandWritten(path)
    for question in (sink.newest, lambda: sink.committed(OLD, 2), lambda: read_receipts(path)):
        with pytest.raises(DamageError, match="has no record"):
            question()
    assert sink.committed(OLD, 1) == receipt(1, "a1")


def test_the_same_input_by_another_attempt_is_told_apart(path: Path) -> None:
    shown_epoch(path)
    _, second = prepared(path, attempt="a2")
    with pytest.raises(LineageError, match="another attempt") as caught:
        HandWritten(path).commit(second)
    assert "unpublish_after(0)" in str(caught.value)


def test_the_error_names_both_timelines(path: Path) -> None:
    shown_epoch(path)
    sink = HandWritten(path)
    sink.stage(frame([9]), epoch(1, NEW), "b1")
    with pytest.raises(LineageError) as caught:
        sink.commit(sink.prepare())
    assert OLD in str(caught.value)
    assert NEW in str(caught.value)


# other processes

COMMIT_ALL = """
import json, sys
from seamark.sinks import FileSink
print("ready", flush=True)
for committable in json.loads(sys.stdin.readline()):
    FileSink(sys.argv[1]).commit(committable)
"""


def test_two_processes_commit_the_same_epochs_at_once(path: Path) -> None:
    committables = json.dumps([prepared(path, n, f"a{n}")[1] for n in range(1, 101)])
    command = [sys.executable, "-c", COMMIT_ALL, str(path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    several = [subprocess.Popen(command, **pipes) for _ in range(2)]
    for process in several:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in several:
        assert process.stdin
        process.stdin.write(committables + "\n")
        process.stdin.flush()
    for process in several:
        process.communicate(timeout=280)
        assert process.returncode == 0
    assert rows_below(path) == sorted(ROWS * 100)
    assert HandWritten(path).leftovers() == []


def test_a_folder_that_leaves_while_it_is_verified_was_published_by_another(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, committable = prepared(path)
    looked: list[str] = []
    really = epoch_folder._walk

    def publish_meanwhile(folder: str) -> object:
        if not looked:
            looked.append(folder)
            HandWritten(path).commit(committable)
        return really(folder)

    monkeypatch.setattr(epoch_folder, "_walk", publish_meanwhile)
    HandWritten(path).commit(committable)
    assert looked
    assert rows_below(path) == ROWS


def test_a_folder_of_another_history_that_comes_first_is_not_written_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, committable = prepared(path)
    other = HandWritten(path)
    other.stage(frame([9]), epoch(1, NEW), "b1")
    theirs = other.prepare()
    really = epoch_folder._walk
    came: list[str] = []

    def come_first(folder: str) -> object:
        if not came:
            came.append(folder)
            other.commit(theirs)
        return really(folder)

    monkeypatch.setattr(epoch_folder, "_walk", come_first)
    with pytest.raises(LineageError):
        HandWritten(path).commit(committable)
    assert came
    assert rows_below(path) == [9]


# the order of what is made durable


def recorded(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[str]:
    recording = Recording()
    mount_sinks(monkeypatch, recording.wrap(os), recording.wrap(fcntl))
    act()
    mount_sinks(monkeypatch, os, fcntl)
    return [str(call) for call in recording.calls]


def test_one_rename_publishes_and_both_of_its_folders_are_synced_after_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, committable = prepared(path)
    for calls in (
        recorded(monkeypatch, lambda: sink.commit(committable)),
        recorded(monkeypatch, lambda: HandWritten(path).commit(committable)),
    ):
        renames = [at for at, call in enumerate(calls) if call.startswith("rename")]
        syncs = [call for call in calls[(renames or [0])[-1] :] if call.startswith("fsync")]
        assert len(renames) <= 1
        assert syncs[0] == f"fsync {path}", "also when another has renamed it and died"


def test_what_is_taken_back_gets_its_new_name_before_it_loses_the_old_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        shown_epoch(path, number)
    calls = recorded(monkeypatch, lambda: HandWritten(path).unpublish_after(1))
    aside = f"{path}/_seamark/unpublished/{OLD}"
    renames = [at for at, call in enumerate(calls) if call.startswith("rename")]
    assert len(renames) == 2
    for at in renames:
        syncs = [call for call in calls[at:] if call.startswith("fsync")]
        assert syncs[0] == f"fsync {aside}"
        assert f"fsync {path}" in syncs


# what leads elsewhere


def _forged(folder: Path, **fields: object) -> None:
    """Change a published record, with a checksum that fits."""
    record = folder / "_seamark.json"
    told = json.loads(unseal(record.read_bytes()))
    told["receipt"] |= fields
    record.write_bytes(seal(json.dumps(told, separators=(",", ":")).encode()))


@pytest.mark.parametrize("field", ["timeline", "attempt"])
@pytest.mark.parametrize("name", ["../../../x", "/tmp/x", "", "..", "a/b", "a\x00b", "\ud800"])
def test_no_record_moves_an_epoch_out_of_its_folder(path: Path, field: str, name: str) -> None:
    shown_epoch(path)
    _forged(path / "epoch=000001", **{field: name})
    outside = sorted(path.parent.iterdir())
    with pytest.raises(DamageError):
        read_receipts(path)
    assert HandWritten(path).unpublish_after(0) == [1]
    assert rows_below(path) == []
    assert sorted(path.parent.iterdir()) == outside
    assert (path / "_seamark/unpublished/unknown/epoch=000001/_seamark.json").exists()


@pytest.mark.parametrize("linked", ["_seamark", "_seamark/staging", "_seamark/staging/a1"])
def test_nothing_is_published_from_where_a_link_leads(
    path: Path, tmp_path: Path, linked: str
) -> None:
    sink, committable = prepared(path)
    outside = tmp_path / "outside"
    (path / linked).rename(outside)
    (path / linked).symlink_to(outside)
    before = sorted(outside.rglob("*"))
    with pytest.raises(StoreUnavailableError, match="is a link"):
        sink.commit(committable)
    assert sorted(outside.rglob("*")) == before
    assert not (path / "epoch=000001").exists()


def test_a_record_cannot_name_files_of_another_folder(path: Path) -> None:
    shown_epoch(path)
    record = path / "epoch=000001" / "_seamark.json"
    told = json.loads(unseal(record.read_bytes()))
    told["files"][0]["name"] = "../../secret"
    record.write_bytes(seal(json.dumps(told, separators=(",", ":")).encode()))
    with pytest.raises(DamageError, match="could leave"):
        read_receipts(path)


# what is no use at all


@pytest.mark.parametrize("attempt", ["", "..", "a/b", ".hidden", "_x", "a:b", "a\n", "x" * 300])
def test_a_token_that_leads_elsewhere_is_refused(attempt: str, path: Path) -> None:
    shown_epoch(path)
    sink = HandWritten(path)
    with pytest.raises(InvalidInputError):
        sink.abort(attempt)
    with pytest.raises(InvalidInputError):
        sink.stage(frame([1]), epoch(2), attempt)
    assert rows_below(path) == ROWS


def test_something_that_is_no_committable_is_refused(path: Path) -> None:
    _, good = prepared(path)
    for name in ("attempt", "epoch", "digest", "timeline", "fingerprint", "sink"):
        for bad in ({**good, name: None}, {key: good[key] for key in good if key != name}):
            with pytest.raises(InvalidInputError):
                HandWritten(path).commit(bad)
    assert rows_below(path) == []


def test_preparing_needs_something_staged(path: Path) -> None:
    with pytest.raises(InvalidInputError, match="nothing was staged"):
        HandWritten(path).prepare()


def test_no_epoch_is_written_after_one_that_the_folder_has_lost(path: Path) -> None:
    sink = HandWritten(path)
    for number in (1, 2):
        sink.stage(frame(ROWS), epoch(number), f"a{number}")
        sink.commit(sink.prepare())
    (path / "epoch=000002").rename(path.parent / "lost")
    with pytest.raises(LineageError, match="no longer shows epoch 2, which was committed"):
        sink.stage(frame(ROWS), epoch(3), "a3")
    assert sink.leftovers() == []
    assert [one.epoch for one in read_receipts(path)] == [1]


def test_an_epoch_that_was_taken_back_is_not_missed(path: Path) -> None:
    sink = HandWritten(path)
    for number in (1, 2):
        sink.stage(frame(ROWS), epoch(number), f"a{number}")
        sink.commit(sink.prepare())
    assert sink.unpublish_after(1) == [2]
    sink.stage(frame(ROWS), epoch(2, NEW), "b2")
    sink.commit(sink.prepare())
    assert [one.timeline for one in read_receipts(path)] == [OLD, NEW]


def test_an_epoch_that_somebody_is_aborting_is_never_published_in_part(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, committable = prepared(path)
    removed: list[str] = []

    def unlink(name: str) -> None:
        if removed:
            raise SimulatedCrash("after the first file")
        os.unlink(name)
        removed.append(name)

    def looked_at(*arguments: Any) -> str | None:
        damage = epoch_folder.find_damage(*arguments)
        with monkeypatch.context() as patch:
            patch.setattr(folders, "os", SimpleNamespace(**{**vars(os), "unlink": unlink}))
            with pytest.raises(SimulatedCrash):
                HandWritten(path).abort(committable["attempt"])
        return damage

    with monkeypatch.context() as patch:
        patch.setattr(publish, "find_damage", looked_at)
        with pytest.raises(DamageError, match="neither published nor staged"):
            sink.commit(committable)
    assert removed
    assert read_receipts(path) == []
    assert sink.leftovers() == [committable["attempt"]]
    sink.abort(committable["attempt"])
    assert sink.leftovers() == []


@pytest.mark.parametrize("name", [".DS_Store", "notes"])
def test_a_file_beside_what_was_taken_back_does_not_stop_a_rollback(
    tmp_path: Path, name: str
) -> None:
    sink = HandWritten(tmp_path / "rows")
    sink.open("trades", "bars", None)
    for number in (1, 2):
        sink.stage(frame([number]), epoch(number), f"a{number}")
        sink.commit(sink.prepare())
    stray = tmp_path / "rows/_seamark/unpublished" / name
    stray.parent.mkdir()
    stray.write_text("mine")
    assert sink.unpublish_after(1) == [2]
    assert rows_below(tmp_path / "rows") == [1]
    assert stray.read_text() == "mine"
