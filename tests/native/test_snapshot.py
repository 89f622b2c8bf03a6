"""What is taken of a directory is one whole batch, costs only what is new, and is never a hole."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seamark import open_store
from seamark.capture import batches, plans
from seamark.capture.checkpoint_contents import Sizes
from seamark.capture.movers import LARGE
from seamark.capture.plans import entry_beyond, possible_lines
from seamark.checkpoint_dir.places.directory import Directory, FileEntry, Tree, open_directory
from seamark.checkpoint_dir.places.local import LocalCopy, LocalDirectory
from seamark.checkpoint_dir.places.object_store import ObjectDirectory
from seamark.errors import DamageError, InvalidInputError, RefusedError
from seamark.native.restore import RestoreOptions, restore_directory
from seamark.native.snapshot import Snapshot, take_snapshot
from seamark.spark.batch_log import log_offset, parse_offsets
from tests.checkpoint_dir.support.directories import (
    QUERY,
    make_copy,
    offsets_text,
    source_entry,
    state_of,
)
from tests.native.support.growing import GrowingDirectory, batches_restored_from
from tests.support.servers import ObjectServer


def take(root: Path, **wishes: Any) -> Snapshot:
    with open_store(root / "store") as store:
        return take_snapshot(LocalDirectory(root / "ck"), store, **wishes)


def restored(
    root: Path, number: int, name: str = "new", wishes: RestoreOptions | None = None
) -> LocalCopy:
    with open_store(root / "store") as store:
        restore_directory(store, number, LocalDirectory(root / name), wishes)
    return LocalCopy(root / name)


def files_of(copy: LocalCopy) -> dict[str, bytes]:
    return {path: copy.read(path) for path in copy.files_below(".")}


def test_a_stopped_directory_comes_back_as_it_was_after_its_newest_batch(tmp_path: Path) -> None:
    make_copy(tmp_path / "ck", 5)
    taken = take(tmp_path)
    assert (taken.batch, taken.is_full, taken.in_flight) == (4, True, False)
    copy = restored(tmp_path, taken.checkpoint_id)
    assert copy.batches("offsets") == copy.batches("commits") == [3, 4]
    for partition in (0, 1):
        for version in range(1, 6):
            path = f"state/0/{partition}/{version}.delta"
            assert copy.read(path) == state_of(partition, version)


def test_the_second_snapshot_holds_only_what_is_new(tmp_path: Path) -> None:
    make_copy(tmp_path / "ck", 3)
    first = take(tmp_path)
    make_copy(tmp_path / "more", 5)
    for path in LocalCopy(tmp_path / "more").files_below("."):
        if not (tmp_path / "ck" / path).exists():
            (tmp_path / "ck" / path).write_bytes((tmp_path / "more" / path).read_bytes())
    second = take(tmp_path)
    assert (second.batch, second.is_full) == (4, False)
    # two batches: four state files, two source entries, offsets and commits, metadata
    assert second.files == 4 + 2 + 4 + 1
    assert files_of(restored(tmp_path, second.checkpoint_id))["state/0/1/5.delta"] == state_of(1, 5)
    assert restored(tmp_path, first.checkpoint_id, "old").batches("commits") == [1, 2]


def test_a_batch_that_was_taken_already_is_not_taken_again(tmp_path: Path) -> None:
    make_copy(tmp_path / "ck", 3)
    first, again = take(tmp_path), take(tmp_path)
    assert first.is_new
    assert not again.is_new
    assert again.checkpoint_id == first.checkpoint_id


def test_a_batch_that_ran_again_after_a_rollback_never_builds_on_the_history_that_was_given_up(
    tmp_path: Path,
) -> None:
    copy = make_copy(tmp_path / "ck", 4)
    take(tmp_path)
    copy.forget_after(1)
    copy.remove("offsets/2")
    for batch in (2, 3, 4):  # planned at another time, with other rows
        text = offsets_text(f'{{"logOffset":{batch}}}').replace(
            '"conf"', '"batchTimestampMs": 99, "conf"'
        )
        copy.write(f"offsets/{batch}", text.encode())
        copy.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
        copy.write(f"sources/0/{batch}", source_entry(batch).encode())
        for partition in (0, 1):
            copy.write(f"state/0/{partition}/{batch + 1}.delta", b"another history")
    taken = take(tmp_path)
    assert taken.is_full
    assert restored(tmp_path, taken.checkpoint_id).read("state/0/0/4.delta") == b"another history"


def test_a_state_file_that_was_replaced_in_place_is_taken_again(tmp_path: Path) -> None:
    copy = make_copy(tmp_path / "ck", 3)
    take(tmp_path)
    copy.write("state/0/0/3.delta", b"x" * len(state_of(0, 3)))
    for batch in (3,):
        copy.write(f"offsets/{batch}", offsets_text(f'{{"logOffset":{batch}}}').encode())
        copy.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
        copy.write(f"sources/0/{batch}", source_entry(batch).encode())
        for partition in (0, 1):
            copy.write(f"state/0/{partition}/4.delta", state_of(partition, 4))
    taken = take(tmp_path)
    assert not taken.is_full
    found = restored(tmp_path, taken.checkpoint_id).read("state/0/0/3.delta")
    assert found == b"x" * len(state_of(0, 3))


def test_state_too_large_for_the_manifest_goes_into_shared_objects_and_comes_back(
    tmp_path: Path,
) -> None:
    copy = make_copy(tmp_path / "ck", 3)
    taken = take(tmp_path, sizes=Sizes(inline_operator=0))
    with open_store(tmp_path / "store") as store:
        manifest = store.load_by_id(taken.checkpoint_id)
        assert manifest is not None
        assert manifest.shared_objects
    back = files_of(restored(tmp_path, taken.checkpoint_id))
    state = {path: data for path, data in files_of(copy).items() if path.endswith(".delta")}
    assert {path: data for path, data in back.items() if path.endswith(".delta")} == state


class Cleaned(LocalDirectory):
    """A directory whose maintenance removes what was about to be read."""

    @contextmanager
    def hold(self, paths: Sequence[str]) -> Iterator[None]:
        with super().hold(paths):
            for path in paths:
                os.unlink(self.copy.path(path))
            yield


@pytest.mark.parametrize("size", [100, LARGE + 1])
def test_files_that_are_removed_before_they_were_read_are_stored_all_the_same(
    tmp_path: Path, size: int
) -> None:
    copy = make_copy(tmp_path / "ck", 3)
    copy.write("state/0/1/2.delta", b"x" * size)
    state = {path: data for path, data in files_of(copy).items() if path.endswith(".delta")}
    with open_store(tmp_path / "store") as store:
        taken = take_snapshot(Cleaned(tmp_path / "ck"), store)
    assert taken.tries == 1
    back = files_of(restored(tmp_path, taken.checkpoint_id))
    assert {path: data for path, data in back.items() if path.endswith(".delta")} == state


class Outrunning(LocalDirectory):
    """A query that is always one batch further, and has removed the state of those before."""

    batches = 3

    def listing(self) -> dict[str, FileEntry]:
        listed = super().listing()
        self.batches += 1
        make_copy(Path(self.url), self.batches)
        for partition in (0, 1):
            self.copy.remove(f"state/0/{partition}/1.delta")
        return listed


def test_a_query_that_is_always_faster_is_told_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seamark.native.snapshot._PAUSE", 0.0)
    make_copy(tmp_path / "ck", 3)
    with (
        open_store(tmp_path / "store") as store,
        pytest.raises(RefusedError, match="minBatchesToRetain"),
    ):
        take_snapshot(Outrunning(tmp_path / "ck"), store)


def test_a_planned_batch_goes_along_and_is_replayed_first(tmp_path: Path) -> None:
    copy = make_copy(tmp_path / "ck", 3)
    copy.write("offsets/3", offsets_text('{"logOffset":4}').encode())
    for number in (3, 4):
        copy.write(f"sources/0/{number}", source_entry(number).encode())
    copy.write("sources/0/5", source_entry(5).encode())  # seen, and not planned yet
    taken = take(tmp_path)
    assert (taken.batch, taken.in_flight) == (2, True)
    back = restored(tmp_path, taken.checkpoint_id)
    assert back.batches("offsets") == [1, 2, 3]
    assert sorted(back.source_entries()) == [f"sources/0/{n}" for n in range(5)]
    anew = restored(tmp_path, taken.checkpoint_id, "anew", RestoreOptions(without_plan=True))
    assert anew.batches("offsets") == [1, 2]
    assert sorted(anew.source_entries()) == [f"sources/0/{n}" for n in range(3)]


class GoingOn(LocalDirectory):
    """A query without state that runs or plans a batch while its directory is listed."""

    def __init__(self, root: Path, *, commits: bool) -> None:
        super().__init__(root)
        self._commits = commits
        self._listed = 0

    def listing(self) -> dict[str, FileEntry]:
        before, self._listed = super().listing(), self._listed + 1
        if self._listed > 1:
            return before
        self.copy.write("sources/0/3", source_entry(3).encode())
        self.copy.write("offsets/3", offsets_text('{"logOffset":3}').encode())
        if not self._commits:
            return before
        self.copy.write("commits/3", b'v1\n{"nextBatchWatermarkMs":0}')
        logs = {path: at for path, at in super().listing().items() if path[0] in "oc"}
        return before | logs  # the sources were listed first


@pytest.mark.parametrize("commits", [True, False])
def test_a_batch_never_goes_along_without_the_entries_that_its_sources_noted_meanwhile(
    tmp_path: Path, commits: bool
) -> None:
    copy = make_copy(tmp_path / "ck", 3)
    shutil.rmtree(tmp_path / "ck" / "state")
    with open_store(tmp_path / "store") as store:
        taken = take_snapshot(GoingOn(tmp_path / "ck", commits=commits), store)
    assert (taken.batch, taken.in_flight) == (3 if commits else 2, False)
    back = restored(tmp_path, taken.checkpoint_id)
    last = back.batches("offsets")[-1]
    assert last == taken.batch
    assert back.read_text(f"sources/0/{last}") == copy.read_text(f"sources/0/{last}")


class FirstRows(LocalDirectory):
    """A query whose second source gets its first rows while its directory is listed."""

    def listing(self) -> dict[str, FileEntry]:
        before = super().listing()
        if "sources/b/0" in before:
            return before
        self.copy.write("sources/b/0", source_entry(0).encode())
        self.copy.write("offsets/1", named_offsets("0", '{"logOffset":0}'))
        if not self.commits:
            return before
        self.copy.write("commits/1", b'v1\n{"nextBatchWatermarkMs":0}')
        logs = {path: at for path, at in super().listing().items() if path[0] in "oc"}
        return before | logs  # the sources were listed first

    commits = False


def named_offsets(first: str, second: str) -> bytes:
    lines = [f'a:{{"logOffset":{first}}}', f"b:{second}"]
    return offsets_text(*lines).replace("v1", "v2", 1).encode()


@pytest.mark.parametrize("commits", [True, False])
def test_a_named_source_that_gets_its_first_rows_meanwhile_goes_along_whole_or_not_at_all(
    tmp_path: Path, commits: bool
) -> None:
    copy = LocalCopy(tmp_path / "ck")
    copy.write("metadata", f'{{"id":"{QUERY}"}}'.encode())
    copy.write("sources/a/0", source_entry(0).encode())
    copy.write("offsets/0", named_offsets("0", "-"))
    copy.write("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
    directory = FirstRows(tmp_path / "ck")
    directory.commits = commits
    with open_store(tmp_path / "store") as store:
        taken = take_snapshot(directory, store)
    assert (taken.batch, taken.in_flight) == (1 if commits else 0, False)
    back = restored(tmp_path, taken.checkpoint_id)
    assert back.batches("offsets")[-1] == taken.batch
    assert (back.read_text("sources/b/0") is not None) == commits


def test_a_restored_directory_has_no_file_noted_that_only_the_store_says_is_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_copy(tmp_path / "ck", 3)
    taken = batches.source_entries
    forged = {"sources/0/3": source_entry(3).encode()}
    monkeypatch.setattr(batches, "source_entries", lambda *given: taken(*given) | forged)
    back = restored(tmp_path, take(tmp_path).checkpoint_id)
    assert sorted(back.source_entries()) == [f"sources/0/{n}" for n in range(3)]


def test_an_earlier_batch_is_taken_while_its_files_are_there_and_refused_when_not(
    tmp_path: Path,
) -> None:
    copy = make_copy(tmp_path / "ck", 6)
    taken = take(tmp_path, batch=2)
    assert (taken.batch, taken.in_flight) == (2, True)
    back = restored(tmp_path, taken.checkpoint_id)
    assert back.batches("commits") == [1, 2]
    assert not any("/4.delta" in path for path in back.files_below("state"))
    for partition in (0, 1):
        copy.write(f"state/0/{partition}/5.snapshot", b"all")
        for version in (1, 2, 3, 4):
            copy.remove(f"state/0/{partition}/{version}.delta")
    with pytest.raises(RefusedError, match="batch 1 is not there as a whole"):
        take(tmp_path, batch=1)
    with pytest.raises(RefusedError, match="batch 77"):
        take(tmp_path, batch=77)
    assert take(tmp_path).batch == 5


def test_a_query_that_keeps_the_logs_of_one_batch_is_not_called_damaged_while_it_runs_one(
    tmp_path: Path,
) -> None:
    copy = make_copy(tmp_path / "ck", 3)
    copy.write("offsets/3", offsets_text('{"logOffset":3}').encode())
    copy.write("sources/0/3", source_entry(3).encode())
    for batch in (0, 1):
        copy.remove(f"offsets/{batch}")
        copy.remove(f"commits/{batch}")
    with pytest.raises(RefusedError, match="together with the one before") as refused:
        take(tmp_path)
    assert "minBatchesToRetain" in str(refused.value.hint)
    copy.write("commits/3", b'v1\n{"nextBatchWatermarkMs":0}')
    for partition in (0, 1):
        copy.write(f"state/0/{partition}/4.delta", state_of(partition, 4))
    assert take(tmp_path).batch == 3
    with pytest.raises(RefusedError, match="batch 2 is not there as a whole"):
        take(tmp_path, batch=2)


def test_a_directory_with_a_hole_is_told_and_never_stored(tmp_path: Path) -> None:
    copy = make_copy(tmp_path / "ck", 4)
    copy.remove("state/0/1/3.delta")
    with pytest.raises(DamageError, match="no whole batch") as told:
        take(tmp_path)
    assert "partition 1" in str(told.value)
    with open_store(tmp_path / "store") as store:
        assert store.list_ids() == []


class Vanishing(LocalDirectory):
    """A directory whose query goes on while it is read: one batch more, and old state removed.

    Nothing can be held, as in an object store.
    """

    def __init__(self, root: Path, rounds: int) -> None:
        super().__init__(root)
        self.batches = 4
        self._rounds = rounds
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, paths: Sequence[str]) -> Iterator[None]:
        yield

    def read(self, path: str) -> bytes:
        with self._lock:  # files are read by several threads
            return self._read(path)

    def _read(self, path: str) -> bytes:
        if path.endswith(".delta") and self._rounds:
            self._rounds -= 1
            self.batches += 1
            make_copy(Path(self.url), self.batches)
            version = self.batches - 1
            for partition in (0, 1):
                self.copy.write(f"state/0/{partition}/{version}.snapshot", b"all")
                for old in range(1, version + 1):
                    self.copy.remove(f"state/0/{partition}/{old}.delta")
        return super().read(path)


def test_a_batch_whose_files_vanish_while_they_are_read_gives_way_to_a_newer_one(
    tmp_path: Path,
) -> None:
    make_copy(tmp_path / "ck", 4)
    with open_store(tmp_path / "store") as store:
        taken = take_snapshot(Vanishing(tmp_path / "ck", 2), store)
    assert taken.tries > 1
    assert taken.batch == 5
    assert restored(tmp_path, taken.checkpoint_id).batches("commits") == [4, 5]


def test_two_queries_never_share_a_store(tmp_path: Path) -> None:
    copy = make_copy(tmp_path / "ck", 2)
    take(tmp_path)
    copy.write("metadata", b'{"id":"11111111-1111-1111-1111-111111111111"}')
    with pytest.raises(RefusedError, match="belongs to the pipeline"):
        take(tmp_path)


def test_restoring_into_a_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    make_copy(tmp_path / "ck", 2)
    taken = take(tmp_path)
    with pytest.raises(RefusedError, match="not empty"):
        restored(tmp_path, taken.checkpoint_id, "ck")


def test_a_flipped_bit_in_the_store_is_told_and_leaves_no_directory(tmp_path: Path) -> None:
    make_copy(tmp_path / "ck", 2)
    taken = take(tmp_path, sizes=Sizes(inline_operator=0))
    sidecar = next((tmp_path / "store").rglob("state.bin"))
    data = bytearray(sidecar.read_bytes())
    data[len(data) // 2] ^= 1
    sidecar.write_bytes(data)
    with pytest.raises(DamageError):
        restored(tmp_path, taken.checkpoint_id)
    assert not (tmp_path / "new").exists()
    assert [path.name for path in tmp_path.iterdir() if "restore" in path.name] == []


def test_a_moved_input_and_a_new_query_id_are_as_wished(tmp_path: Path) -> None:
    make_copy(tmp_path / "ck", 2)
    taken = take(tmp_path)
    wishes = RestoreOptions(new_query_id=True, moved_inputs={"file:///in": "s3a://bucket/raw"})
    back = restored(tmp_path, taken.checkpoint_id, wishes=wishes)
    assert "s3a://bucket/raw/1" in (back.read_text("sources/0/1") or "")
    assert json.loads(back.read_text("metadata") or "{}")["id"] not in ("q", "")


class TestPlaces:
    """A directory on an object store is like one on a disk."""

    @pytest.fixture
    def there(self, s3: ObjectServer, tmp_path: Path) -> Directory:
        local = make_copy(tmp_path / "ck", 3)
        directory = open_directory(s3.new_url("jobs/ck"), s3.storage_options)
        for path in local.files_below("."):
            directory.write(path, local.read(path))
        return directory

    def test_a_directory_on_s3_is_taken_and_restored_on_s3(
        self, s3: ObjectServer, there: Directory, tmp_path: Path
    ) -> None:
        assert isinstance(there, ObjectDirectory)
        url = s3.new_url("store")
        new = open_directory(s3.new_url("jobs/new"), s3.storage_options)
        with open_store(url, storage_options=s3.storage_options) as store:
            taken = take_snapshot(there, store)
            assert not take_snapshot(there, store).is_new
            restore_directory(store, taken.checkpoint_id, new)
            restore_directory(store, taken.checkpoint_id, LocalDirectory(tmp_path / "near"))
            with pytest.raises(RefusedError, match="not empty"):
                restore_directory(store, taken.checkpoint_id, new)
        far = Tree.of(new)
        assert far.batches("commits") == [1, 2]
        near = LocalCopy(tmp_path / "near")
        assert {path: far.read(path) for path in far.files_below(".")} == files_of(near)

    def test_a_file_is_replaced_and_removed(self, there: Directory) -> None:
        there.write("metadata", b"other")
        assert there.read("metadata") == b"other"
        there.remove(["metadata", "never/there"])
        with pytest.raises(FileNotFoundError):
            there.read("metadata")
        assert isinstance(there.listing()["offsets/0"], FileEntry)

    def test_a_uri_is_the_one_that_hadoop_knows(self, s3: ObjectServer) -> None:
        assert open_directory("s3://b/x/", s3.storage_options).uri == "s3a://b/x"
        assert open_directory("file:/a/b").uri == "file:/a/b"
        assert open_directory("file:///a/b").url == "/a/b"

    def test_credentials_in_a_url_are_refused_without_being_repeated(self) -> None:
        with pytest.raises(InvalidInputError) as told:
            open_directory("s3a://key:hidden@bucket/x")
        assert "hidden" not in str(told.value)


def test_a_snapshot_of_a_snapshot_s_copy_is_the_same(tmp_path: Path) -> None:
    make_copy(tmp_path / "ck", 4)
    taken = take(tmp_path)
    restored(tmp_path, taken.checkpoint_id)
    shutil.rmtree(tmp_path / "ck")
    shutil.copytree(tmp_path / "new", tmp_path / "ck")
    assert not take(tmp_path).is_new


class TestHoles:
    """What is lost in a directory is told, and never stored as if it had not been there."""

    def test_a_partition_that_is_gone_as_a_whole_is_not_taken_for_one_that_never_was(
        self, tmp_path: Path
    ) -> None:
        make_copy(tmp_path / "ck", 3)
        shutil.rmtree(tmp_path / "ck" / "state" / "0" / "1")
        with pytest.raises(DamageError, match="no whole batch"):
            take(tmp_path)

    def test_an_operator_that_is_gone_as_a_whole_is_told(self, tmp_path: Path) -> None:
        make_copy(tmp_path / "ck", 3)
        (tmp_path / "ck" / "state" / "0").rename(tmp_path / "ck" / "state" / "1")
        with pytest.raises(DamageError, match="no whole batch") as told:
            take(tmp_path)
        assert "operator 0" in str(told.value)

    def test_an_operator_without_a_key_has_one_partition(self, tmp_path: Path) -> None:
        copy = make_copy(tmp_path / "ck", 3)
        shutil.rmtree(tmp_path / "ck" / "state" / "0" / "1")
        key, value = (f'{{"type":"struct","fields":[{inside}]}}' for inside in ("", '{"name":"n"}'))
        copy.write("state/0/0/_metadata/schema", f"v2\n{key}\n{value}".encode())
        assert take(tmp_path).batch == 2
        copy.write("state/0/0/_metadata/schema", f"v2\n{value}\n{key}".encode())
        with pytest.raises(DamageError):
            take(tmp_path, full=True)

    def test_a_state_file_without_bytes_is_not_taken(self, tmp_path: Path) -> None:
        copy = make_copy(tmp_path / "ck", 3)
        copy.write("state/0/1/2.delta", b"")
        with pytest.raises(DamageError, match="no whole batch") as told:
            take(tmp_path)
        assert "no bytes" in str(told.value)


class Running(LocalDirectory):
    """The directory of a query that commits a batch between two looks and loses its state."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._root = root
        self._batches = 3

    def listing(self) -> dict[str, FileEntry]:
        self._batches += 1
        make_copy(self._root, self._batches)
        (self._root / "state" / "0" / "1" / f"{self._batches}.delta").unlink()
        return super().listing()


