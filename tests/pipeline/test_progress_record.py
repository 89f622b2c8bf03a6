"""How far each source has come, beside the checkpoints: never in the way, and put right again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from seamark import open_store
from seamark.errors import InvalidInputError, StoreUnavailableError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.epoch.epoch_manifest import source_offsets
from seamark.pipeline.epoch.running_epoch import source_positions
from seamark.pipeline.telemetry import progress_record
from seamark.pipeline.telemetry.progress_record import ProgressRecord, positions_in, progress_url
from seamark.progress import SourceCheckpoint, open_progress

Told = tuple[dict[str, SourceCheckpoint], int | None]
SOURCES = ("orders", "payments")


def lines_of(epoch: int) -> list[str]:
    return [f'{{"logOffset":{epoch}}}', f'{{"partition":{{"0":{epoch * 10}}}}}']


def manifest(epoch: int, lines: list[str] | None = None) -> CheckpointManifest:
    """The checkpoint of an epoch, as far as the record looks at it."""
    offsets = source_offsets(SOURCES, lines or lines_of(epoch), epoch)
    return CheckpointManifest.new(epoch, epoch=epoch, source_offsets=offsets, pipeline_hash=77)


def wanted(epoch: int) -> Told:
    positions = source_positions(SOURCES, lines_of(epoch))
    return {name: SourceCheckpoint(epoch, each) for name, each in positions.items()}, 77


def told_by(url: str) -> Told:
    with open_progress(url, read_only=True) as store:
        return store.read_all_checkpoints(), store.read_config_hash()


def note(record: ProgressRecord, epoch: int) -> None:
    record.note(epoch, source_positions(SOURCES, lines_of(epoch)), 77)


def written_up_to(url: str, epoch: int) -> None:
    """A run that has recorded so many epochs and ended well."""
    record = ProgressRecord(url, "trades")
    record.bring_to(manifest(1))
    for number in range(2, epoch + 1):
        note(record, number)
    record.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"rocksdb://{tmp_path}/store/progress"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again with the next epoch."""
    monkeypatch.setattr(progress_record, "_AGAIN_AFTER", 0.0)


# the ordinary way


def test_every_epoch_is_recorded_for_readers_beside_the_run(url: str) -> None:
    record = ProgressRecord(url, "trades")
    assert record.bring_to(None) is None
    for epoch in (1, 2, 3):
        note(record, epoch)
        assert told_by(url) == wanted(epoch)
    record.close()


def test_the_manifest_and_the_epoch_say_the_same_position(tmp_path: Path) -> None:
    many = [f"offset {number}" for number in range(15)]
    leaves = ["orders"] * 15
    saved = CheckpointManifest.new(1, epoch=1, source_offsets=source_offsets(leaves, many, 1))
    with open_store(tmp_path / "store") as store:
        store.claim(pipeline="trades")
        store.save(saved)
        loaded = store.load_by_id(1)
    assert loaded is not None
    assert positions_in(loaded) == source_positions(leaves, many)


def test_a_record_that_agrees_is_left_as_it_is(url: str) -> None:
    written_up_to(url, 4)
    assert ProgressRecord(url, "trades").bring_to(manifest(4)) is None


@pytest.mark.parametrize("reached", [2, 3, 9])
def test_a_record_that_lags_or_is_ahead_is_brought_to_the_checkpoint(
    url: str, reached: int
) -> None:
    written_up_to(url, reached)
    record = ProgressRecord(url, "trades")
    assert record.bring_to(manifest(4)) == "the progress record was brought to epoch 4"
    assert told_by(url) == wanted(4)
    record.close()


def test_a_source_that_is_no_more_is_forgotten(url: str) -> None:
    with open_progress(url) as store, store.session() as session:
        session.stage_checkpoint("returns", 4, b"x")
        session.stage_config_hash(77)
    record = ProgressRecord(url, "trades")
    record.bring_to(manifest(4))
    assert told_by(url) == wanted(4)
    record.close()


def test_a_record_of_another_history_is_cleared_by_a_fresh_start(url: str) -> None:
    written_up_to(url, 4)
    record = ProgressRecord(url, "trades")
    assert "another history" in (record.bring_to(None) or "")
    assert told_by(url) == ({}, None)
    note(record, 1)
    assert told_by(url) == wanted(1)
    record.close()


def test_a_position_that_is_too_large_is_left_out_and_not_repaired_each_time(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    huge = ["x" * 70_000, "small"]
    record = ProgressRecord(url, "trades")
    record.bring_to(manifest(1))
    record.note(2, source_positions(SOURCES, huge), 77)
    found = {"orders": SourceCheckpoint(2, None), "payments": SourceCheckpoint(2, b"small")}
    assert told_by(url) == (found, 77)
    record.close()
    again = ProgressRecord(url, "trades")
    assert again.bring_to(manifest(2, huge)) is None
    assert told_by(url) == (found, 77)
    again.close()
    assert caplog.records == []


# where it is


def test_it_lies_beside_a_local_store_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "50% #1?") as local, open_store("memory://") as remote:
        found = progress_url("auto", local)
        assert found is not None
        record = ProgressRecord(found, "trades")
        record.bring_to(manifest(1))
        record.close()
        assert (tmp_path / "50% #1?" / "progress" / "CURRENT").exists()
        assert progress_url("auto", remote) is None
        assert progress_url(None, local) is None
        assert progress_url("redis://host/0", remote) == "redis://host/0"
        monkeypatch.setattr(progress_record, "find_spec", lambda _: None)
        assert progress_url("auto", local) is None


