"""Rows that wait for their commit: damaged, gone, torn, of somebody else, kept and pruned."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seamark.errors import DamageError, StoreUnavailableError
from seamark.sinks.keyvalue.view import StagedEpoch, Step, ViewVersion
from seamark.sinks.keyvalue.view_staging import Staging
from seamark.sinks.staged_epochs import staged_attempts
from seamark.testing.conformance.sink_examples import OLD, PIPELINE, epoch, receipt
from tests.sinks.support.frames import frame
from tests.sinks.support.hand_written import HandWritten
from tests.sinks.support.views import HandWrittenView, World, lines, rows_of, told


def test_I7_a_staged_epoch_with_any_byte_changed_is_never_applied(tmp_path: Path) -> None:
    world = World(f"rocksdb://{tmp_path}/view", None)
    world.run(range(1, 2))
    committable = world.prepare(world.handle(), told(2), *rows_of(2))
    folder = next(world.staging.glob("staging/*/epoch=*"))
    reader = world.handle()
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            with pytest.raises(DamageError):
                reader.commit(committable)
        for damaged in (whole[:-1], whole + b"\0", b""):
            path.write_bytes(damaged)
            with pytest.raises(DamageError):
                reader.commit(committable)
        path.write_bytes(whole)
    assert world.epoch() == 1
    reader.commit(committable)
    assert world.epoch() == 2
    world.close()


@pytest.mark.parametrize("name", ["part-00000.parquet", "epoch.json", "_seamark.json"])
def test_a_kept_epoch_that_is_damaged_brings_nothing_up(world: World, name: str) -> None:
    world.run(range(1, 2))
    older = world.save()
    last = world.run(range(2, 5))
    world.bring_back(older)
    path = next(world.staging.glob(f"kept/*/epoch=000003/{name}"))
    whole = path.read_bytes()
    path.write_bytes(whole[:50] + bytes([whole[50] ^ 4]) + whole[51:])
    with pytest.raises(DamageError):
        world.handle().commit(last)
    assert world.epoch() == 1
    path.write_bytes(whole)
    world.handle().commit(last)
    assert world.epoch() == 4


def test_an_epoch_that_is_staged_no_more_says_so(world: World) -> None:
    committable = world.prepare(world.handle(), told(1), *rows_of(1))
    shutil.rmtree(world.staging / "staging")
    with pytest.raises(DamageError, match="neither shown nor staged") as refused:
        world.handle().commit(committable)
    assert "staging folder" in str(refused.value)
    assert world.rows() == {}


def test_what_is_gone_before_it_is_prepared_is_told(world: World) -> None:
    sink = world.handle()
    sink.stage(lines(*rows_of(1)), told(1), "a1")
    shutil.rmtree(world.staging)
    with pytest.raises(DamageError, match="what was staged for epoch 1 is gone"):
        sink.prepare()


def test_an_emptied_staging_folder_hurts_only_what_was_not_committed(world: World) -> None:
    last = world.run(range(1, 4))
    world.close()
    shutil.rmtree(world.staging)
    sink = world.handle()
    sink.commit(last)
    world.show(sink, told(4), *rows_of(4))
    assert world.epoch() == 4


def test_only_the_newest_epochs_are_kept(world: World) -> None:
    world.run(range(1, 13), keep_epochs=3)
    assert world.kept() == [10, 11, 12]
    world.run(range(13, 14), keep_epochs=1)
    assert world.kept() == [13]
    assert list((world.staging / "staging").iterdir()) == []


# leftovers


@pytest.mark.parametrize("torn", [b"", b'{"receipt":', b"\0" * 400])
def test_a_record_that_a_power_cut_has_torn_does_not_stop_the_next_start(
    world: World, torn: bytes
) -> None:
    world.prepare(world.handle(), told(1), *rows_of(1))
    record = next(world.staging.glob("staging/*/epoch=*/_seamark.json"))
    record.write_bytes(torn)
    sink = world.handle()
    (left,) = sink.leftovers()
    sink.abort(left)
    assert sink.leftovers() == []
    world.show(sink, told(1), *rows_of(1))
    assert world.epoch() == 1


def test_an_attempt_that_was_committed_and_not_put_aside_is_no_leftover(world: World) -> None:
    sink = world.handle()
    committable = world.show(sink, told(1), *rows_of(1))
    (kept,) = world.staging.glob("kept/*")
    kept.rename(world.staging / "staging" / kept.name)
    assert world.handle().leftovers() == []
    world.handle().abort(kept.name)
    assert world.kept() == [1], "abort takes nothing away that was committed"
    world.handle().commit(committable)
    assert world.epoch() == 1


# one folder for several


def test_two_views_with_one_staging_folder_do_not_take_each_others_rows(
    redis_world: World, tmp_path: Path
) -> None:
    """All sinks of an epoch stage under the same token."""
    mine = redis_world.handle()
    other = HandWrittenView(f"rocksdb://{tmp_path}/other", staging=redis_world.given)
    other.open(PIPELINE, "other", None)
    mine.stage(lines({"n": 1, "at": 1}), told(1), "a1")
    other.stage(lines({"n": 2, "at": 1}), told(1), "a1")
    first, second = mine.prepare(), other.prepare()
    mine.commit(first)
    other.commit(second)
    assert redis_world.rows().keys() == {"1"}
    assert World(f"rocksdb://{tmp_path}/other", None).rows().keys() == {"2"}
    other.stage(lines({"n": 3}), told(2), "a2")
    assert mine.leftovers() == []
    other.close()


def test_a_view_can_stage_in_the_folder_of_a_file_sink(redis_world: World, tmp_path: Path) -> None:
    files = HandWritten(tmp_path / "files")
    files.open(PIPELINE, "files", None)
    redis_world.given = tmp_path / "files" / "_seamark"
    sink = redis_world.handle()
    files.stage(frame([1, 2]), epoch(1), "a1")
    sink.stage(lines({"n": 5, "at": 1}), told(1), "a1")
    one, two = files.prepare(), sink.prepare()
    files.commit(one)
    sink.commit(two)
    assert redis_world.rows().keys() == {"5"}
    assert (files.leftovers(), sink.leftovers()) == ([], [])


def test_a_path_with_odd_characters_holds_view_and_staging(tmp_path: Path) -> None:
    from seamark.progress import rocksdb_url

    folder = tmp_path / "50% of #1? ü"
    sink = HandWrittenView(rocksdb_url(folder))
    sink.open(PIPELINE, "bars", None)
    sink.stage(lines({"n": 1}), told(1), "a1")
    sink.commit(sink.prepare())
    sink.close()
    assert (folder / "CURRENT").exists()
    assert (folder / "_seamark/kept/a1").exists()
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_kept_epochs_that_follow_each_other_in_a_circle_are_damage(tmp_path: Path) -> None:
    staging = Staging(str(tmp_path), keep=5)
    one, two = ViewVersion(OLD, 1, "a1"), ViewVersion(OLD, 2, "a2")
    for version, after in ((one, two), (two, one)):
        Path(staging.folder(version.attempt, version.epoch)).mkdir(parents=True)
        told = receipt(version.epoch, version.attempt)
        staging.seal(
            StagedEpoch(receipt=told, after=after, watermark=None, positions={}, config_hash=None)
        )
    with pytest.raises(DamageError, match="circle"):
        staging.way(ViewVersion(OLD, 3, "a3"), Step(two, None))


@pytest.mark.parametrize("linked", ["_seamark", "_seamark/staging", "_seamark/staging/a1"])
def test_no_staged_epoch_is_looked_for_behind_a_link(tmp_path: Path, linked: str) -> None:
    outside = tmp_path / "outside"
    rest = Path("_seamark/staging/a1/epoch=000001").relative_to(linked)
    (outside / rest).mkdir(parents=True)
    (tmp_path / "view" / linked).parent.mkdir(parents=True)
    (tmp_path / "view" / linked).symlink_to(outside)
    staging = Staging(str(tmp_path / "view"), 5)
    with pytest.raises(StoreUnavailableError, match="is a link"):
        staging.find(ViewVersion(OLD, 1, "a1"))
    with pytest.raises(StoreUnavailableError, match="is a link"):
        staging.epochs("a1")


def test_a_folder_of_a_view_that_is_a_link_is_refused_when_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "given" / "view").symlink_to(tmp_path / "outside")
    staging = Staging(str(tmp_path / "given"), 1)
    staging.below = "view"
    with pytest.raises(StoreUnavailableError, match="is a link"):
        staging.make()


@pytest.mark.parametrize("name", [".DS_Store", "a b", "notes"])
def test_what_is_not_ours_beside_staged_and_kept_epochs_is_left_alone(
    tmp_path: Path, name: str
) -> None:
    world = World(f"rocksdb://{tmp_path}/view", None)
    sink = world.handle(keep_epochs=2)
    world.show(sink, told(1), {"n": 1, "at": 1})
    strays = [world.staging / "kept" / name, world.staging / "kept" / f"{name}-folder" / "x"]
    strays.append(world.staging / "staging" / name)
    for stray in strays:
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.write_text("mine")
    for number in range(2, 6):
        world.show(sink, told(number), {"n": number, "at": number})
    left = sink.leftovers()
    assert left in ([], [name]), "one of a possible name is for the pipeline to judge"
    assert sink.unpublish_after(0) == [1, 2, 3, 4, 5]
    assert [stray.read_text() for stray in strays] == ["mine"] * 3
    world.close()


@pytest.mark.parametrize("name", [".DS_Store", "a b"])
def test_no_other_name_is_taken_for_that_of_an_attempt(tmp_path: Path, name: str) -> None:
    (tmp_path / "_seamark/staging" / name).mkdir(parents=True)
    (tmp_path / "_seamark/staging/a1").mkdir()
    assert staged_attempts(str(tmp_path)) == ["a1"]