def test_of_a_query_that_is_always_ahead_an_earlier_batch_is_taken(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        taken = take_snapshot(Running(tmp_path / "ck"), store)
        assert (taken.batch, taken.tries) == (3, 2)


class TestParents:
    """A checkpoint builds on nothing that is damaged or of another history."""

    def go_on(self, root: Path, batch: int, state: bytes | None = None) -> None:
        copy = LocalCopy(root / "ck")
        copy.write(f"offsets/{batch}", offsets_text(f'{{"logOffset":{batch}}}').encode())
        copy.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
        copy.write(f"sources/0/{batch}", source_entry(batch).encode())
        for partition in (0, 1):
            data = state or state_of(partition, batch + 1)
            copy.write(f"state/0/{partition}/{batch + 1}.delta", data)

    @pytest.mark.parametrize("verify", [False, True])
    def test_after_a_damaged_one_comes_a_full_one(self, tmp_path: Path, verify: bool) -> None:
        make_copy(tmp_path / "ck", 3)
        take(tmp_path, sizes=Sizes(inline_operator=0))
        sidecar = next((tmp_path / "store").rglob("state.bin"))
        data = bytearray(sidecar.read_bytes())
        data[len(data) // 2] ^= 1
        sidecar.write_bytes(data if verify else data[:-1])
        self.go_on(tmp_path, 3)
        taken = take(tmp_path, verify_parent=verify)
        assert taken.is_full
        assert restored(tmp_path, taken.checkpoint_id).batches("commits") == [2, 3]

    def test_a_batch_that_was_stored_and_is_damaged_is_taken_again(self, tmp_path: Path) -> None:
        make_copy(tmp_path / "ck", 3)
        take(tmp_path, sizes=Sizes(inline_operator=0))
        next((tmp_path / "store").rglob("state.bin")).unlink()
        again = take(tmp_path)
        assert (again.is_new, again.is_full) == (True, True)

    def test_a_batch_that_was_replayed_with_another_result_is_another_history(
        self, tmp_path: Path
    ) -> None:
        make_copy(tmp_path / "ck", 4)
        take(tmp_path)
        copy = LocalCopy(tmp_path / "ck")
        copy.write("commits/3", b'v1\n{"nextBatchWatermarkMs":77}')
        assert take(tmp_path).is_full

    def test_a_restore_takes_exactly_the_files_that_its_checkpoint_names(
        self, tmp_path: Path
    ) -> None:
        copy = make_copy(tmp_path / "ck", 3)
        for partition in (0, 1):
            copy.write(f"state/0/{partition}/3.snapshot", b"a history that was given up")
        take(tmp_path)
        for partition in (0, 1):
            copy.remove(f"state/0/{partition}/3.snapshot")
        self.go_on(tmp_path, 3)
        taken = take(tmp_path)
        assert not taken.is_full
        back = restored(tmp_path, taken.checkpoint_id)
        assert not any("snapshot" in path for path in back.files_below("state"))
        assert back.read("state/0/0/1.delta") == state_of(0, 1)

    def test_a_batch_that_was_planned_after_its_snapshot_is_taken_along_later(
        self, tmp_path: Path
    ) -> None:
        copy = make_copy(tmp_path / "ck", 3)
        assert not take(tmp_path).in_flight
        copy.write("offsets/3", offsets_text('{"logOffset":3}').encode())
        copy.write("sources/0/3", source_entry(3).encode())
        again = take(tmp_path)
        assert (again.batch, again.is_new, again.in_flight) == (2, True, True)
        assert not take(tmp_path).is_new

    def test_a_writer_that_was_faster_is_built_upon(self, tmp_path: Path) -> None:
        make_copy(tmp_path / "ck", 3)
        take(tmp_path)
        self.go_on(tmp_path, 3)

        class Overtaken(LocalDirectory):
            """While it is read, another process saves the same batch."""

            reads = 0

            def read(self, path: str) -> bytes:
                if path == "state/0/1/4.delta" and not self.reads:
                    self.reads += 1
                    take(tmp_path)
                return super().read(path)

        with open_store(tmp_path / "store") as store:
            taken = take_snapshot(Overtaken(tmp_path / "ck"), store)
        assert (taken.is_new, taken.batch) == (False, 3)
        with open_store(tmp_path / "store") as store:
            assert len(store.list_ids()) == 2


def test_a_store_inside_the_directory_is_refused(tmp_path: Path) -> None:
    make_copy(tmp_path / "ck", 2)
    for inside in ("", "/store"):
        with open_store(f"{tmp_path}/ck{inside}") as store, pytest.raises(InvalidInputError):
            take_snapshot(LocalDirectory(tmp_path / "ck"), store)
    assert not (tmp_path / "ck" / "owner.json").exists()


class TestLines:
    """Which folder of a source belongs to which line of the offset log."""

    @pytest.mark.parametrize(
        ("lines", "newest", "found"),
        [
            (["5"], {0: 5}, {0: {"5"}}),
            (["5", "0"], {0: 5, 1: 0}, {0: {"5"}, 1: {"0"}}),
            # one source feeds two branches, another one stands between them, or after them
            (["5", "0", "5"], {0: 5, 1: 0}, {0: {"5"}, 1: {"0"}}),
            (["5", "5", "0"], {0: 5, 1: 0}, {0: {"5"}, 1: {"0"}}),
            (["2", "2", "7"], {0: 2, 1: 9}, {0: {"2"}, 1: {"7"}}),
            # a source that keeps no log of files beside one that does
            (["x", "3"], {1: 3}, {0: {"x"}, 1: {"3"}}),
            (["3", "3", "x"], {0: 3, 1: None}, {0: {"3"}, 1: {"x"}}),
            (["-", "x"], {0: 0, 1: None}, {0: {"-"}, 1: {"x"}}),
        ],
    )
    def test_lines_are_matched_with_what_the_logs_can_mean(
        self, lines: list[str], newest: dict[int, int | None], found: dict[int, set[str]]
    ) -> None:
        def line(text: str) -> str:
            return f'{{"logOffset":{text}}}' if text.isdigit() else text

        possible = possible_lines([line(text) for text in lines], newest)
        for number, expected in found.items():
            assert possible[number] == set(map(line, expected))

    @pytest.mark.parametrize(
        ("lines", "newest", "beyond"),
        [
            (["3"], {"0": 3}, None),
            (["4"], {"0": 3}, 4),
            (["4"], {}, 4),
            (["-"], {"0": 3}, None),
            (["-"], {}, None),
            (["2", "4"], {"0": 9, "1": 3}, 4),
            (["4", "2"], {"0": 3, "1": 9}, 4),
            (["2", "4", "2"], {"0": 3, "1": 9}, None),
            (["x", "4"], {"0": None, "1": 3}, 4),
            (["x", "4"], {"0": None, "1": 4}, None),
            (["3"] * 13, {"0": 3}, None),
            (["2"] * 12 + ["4"], {"0": 9, "1": 3}, None),  # of so many it is not known whose it is
            (["2"] * 12 + ["4"], {"0": 3, "1": 3}, 4),
        ],
    )
    def test_an_entry_that_no_log_has_is_noticed(
        self, lines: list[str], newest: dict[str, int | None], beyond: int | None
    ) -> None:
        texts = [f'{{"logOffset":{text}}}' if text.isdigit() else text for text in lines]
        assert entry_beyond(newest, parse_offsets(offsets_text(*texts))) == beyond

    def test_equal_lines_cost_no_more_than_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        looked_at = 0

        def counted(line: str) -> int | None:
            nonlocal looked_at
            looked_at += 1
            return log_offset(line)

        monkeypatch.setattr(plans, "log_offset", counted)
        lines, newest = ['{"logOffset":0}'] * 12, dict.fromkeys(range(6), 0)
        assert possible_lines(lines, newest) == {n: {lines[0]} for n in range(6)}
        assert looked_at <= 2

    @pytest.mark.parametrize("seed", range(20))
    def test_lines_are_matched_in_every_way_that_fits_and_in_no_other(self, seed: int) -> None:
        dice = random.Random(seed)
        texts = ['{"logOffset":0}', '{"logOffset":2}', "x", "-"]
        lines = [dice.choice(texts) for _ in range(dice.randint(1, 6))]
        newest = {n: dice.choice([None, 0, 1, 2]) for n in range(4) if dice.random() < 0.6}
        assert possible_lines(lines, newest) == _tried_one_by_one(lines, newest)

    def test_a_source_that_has_read_nothing_yet_keeps_where_it_began(self, tmp_path: Path) -> None:
        copy = make_copy(tmp_path / "ck", 2)
        for batch in (0, 1):
            text = offsets_text(f'{{"logOffset":{batch}}}', "-")
            copy.write(f"offsets/{batch}", text.encode())
        copy.write("sources/1/0", b'v1\n{"trades":{"0":17}}')
        back = restored(tmp_path, take(tmp_path).checkpoint_id)
        assert back.read("sources/1/0") == b'v1\n{"trades":{"0":17}}'


def _tried_one_by_one(lines: list[str], newest: dict[int, int | None]) -> dict[int, set[str]]:
    """Which source each line may be of: every line is a new source or one that had it before."""
    found: dict[int, set[str]] = {}
    for fresh in itertools.product([True, False], repeat=len(lines)):
        chosen: list[str] = []
        for line, is_fresh in zip(lines, fresh, strict=True):
            if is_fresh:
                chosen.append(line)
            elif line not in chosen:
                break
        else:
            fits = all(_is_of(line, number, newest) for number, line in enumerate(chosen))
            if fits and len(chosen) > max(newest, default=-1):
                for number, line in enumerate(chosen):
                    found.setdefault(number, set()).add(line)
    return found


def _is_of(line: str, number: int, newest: dict[int, int | None]) -> bool:
    if number not in newest:
        return log_offset(line) is None
    last, at = newest[number], plans.position_in(line)
    if last is None:
        return at is None or line == "-"
    return at is not None and at <= last


class Overtaken(LocalDirectory):
    """Once it is listed, another batch is run and stored by somebody else."""

    def __init__(self, growing: GrowingDirectory, store: Path) -> None:
        super().__init__(growing.root)
        self._growing = growing
        self._store = store
        self._is_listed = False

    def listing(self) -> dict[str, FileEntry]:
        entries = super().listing()
        if not self._is_listed:
            self._is_listed = True
            self._growing.run_batch()
            with open_store(self._store) as other:
                take_snapshot(LocalDirectory(self._growing.root), other)
        return entries


def test_a_batch_is_not_stored_after_a_later_one_that_another_process_has_stored(
    tmp_path: Path,
) -> None:
    growing = GrowingDirectory(tmp_path / "directory").run_batches(2)
    with open_store(tmp_path / "store") as store:
        snapshot = take_snapshot(Overtaken(growing, tmp_path / "store"), store)
    assert (snapshot.batch, snapshot.is_new) == (2, False)
    assert batches_restored_from(tmp_path / "store", tmp_path) == [2]
