"""A working copy is the same thing on a local disk and on whatever Hadoop knows."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from seamark.capture.executors import executor_fetch, executor_mover
from seamark.capture.file_index import FileIndex, objects_of
from seamark.capture.restore import restore_index
from seamark.checkpoint_dir.places import hadoop_copy
from seamark.checkpoint_dir.places.hadoop import HadoopDirectory
from seamark.checkpoint_dir.places.hadoop_copy import HadoopCopy, open_working_copy
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError, InvalidInputError, SeamarkError, StoreUnavailableError
from seamark.store import open_store
from tests.checkpoint_dir.support.mounts import mounted_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.warm

_LARGE = b"0123456789abcdef" * (1 << 17)


@pytest.fixture(params=["local", "hadoop"])
def copy(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> Iterator[WorkingCopy]:
    if request.param == "local":
        yield open_working_copy(str(tmp_path / "data" / "p"), spark).below("g1")
        return
    with mounted_folder(spark, tmp_path / "data") as uri:
        place = open_working_copy(f"{uri}/p,q", spark)  # a comma is what names are told apart by
        assert isinstance(place, HadoopCopy)
        yield place.below("g1")
        place.close()


def test_what_is_written_is_read_measured_listed_and_removed(copy: WorkingCopy) -> None:
    assert not copy.exists()
    assert list(copy.names(".")) == []
    copy.make()
    assert copy.exists()
    assert list(copy.names(".")) == []
    copy.write("offsets/0", b"one")
    copy.write("offsets/0", b"two")
    copy.write("offsets/1", b"")
    copy.write_stream("state/0/1/2.snapshot", [_LARGE[:7], _LARGE[7:]])
    assert copy.read("offsets/0") == b"two"
    assert copy.read("offsets/1") == b""
    assert copy.read("state/0/1/2.snapshot") == _LARGE
    assert b"".join(map(bytes, copy.stream("state/0/1/2.snapshot"))) == _LARGE
    assert copy.size("state/0/1/2.snapshot") == len(_LARGE)
    assert copy.size("state/0/1") is None or isinstance(copy, LocalCopy)
    assert copy.size("offsets/7") is None
    assert sorted(copy.names("offsets")) == ["0", "1"]
    assert list(copy.names("nothing")) == []
    assert copy.batches("offsets") == [0, 1]
    assert copy.has_folder("state/0/1")
    assert not copy.has_folder("state/0/2")
    assert sorted(copy.files_below(".")) == ["offsets/0", "offsets/1", "state/0/1/2.snapshot"]
    assert sorted(copy.files_below("state")) == ["state/0/1/2.snapshot"]
    assert list(copy.files_below("nothing")) == []
    copy.remove("offsets/0")
    copy.remove("offsets/0")
    with pytest.raises(FileNotFoundError):
        copy.read("offsets/0")
    copy.destroy()
    copy.destroy()
    assert not copy.exists()


def test_every_file_is_hashed_and_a_missing_one_has_no_hash(copy: WorkingCopy) -> None:
    copy.write_stream("state/0/0/1.delta", [_LARGE])
    copy.write("offsets/0", b"two")
    found = dict(copy.digests(["state/0/0/1.delta", "offsets/0", "offsets/1"]))
    assert found == {
        "state/0/0/1.delta": hashlib.sha256(_LARGE).digest(),
        "offsets/0": hashlib.sha256(b"two").digest(),
        "offsets/1": None,
    }


@pytest.fixture
def on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are hashed by executors, as where they are other processes."""
    monkeypatch.setattr(hadoop_copy, "is_local", lambda _: False)


