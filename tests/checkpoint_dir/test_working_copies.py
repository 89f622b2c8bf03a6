"""A working copy is the same thing on a local disk and on whatever Hadoop knows."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from seamark.capture import executors
from seamark.capture.executor_restore import executor_fetch
from seamark.capture.executors import TaskObjects, executor_mover
from seamark.capture.file_index import FileIndex, objects_of
from seamark.capture.restore import restore_index
from seamark.checkpoint_dir.places import hadoop_copy
from seamark.checkpoint_dir.places.hadoop import HadoopDirectory
from seamark.checkpoint_dir.places.hadoop_copy import HadoopCopy, open_working_copy
from seamark.checkpoint_dir.places.hadoop_tasks import files_in, frames_of, head_of
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError, InvalidInputError, SeamarkError, StoreUnavailableError
from seamark.store import CheckpointStore, open_store
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
@pytest.mark.parametrize("trouble", ["none", "no executors"])
def test_on_a_cluster_every_file_is_hashed_by_whoever_can(
    copy: WorkingCopy, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    by_driver: list[str] = []
    hashed = HadoopDirectory.sha256

    def watched(directory: HadoopDirectory, path: str) -> bytes | None:
        by_driver.append(path.removeprefix("g1/"))
        return hashed(directory, path)

    monkeypatch.setattr(HadoopDirectory, "sha256", watched)
    if trouble == "no executors":
        monkeypatch.setattr(
            hadoop_copy,
            "frames_of",
            lambda spark, root, *more: frames_of(spark, root + "/0", *more),
        )
    test_every_file_is_hashed_and_a_missing_one_has_no_hash(copy)
    expected = {
        "none": [],
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


_PIECES = os.urandom((9 << 20) + 1)
"""A file that travels in three pieces."""


class Stored(NamedTuple):
    """Files in a store, put there by executors."""

    store: CheckpointStore
    files: FileIndex
    contents: dict[str, bytes]


@pytest.fixture
def stored(copy: WorkingCopy, spark: SparkSession, tmp_path: Path) -> Iterator[Stored]:
    contents = {f"state/0/0/{n}.delta": bytes([n]) * 40_000 for n in range(1, 20)}
    contents |= {"state/0/1/1.snapshot": _PIECES, "state/0/1/2.delta": b""}
    taken_from = copy.below("from")
    for path, data in contents.items():
        taken_from.write(path, data)
    with open_store(tmp_path / "store") as store:
        store.claim(pipeline="p")
        mover = executor_mover(spark, taken_from, store.shared_objects)
        taken = mover.take([[path] for path in contents])
        index = FileIndex({file.path: file.stored for file in taken if file.stored is not None})
        assert len(index.files) == len(contents)
        yield Stored(store, index, contents)


def restored(spark: SparkSession, stored: Stored, back: WorkingCopy) -> tuple[list[int], bool]:
    """The bytes that were counted, and whether executors did it."""
    counted: list[int] = []
    fetch = executor_fetch(spark, stored.store.backend)
    fetched = []

    def watched(*args: Any) -> bool:
        fetched.append(fetch(*args))
        return fetched[-1]

    shared = stored.store.shared_objects
    restore_index(back, stored.files, {}, shared, counted.append, watched)
    return counted, fetched == [True]


def test_executors_restore_what_they_have_taken(
    spark: SparkSession, copy: WorkingCopy, stored: Stored
) -> None:
    back = copy.below("back")
    counted, by_executors = restored(spark, stored, back)
    assert by_executors
    assert sum(counted) == stored.files.size
    assert {path: back.read(path) for path in back.files_below(".")} == stored.contents
    assert sorted(back.names(".")) == ["state"]


def test_what_executors_find_damaged_is_told_by_the_driver(
    spark: SparkSession, copy: WorkingCopy, stored: Stored
) -> None:
    name = next(iter(objects_of(stored.files.files.values()))).name
    stored.store.backend.delete([f"shared/{name}"])
    with pytest.raises(DamageError, match="not there"):
        restored(spark, stored, copy.below("back"))


def test_where_executors_cannot_restore_the_driver_does_and_nothing_is_counted_twice(
    spark: SparkSession, copy: WorkingCopy, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pack(objects: TaskObjects, shared: Any) -> bytes:
        raise MemoryError  # only in tasks: the driver reads in another way

    monkeypatch.setattr(TaskObjects, "read_pack", no_pack)
    pickles: Any = cloudpickle
    pickles.register_pickle_by_value(executors)  # as it is here, not as it is on the disk
    try:
        back = copy.below("back")
        counted, by_executors = restored(spark, stored, back)
    finally:
        pickles.unregister_pickle_by_value(executors)
    assert not by_executors
    assert sum(counted) == stored.files.size
    assert {path: back.read(path) for path in back.files_below(".")} == stored.contents
    assert sorted(back.names(".")) == ["state"]


class TestWrittenByTheJvm:
    """Files that executors write through Hadoop's file systems."""

    @pytest.fixture
    def back(self, spark: SparkSession, tmp_path: Path) -> Iterator[HadoopCopy]:
        with mounted_folder(spark, tmp_path / "data") as uri:
            place = open_working_copy(f"{uri}/p", spark)
            assert isinstance(place, HadoopCopy)
            yield place
            place.close()

    def write(self, spark: SparkSession, back: HadoopCopy, *frames: bytes) -> None:
        back.write_frames(spark.sparkContext.parallelize([0], 1), lambda _: iter(frames))

    @pytest.mark.parametrize(
        ("size", "bytes_", "why"),
        [
            (3, b"abd", "SHA-256 differs"),
            (3, b"ab", "1 bytes are missing"),
            (3, b"abcd", "more than 3 bytes"),
        ],
    )
    def test_a_file_that_is_not_right_never_appears(
        self, spark: SparkSession, back: HadoopCopy, size: int, bytes_: bytes, why: str
    ) -> None:
        head = head_of("state/0/0/1.delta", size, hashlib.sha256(b"abc").digest())
        with pytest.raises(Py4JJavaError, match=why):
            self.write(spark, back, head, bytes_)
        assert list(back.names(".")) == []

    def test_a_task_that_fails_between_two_files_leaves_the_first_and_no_draft(
        self, spark: SparkSession, back: HadoopCopy
    ) -> None:
        def frames(_: Any) -> Iterator[bytes]:
            yield head_of("state/0/0/1.delta", 3, hashlib.sha256(b"abc").digest())
            yield b"abc"
            yield head_of("state/0/0/2.delta", 3, hashlib.sha256(b"abc").digest())
            yield b"ab"
            raise DamageError("the object ends here")

        with pytest.raises((Py4JJavaError, PySparkException), match="the object ends here"):
            back.write_frames(spark.sparkContext.parallelize([0], 1), frames)
        assert list(back.files_below(".")) == ["state/0/0/1.delta"]
        assert list(back.names(".")) == ["state"]

    def test_a_task_that_is_run_twice_changes_nothing(
        self, spark: SparkSession, back: HadoopCopy
    ) -> None:
        head = head_of("state/0/0/1.delta", 3, hashlib.sha256(b"abc").digest())
        self.write(spark, back, head, b"a", b"bc", head, b"abc")
        self.write(spark, back, head, b"abc")
        assert back.read("state/0/0/1.delta") == b"abc"

    def test_a_name_with_blanks_and_signs_is_kept(
        self, spark: SparkSession, back: HadoopCopy
    ) -> None:
        name = "state/0/0/a b {c} [d]*?.delta"
        self.write(spark, back, head_of(name, 1, hashlib.sha256(b"x").digest()), b"x")
        assert back.read(name) == b"x"
        assert dict(back.frames([name]).mapPartitions(_lengths).collect()) == {name: 1}


