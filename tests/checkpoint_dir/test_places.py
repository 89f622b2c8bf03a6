"""A checkpoint directory is read and written where it lies, and a power cut takes nothing back."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import open_store
from seamark.capture.restore import difference
from seamark.checkpoint_dir.places.directory import Tree, open_directory
from seamark.checkpoint_dir.places.hadoop import HadoopDirectory
from seamark.checkpoint_dir.places.local import LocalCopy, LocalDirectory
from seamark.errors import DamageError, InvalidInputError, RefusedError, StoreUnavailableError
from seamark.limits import LARGEST_FILE
from seamark.native.restore import restore_directory
from seamark.native.rewind.files import move_all
from seamark.native.snapshot import take_snapshot
from tests.checkpoint_dir.support.directories import make_copy
from tests.native.support.rewinds import contents

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


def _synced_draft(calls: Calls, folder: str, name: str) -> bool:
    """Whether a file was on the disk before it got this name."""
    draft = re.compile(re.escape(f"{folder}.{name}.") + r"[0-9a-f]{16}\.seamark\.tmp")
    return any(what == "fsync" and draft.fullmatch(path) for what, path in calls)


# what a power cut leaves


def test_a_file_is_on_the_disk_before_it_has_its_name_and_so_is_its_name(
    tmp_path: Path, calls: Calls
) -> None:
    path = f"{tmp_path}/ck/offsets/7"
    LocalDirectory(tmp_path / "ck").write("offsets/7", b"barrier")
    before, after = calls[: calls.index(("replace", path))], calls[calls.index(("replace", path)) :]
    assert _synced_draft(before, f"{tmp_path}/ck/offsets/", "7")
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
        assert _synced_draft(calls[:there], f"{folder}/", name)
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


def _linked_folder(root: Path) -> None:
    (root / "state").rename(root.parent / "elsewhere")
    (root / "state").symlink_to("../elsewhere")


def _linked_file(root: Path) -> None:
    (root / "offsets/2").rename(root.parent / "elsewhere")
    (root / "offsets/2").symlink_to("../../elsewhere")


def _circle(root: Path) -> None:
    (root / "state/up").symlink_to("../..")


def _link_to_nothing(root: Path) -> None:
    (root / "state/0/none").symlink_to("gone")


def _pipe(root: Path) -> None:
    os.mkfifo(root / "state/0/0/9.delta")


@pytest.mark.parametrize("put", [_linked_folder, _linked_file, _circle, _link_to_nothing, _pipe])
def test_what_is_no_file_of_the_directory_itself_is_refused_by_its_name(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    make_copy(tmp_path / "ck", 3)
    put(tmp_path / "ck")
    directory = LocalDirectory(tmp_path / "ck")
    with pytest.raises(RefusedError, match=r"ck/\S+ is (a link|not a regular file)"):
        directory.listing()
    with open_store(tmp_path / "store") as store, pytest.raises(RefusedError):
        take_snapshot(directory, store)


@pytest.mark.parametrize("put", [_linked_folder, _linked_file])
def test_nothing_is_read_written_or_removed_through_a_link(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    make_copy(tmp_path / "ck", 3)
    put(tmp_path / "ck")
    path = "state/0/0/3.delta" if put is _linked_folder else "offsets/2"
    outside = contents(LocalDirectory(tmp_path / "elsewhere")) if put is _linked_folder else None
    directory = LocalDirectory(tmp_path / "ck")
    with pytest.raises(StoreUnavailableError, match="link"):
        directory.read(path)
    if outside is not None:
        with pytest.raises(StoreUnavailableError, match="link"):
            directory.write(path, b"new")
        with pytest.raises(StoreUnavailableError, match="link"):
            directory.remove([path])
        with pytest.raises(StoreUnavailableError, match="link"):
            directory.copy.forget_versions_above(0)
        assert contents(LocalDirectory(tmp_path / "elsewhere")) == outside


def test_a_planted_link_catches_nothing_that_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even for somebody who knows the name of the draft."""
    monkeypatch.setattr(os, "urandom", bytes)
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    offsets = tmp_path / "ck/offsets"
    offsets.mkdir(parents=True)
    for name in (".8.seamark.tmp", f".8.{'0' * 16}.seamark.tmp"):
        (offsets / name).symlink_to(victim)
    for write in (LocalDirectory(tmp_path / "ck").write, LocalCopy(tmp_path / "ck").write):
        with pytest.raises(OSError, match=r"exist"):
            write("offsets/8", b"plan")
    assert victim.read_bytes() == b"mine"
    monkeypatch.undo()
    LocalDirectory(tmp_path / "ck").write("offsets/8", b"plan")
    assert (offsets / "8").read_bytes() == b"plan"
    assert victim.read_bytes() == b"mine"


def test_a_working_copy_with_a_link_in_it_is_rebuilt(tmp_path: Path) -> None:
    copy = make_copy(tmp_path / "ck", 3)
    assert difference(copy, {}, 2) is None
    _linked_folder(tmp_path / "ck")
    assert difference(copy, {}, 2) == "state is not a regular file"


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
        assert (
            open_directory(path).read("metadata")
            == b'{"id":"6f1c0000-0000-4000-8000-000000000000"}'
        )


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


@pytest.mark.warm
def test_a_file_that_is_one_large_hole_is_not_copied_from_hadoop(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "ck").mkdir()
    with (tmp_path / "ck" / "metadata").open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    directory = HadoopDirectory(f"file:{tmp_path}/ck", spark)
    with pytest.raises(RefusedError, match=f"metadata has {LARGEST_FILE + 1} bytes"):
        directory.read("metadata")
    directory.close()


def test_no_path_climbs_out_of_a_local_directory(tmp_path: Path) -> None:
    (tmp_path / "ck").mkdir()
    (tmp_path / "secret").write_text("of somebody else")
    directory = LocalDirectory(tmp_path / "ck")
    for path in ("../secret", "state/../../secret", "state/0/../../../secret"):
        with pytest.raises(DamageError, match="leads out"):
            directory.read(path)
        with pytest.raises(DamageError, match="leads out"):
            directory.write(path, b"mine")
        with pytest.raises(DamageError, match="leads out"):
            directory.remove([path])
    assert (tmp_path / "secret").read_text() == "of somebody else"