@pytest.mark.usefixtures("on_a_cluster")
@pytest.mark.parametrize("trouble", ["none", "a file too large for a row", "no executors"])
def test_on_a_cluster_every_file_is_hashed_by_whoever_can(
    copy: WorkingCopy, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    by_driver: list[str] = []
    hashed = HadoopDirectory.sha256

    def watched(directory: HadoopDirectory, path: str) -> bytes | None:
        by_driver.append(path.removeprefix("g1/"))
        return hashed(directory, path)

    monkeypatch.setattr(HadoopDirectory, "sha256", watched)
    if trouble == "a file too large for a row":
        monkeypatch.setattr(hadoop_copy, "MOST_IN_A_ROW", len(_LARGE) - 1)
    if trouble == "no executors":
        monkeypatch.setattr(hadoop_copy, "_unglobbed", lambda path: path + "/gone")
    test_every_file_is_hashed_and_a_missing_one_has_no_hash(copy)
    expected = {
        "none": [],
        "a file too large for a row": ["state/0/0/1.delta"],
        "no executors": ["offsets/0", "state/0/0/1.delta"],
    }
    if isinstance(copy, HadoopCopy):
        assert sorted(by_driver) == expected[trouble]


def test_a_copy_moves_as_a_whole_and_names_of_later_batches_go(copy: WorkingCopy) -> None:
    for path in ("commits/1", "commits/2", "offsets/2", "offsets/3", "sources/0/0"):
        copy.write(path, path.encode())
    for version in (1, 2, 3):
        copy.write(f"state/0/0/{version}.delta", b"x")
    copy.rename("sources/0", "sources/1")
    copy.forget_after(1)
    assert sorted(copy.files_below(".")) == [
        "commits/1",
        "offsets/2",
        "sources/1/0",
        "state/0/0/1.delta",
        "state/0/0/2.delta",
    ]
    copy.below("sources").destroy()
    assert not copy.has_folder("sources")


def test_a_link_in_a_copy_on_a_local_disk_is_noticed_whatever_leads_there(
    copy: WorkingCopy, tmp_path: Path
) -> None:
    copy.write("offsets/0", b"one")
    assert copy.foreign() is None
    [folder] = (tmp_path / "data").glob("*/g1")
    (tmp_path / "outside").mkdir()
    (folder / "state").symlink_to(tmp_path / "outside")
    assert copy.foreign() == "state"
    folder.rename(tmp_path / "outside" / "g1")
    folder.symlink_to(tmp_path / "outside" / "g1")
    assert copy.foreign() == "."


def test_executors_take_files_of_any_place_into_the_store(
    copy: WorkingCopy, spark: SparkSession, tmp_path: Path
) -> None:
    contents = {
        "state/0/0/1.delta": b"small",
        "state/0/1/1.snapshot": _LARGE,
        **{f"state/0/2/{n}.delta": bytes([n]) * 2000 for n in range(1, 40)},
    }
    for path, data in contents.items():
        copy.write(path, data)
    with open_store(tmp_path / "store") as store:
        store.claim(pipeline="p")
        mover = executor_mover(spark, copy, store.shared_objects)
        groups = [[f"{path}.none", path] for path in contents]
        taken = mover.take([*groups, ["state/0/3/1.delta"]])
        assert {file.path for file in taken} == set(contents)
        assert mover.read_by, "no task has read a file"
        for file in taken:
            data = contents[file.path]
            if file.stored is None:
                assert file.data == data
            else:
                assert file.stored.sha256 == hashlib.sha256(data).digest()
                assert file.stored.size == len(data)
        [large] = [file for file in taken if file.path == "state/0/1/1.snapshot"]
        assert large.stored is not None
        assert large.stored.shared is not None
        assert b"".join(map(bytes, store.shared_objects.read(large.stored.shared))) == _LARGE


def test_executors_restore_what_they_have_taken(spark: SparkSession, tmp_path: Path) -> None:
    copy = LocalCopy(tmp_path / "a")
    contents = {f"state/0/0/{n}.delta": bytes([n]) * 40_000 for n in range(1, 20)}
    contents["state/0/1/1.snapshot"] = _LARGE
    for path, data in contents.items():
        copy.write(path, data)
    with open_store(tmp_path / "store") as store:
        store.claim(pipeline="p")
        shared = store.shared_objects
        taken = executor_mover(spark, copy, shared).take([[path] for path in contents])
        index = FileIndex({file.path: file.stored for file in taken if file.stored is not None})
        assert len(index.files) == len(contents)
        counted: list[int] = []
        fetch = executor_fetch(spark, store.backend)
        fetched = []

        def watched(*args: Any) -> bool:
            fetched.append(fetch(*args))
            return fetched[-1]

        back = LocalCopy(tmp_path / "b")
        restore_index(back, index, {}, shared, counted.append, watched)
        assert fetched == [True]
        assert sum(counted) == index.size
        assert {path: back.read(path) for path in back.files_below(".")} == contents
        # a damaged object is found by the task, then told by the driver
        name = next(iter(objects_of(index.files.values()))).name
        store.backend.delete([f"shared/{name}"])
        with pytest.raises(DamageError, match="not there"):
            restore_index(LocalCopy(tmp_path / "c"), index, {}, shared, None, watched)
        assert fetched == [True, False]


def test_where_executors_fail_the_driver_takes_the_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    copy = LocalCopy(tmp_path / "a")
    copy.write("state/0/0/1.delta", b"bytes")
    with open_store(tmp_path / "store") as store:
        store.claim(pipeline="p")
        mover = executor_mover(spark, copy, store.shared_objects)
        (tmp_path / "a" / "state" / "0" / "1").mkdir()
        # a folder in place of a file: a task cannot read it
        (tmp_path / "a" / "state" / "0" / "1" / "1.delta").mkdir()
        with pytest.raises(SeamarkError):
            mover.take([["state/0/0/1.delta"], ["state/0/1/1.delta"]])
        (tmp_path / "a" / "state" / "0" / "1" / "1.delta").rmdir()
        [taken] = mover.take([["state/0/0/1.delta"]])
        assert taken.data == b"bytes"
        assert not mover.read_by


def test_executors_that_have_failed_once_are_tried_again_after_a_while(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = LocalCopy(tmp_path / "a")
    copy.write("state/0/0/1.delta", b"bytes")
    now = time.monotonic()
    monkeypatch.setattr("seamark.capture.executors.time.monotonic", lambda: now)
    with open_store(tmp_path / "store") as store:
        store.claim(pipeline="p")
        mover = executor_mover(spark, copy, store.shared_objects)
        run = mover._run
        tries: list[float] = []

        def failing(candidates: Any) -> Any:
            tries.append(now)
            raise PySparkException("a worker was lost")

        monkeypatch.setattr(mover, "_run", failing)
        began = now
        for _ in range(20):
            [taken] = mover.take([["state/0/0/1.delta"]])
            assert taken.data == b"bytes"
            now += 20
        # the pause doubles with each failure
        assert [at - began for at in tries] == [0, 60, 180]
        monkeypatch.setattr(mover, "_run", run)
        now += 3600
        [taken] = mover.take([["state/0/0/1.delta"]])
        assert taken.data == b"bytes"
        assert mover.read_by, "no task has read a file"


@pytest.mark.usefixtures("on_a_cluster")
def test_a_file_too_large_for_a_row_is_taken_by_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hadoop_copy, "MOST_IN_A_ROW", len(_LARGE) - 1)
    with mounted_folder(spark, tmp_path / "data") as uri, open_store(tmp_path / "s") as store:
        copy = open_working_copy(f"{uri}/p", spark)
        assert isinstance(copy, HadoopCopy)
        assert dict(copy.digests(["state/0/0/1.delta"])) == {"state/0/0/1.delta": None}
        copy.write("state/0/0/1.delta", b"small")
        [(_, digest)] = copy.digests(["state/0/0/1.delta"])
        assert digest == hashlib.sha256(b"small").digest()
        copy.write("state/0/1/1.snapshot", _LARGE)
        store.claim(pipeline="p")
        rows = HadoopCopy.as_rows
        asked: list[list[str]] = []

        def watched(copy: HadoopCopy, paths: Any) -> Any:
            asked.append(list(paths))
            return rows(copy, paths)

        monkeypatch.setattr(HadoopCopy, "as_rows", watched)
        mover = executor_mover(spark, copy, store.shared_objects)
        taken = mover.take([["state/0/0/1.delta"], ["state/0/1/1.snapshot"]])
        assert asked == [["state/0/0/1.delta"]]
        [large] = [file.stored for file in taken if file.path == "state/0/1/1.snapshot"]
        assert large is not None
        assert large.sha256 == hashlib.sha256(_LARGE).digest()
        copy.close()


def test_an_address_that_leads_nowhere_is_an_error_of_ours(spark: SparkSession) -> None:
    with pytest.raises(StoreUnavailableError, match="nowhere"):
        open_working_copy("hdfs://nowhere.invalid:1/path", spark).exists()


def test_an_address_with_credentials_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidInputError, match="credentials"):
        open_working_copy("hdfs://user:secret@host/path", spark)