def _lengths(frames: Iterable[bytes]) -> Iterator[tuple[str, int]]:
    for name, pieces in files_in(frames):
        yield name, sum(map(len, pieces))


def test_pieces_that_nobody_asks_for_are_passed_over() -> None:
    frames = [b"a", b"1", b"2", b"", b"b", b"", b"c", b"3", b""]
    assert [name for name, _ in files_in(frames)] == ["a", "b", "c"]
    assert [(name, list(pieces)) for name, pieces in files_in(frames)] == [
        ("a", [b"1", b"2"]),
        ("b", []),
        ("c", [b"3"]),
    ]


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
    now = float(int(time.monotonic()))  # whole seconds are added up without a rest
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


def test_a_file_of_any_size_is_taken_by_an_executor(
    copy: WorkingCopy, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.write("state/0/1/1.snapshot", _PIECES)
    with open_store(tmp_path / "s") as store:
        store.claim(pipeline="p")
        mover = executor_mover(spark, copy, store.shared_objects)
        monkeypatch.setattr(mover, "_driver", None)
        [taken] = mover.take([["state/0/1/1.snapshot"]])
        assert taken.stored is not None
        assert taken.stored.size == len(_PIECES)
        assert taken.stored.sha256 == hashlib.sha256(_PIECES).digest()


def test_an_address_that_leads_nowhere_is_an_error_of_ours(spark: SparkSession) -> None:
    with pytest.raises(StoreUnavailableError, match="nowhere"):
        open_working_copy("hdfs://nowhere.invalid:1/path", spark).exists()


def test_an_address_with_credentials_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidInputError, match="credentials"):
        open_working_copy("hdfs://user:secret@host/path", spark)
