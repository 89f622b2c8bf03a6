"""A checkpoint directory is read and written where it lies, and a power cut takes nothing back."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import open_store
from seamark.errors import InvalidInputError
from seamark.spark.native.places.directory import Tree
from seamark.spark.native.places.hadoop import HadoopDirectory
from seamark.spark.native.places.local import LocalDirectory
from seamark.spark.native.places.opening import open_directory
from seamark.spark.native.restoring import restore_directory
from seamark.spark.native.rewind.moving import move_all
from seamark.spark.native.snapshot.taking import take_snapshot
from tests.spark.directories import make_copy
from tests.spark.native.rewinds import contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Calls = list[tuple[str, str]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What is made durable, renamed and removed from here on, in its order."""
    found: Calls = []

    def noted(name: str, place: Callable[..., str]) -> None:
        real = getattr(os, name)

        def call(*args: Any, **more: Any) -> Any:
            where = place(*args)
            result = real(*args, **more)
            found.append((name, where))
            return result

        monkeypatch.setattr(os, name, call)

    noted("fsync", lambda fd: os.path.realpath(f"/proc/self/fd/{fd}"))
    for name in ("replace", "rename"):
        noted(name, lambda old, new: str(new))
    noted("unlink", str)
    return found


# what a power cut leaves


def test_a_file_is_on_the_disk_before_it_has_its_name_and_so_is_its_name(
    tmp_path: Path, calls: Calls
) -> None:
    path = f"{tmp_path}/ck/offsets/7"
    LocalDirectory(tmp_path / "ck").write("offsets/7", b"barrier")
    before, after = calls[: calls.index(("replace", path))], calls[calls.index(("replace", path)) :]
    assert ("fsync", f"{tmp_path}/ck/offsets/.7.seamark.tmp") in before
    assert ("fsync", f"{tmp_path}/ck/offsets") in after
    assert {("fsync", str(tmp_path)), ("fsync", f"{tmp_path}/ck")} <= set(calls), "new folders"


def test_what_was_removed_does_not_come_back(tmp_path: Path, calls: Calls) -> None:
    make_copy(tmp_path / "ck", 3)
    calls.clear()
    LocalDirectory(tmp_path / "ck").remove(["commits/2", "commits/1", "commits/9", "none/1"])
    assert calls[-1] == ("fsync", f"{tmp_path}/ck/commits")
    assert calls.count(calls[-1]) == 1


def test_a_restored_directory_is_on_the_disk_before_it_is_seen(
    tmp_path: Path, calls: Calls
) -> None:
    with open_store(tmp_path / "store") as store:
        make_copy(tmp_path / "ck", 12)
        taken = take_snapshot(LocalDirectory(tmp_path / "ck"), store)
        target = tmp_path / "new" / "ck"
        calls.clear()
        restore_directory(store, taken.checkpoint_id, LocalDirectory(target))
    at = calls.index(("rename", str(target)))
    durable = {path.partition("/directory/")[2] for name, path in calls[:at] if name == "fsync"}
    assert set(contents(LocalDirectory(target))) <= durable
    assert {"offsets", "state/0/0", "state/0", "state"} <= durable
    assert calls[at + 1] == ("fsync", str(target.parent))
    assert ("fsync", str(tmp_path)) in calls[at:], "the folder that was made for it"