def test_a_link_in_its_place_is_refused_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "LOG").write_bytes(b"mine")
    with open_store(tmp_path / "store") as store:
        store.claim(pipeline="trades")
        (tmp_path / "store" / "progress").symlink_to(victim)
        with pytest.raises(StoreUnavailableError, match="progress is a link"):
            progress_url("auto", store)
        assert progress_url(None, store) is None
    assert [path.name for path in victim.iterdir()] == ["LOG"]


def test_a_link_among_its_files_is_not_followed_and_epochs_go_on_without_the_record(
    tmp_path: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    written_up_to(url, 2)
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    for name in ("LOG", "IDENTITY.dbtmp", "CURRENT"):
        link = tmp_path / "store/progress" / name
        before = link.read_bytes() if link.exists() else None
        link.unlink(missing_ok=True)
        link.symlink_to(victim)
        record = ProgressRecord(url, "trades")
        assert record.bring_to(manifest(3)) is None
        note(record, 4)
        record.close()
        assert f"{name} is a link" in caplog.text
        assert victim.read_bytes() == b"mine"
        assert link.is_symlink()
        link.unlink()
        if before is not None:
            link.write_bytes(before)
    link.unlink()
    link.symlink_to(victim)
    with pytest.raises(StoreUnavailableError, match="is a link"):
        told_by(url)


def test_a_pipe_among_its_files_is_not_waited_for_and_the_record_is_written_again(
    tmp_path: Path, url: str
) -> None:
    written_up_to(url, 2)
    current = tmp_path / "store/progress/CURRENT"
    current.unlink()
    os.mkfifo(current)
    record = ProgressRecord(url, "trades")
    assert "damaged" in (record.bring_to(manifest(3)) or "")
    record.close()
    assert told_by(url) == wanted(3)


def test_without_a_url_nothing_is_written(tmp_path: Path) -> None:
    record = ProgressRecord(None, "trades")
    assert record.bring_to(manifest(3)) is None
    note(record, 4)
    record.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["rocksdb://relative", "ftp://host", "redis://host:port/0"])
def test_a_url_that_cannot_be_right_is_told_at_the_start(url: str) -> None:
    with pytest.raises(InvalidInputError):
        ProgressRecord(url, "trades").bring_to(manifest(1))


# gone and damaged


def test_a_record_that_was_deleted_is_written_anew(url: str, tmp_path: Path) -> None:
    written_up_to(url, 3)
    shutil.rmtree(tmp_path / "store")
    record = ProgressRecord(url, "trades")
    record.bring_to(manifest(3))
    assert told_by(url) == wanted(3)
    record.close()


@pytest.mark.slow
def test_a_record_with_any_byte_changed_never_stops_a_start_and_is_right_afterwards(
    url: str, tmp_path: Path
) -> None:
    for _ in range(3):  # opening again turns the log into tables
        written_up_to(url, 3)
    folder, aside = tmp_path / "store" / "progress", tmp_path / "whole"
    shutil.copytree(folder, aside)
    kinds = {path.name.split("-")[0].rpartition(".")[2]: path for path in sorted(aside.iterdir())}
    assert {"sst", "CURRENT", "MANIFEST", "log"} <= kinds.keys()
    stuck = []
    for path in kinds.values():
        whole = path.read_bytes()
        places = {at * max(len(whole) - 1, 0) // 12 for at in range(13)} if whole else set()
        for at in sorted(places):
            shutil.rmtree(tmp_path / "store")
            shutil.copytree(aside, folder)
            changed = whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
            (folder / path.name).write_bytes(changed)
            record = ProgressRecord(url, "trades")
            record.bring_to(manifest(4))
            record.close()
            try:
                right = told_by(url) == wanted(4)
            except Exception:  # noqa: BLE001 - whatever it is, it is not right
                right = False
            if not right:
                stuck.append(f"{path.name} at {at} of {len(whole)}")
    assert stuck == []


def test_what_was_damaged_is_put_aside_and_told(url: str, tmp_path: Path) -> None:
    written_up_to(url, 3)
    (tmp_path / "store/progress/CURRENT").write_bytes(b"damaged")
    record = ProgressRecord(url, "trades")
    words = record.bring_to(manifest(3)) or ""
    record.close()
    assert "damaged and is written again" in words
    (aside,) = (tmp_path / "store").glob("progress.damaged-*")
    assert str(aside) in words