def test_files_that_go_to_another_disk_are_safe_there_before_they_are_removed_here(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_copy(tmp_path / "ck", 2)
    replace = os.replace

    def between_disks(old: str, new: str) -> None:
        if os.path.dirname(old) != os.path.dirname(new):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replace(old, new)

    monkeypatch.setattr(os, "replace", between_disks)
    calls.clear()
    source, target = LocalDirectory(tmp_path / "ck"), LocalDirectory(tmp_path / "aside")
    move_all(source, ["commits/1", "offsets/1"], target)
    for path in ("commits/1", "offsets/1"):
        gone = calls.index(("unlink", f"{source.url}/{path}"))
        folder, name = os.path.split(f"{target.url}/{path}")
        there = calls.index(("replace", f"{folder}/{name}"))
        assert ("fsync", f"{folder}/.{name}.seamark.tmp") in calls[:there]
        assert ("fsync", folder) in calls[there:gone]
    assert calls[-1][0] == "fsync"


def test_files_that_are_renamed_stay_where_they_went(tmp_path: Path, calls: Calls) -> None:
    make_copy(tmp_path / "ck", 2)
    calls.clear()
    source, target = LocalDirectory(tmp_path / "ck"), LocalDirectory(tmp_path / "aside")
    move_all(source, ["commits/1", "offsets/1"], target)
    last = max(at for at, (name, _) in enumerate(calls) if name == "replace")
    for folder in ("ck/commits", "aside/commits", "ck/offsets", "aside/offsets"):
        assert ("fsync", f"{tmp_path}/{folder}") in calls[last:]


# where it is restored to


def _restored_to(tmp_path: Path, target: Path) -> None:
    make_copy(tmp_path / "ck", 3)
    with open_store(tmp_path / "store") as store:
        taken = take_snapshot(LocalDirectory(tmp_path / "ck"), store)
        restore_directory(store, taken.checkpoint_id, LocalDirectory(target))
    tree = Tree.of(LocalDirectory(target))
    assert tree.batches("commits") == [1, 2]
    assert tree.read("state/0/1/3.delta") == (tmp_path / "ck/state/0/1/3.delta").read_bytes()
    assert not list(tmp_path.rglob(".seamark-restore-*"))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_to_an_empty_folder_or_to_none_yet_is_restored_through(
    tmp_path: Path, is_there: bool
) -> None:
    (tmp_path / "disk").mkdir()
    if is_there:
        (tmp_path / "disk" / "ck").mkdir()
    (tmp_path / "link").symlink_to("disk/ck")
    _restored_to(tmp_path, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "ck" / "metadata").exists()


@pytest.mark.parametrize("told", [errno.EBUSY, errno.EXDEV])
def test_a_mount_point_is_filled_with_the_metadata_last(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch, told: int
) -> None:
    target = tmp_path / "mounted"
    target.mkdir()
    inode = target.stat().st_ino
    rename = os.rename

    def busy(old: str, new: str) -> None:
        if new == str(target):
            raise OSError(told, os.strerror(told))
        rename(old, new)

    monkeypatch.setattr(os, "rename", busy)
    _restored_to(tmp_path, target)
    assert target.stat().st_ino == inode
    shown = [
        Path(path) for name, path in calls if name == "replace" and path.startswith(f"{target}/")
    ]
    assert shown[-1] == target / "metadata"
    assert shown[0].parent == target / "offsets"
    kinds = [path.relative_to(target).parts[0] for path in shown]
    assert kinds.index("state") > max(at for at, kind in enumerate(kinds) if kind == "sources")


# what is listed


def test_links_that_lead_back_are_not_followed_for_ever(tmp_path: Path) -> None:
    make_copy(tmp_path / "ck", 3)
    plain = LocalDirectory(tmp_path / "ck").listing()
    state = tmp_path / "ck" / "state"
    for name, to in {"x": ".", "y": ".", "up": "../..", "self": "self", "none": "gone"}.items():
        (state / name).symlink_to(to)
    (state / "0" / "away").symlink_to("../../sources")
    (tmp_path / "ck" / "sources" / "back").symlink_to("../state/0")
    found = LocalDirectory(tmp_path / "ck").listing()
    assert {path: found[path] for path in plain} == plain
    assert not [path for path in found if path.count("/") > 6]
    assert len(found) <= 2 * len(plain)


def test_a_folder_that_lies_on_another_disk_is_listed_through_its_link(tmp_path: Path) -> None:
    make_copy(tmp_path / "ck", 3)
    plain = LocalDirectory(tmp_path / "ck").listing()
    (tmp_path / "ck" / "state").rename(tmp_path / "elsewhere")
    (tmp_path / "ck" / "state").symlink_to("../elsewhere")
    assert LocalDirectory(tmp_path / "ck").listing() == plain


# secrets


@pytest.mark.parametrize("scheme", ["hdfs", "wasbs", "s3a", "abfss", "viewfs"])
@pytest.mark.parametrize("tail", ["?sig=HIDEME", "#HIDEME"])
def test_a_query_in_a_uri_is_refused_without_being_repeated(scheme: str, tail: str) -> None:
    with pytest.raises(InvalidInputError, match="may not carry credentials") as told:
        open_directory(f"{scheme}://host/ck{tail}")
    assert "HIDEME" not in str(told.value)


def test_a_question_mark_in_a_local_path_is_no_query(tmp_path: Path) -> None:
    make_copy(tmp_path / "what?", 1)
    for path in (str(tmp_path / "what?"), f"file:{tmp_path}/what?"):
        assert open_directory(path).read("metadata") == b'{"id":"q"}'


# Hadoop


class _KeepsFiles:
    """A file system on which nothing may be deleted."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        assert name != "delete", "a file was away for a moment"
        return getattr(self._inner, name)


@pytest.mark.warm
def test_a_file_that_is_replaced_through_hadoop_is_never_away(
    spark: SparkSession, tmp_path: Path
) -> None:
    directory = HadoopDirectory(f"file:{tmp_path}/ck", spark)
    directory.write("offsets/0", b"one")
    directory._fs = _KeepsFiles(directory._fs)
    directory.write("offsets/0", b"another, longer one")
    assert directory.read("offsets/0") == b"another, longer one"
    assert list(directory.listing()) == ["offsets/0"]
    assert not [each for each in (tmp_path / "ck").rglob("*") if ".tmp" in each.name]
    directory.close()
