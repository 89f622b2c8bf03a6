"""What is captured is enough to make the directory again, and nothing else is believed."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from seamark import open_store
from seamark.capture.capture import Capture
from seamark.capture.checkpoint_contents import Chain, Sizes, place
from seamark.capture.epoch_files import Captured
from seamark.capture.file_index import FileIndex, StoredFile
from seamark.capture.movers import Contents, DriverMover
from seamark.capture.plans import install_plan, own_lines, read_plan
from seamark.capture.restore import difference, keep, restore, restore_index
from seamark.capture.uploads import Uploads
from seamark.checkpoint_dir.places.local import LocalCopy, LocalDirectory
from seamark.checkpoint_dir.schema_paths import ROOT_MARK, with_root
from seamark.checkpoint_dir.state_files import MissingVersion, is_state
from seamark.errors import CheckpointNotFoundError, DamageError
from seamark.manifest import CheckpointManifest
from seamark.native import restore as native_restore
from seamark.store import CheckpointStore
from seamark.store.index_parts import LOG, check_path
from tests.checkpoint_dir.support.directories import make_copy, offsets_text, source_entry, state_of

COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def old_chain(root: Path, batches: int, full_at: int = 0) -> list[Contents]:
    """What checkpoints from before there were indexes hold: all files, then what is new."""
    chain: list[Contents] = []
    known: set[str] = set()
    for batch in range(full_at, batches):
        copy = make_copy(root, batch + 1)
        copy.write(f"commits/{batch}", COMMIT.encode())
        contents = {path: copy.read(path) for path in copy.files_below(".") if path not in known}
        known |= contents.keys()
        chain.append(contents)
    return chain


class Stored:
    """Checkpoints of some batches in a store: a full one, then what each later batch adds."""

    def __init__(
        self,
        root: Path,
        *,
        inline: bool = True,
        full_every: int = 100,
        store: CheckpointStore | None = None,
    ) -> None:
        self.copy = LocalCopy(root)
        self.store: CheckpointStore = store or open_store("memory://")
        self.shared = self.store.shared_objects
        self.uploads = Uploads(self.shared)
        self.capture = Capture(
            self.copy, DriverMover(self.copy, self.uploads, threads=1), uploads=self.uploads
        )
        self.sizes = Sizes() if inline else Sizes(inline_operator=0)
        self.full_every = full_every
        self.captured: list[Captured] = []
        self.manifests: list[CheckpointManifest] = []
        self.number = 1
        """The id of the next checkpoint."""

    def take(self, batch: int, *, full: bool | None = None) -> Captured:
        """Save what one batch added."""
        make_copy(Path(self.copy.root), batch + 1)
        if full is None:
            full = len(self.manifests) % self.full_every == 0
        taken = self.capture.take(batch, COMMIT, full=full)
        self.save(batch, taken)
        return taken

    def save(self, batch: int, taken: Captured) -> None:
        """Save what was taken as the next checkpoint."""
        placed = place(taken, self.sizes, self.uploads, self.capture.index)
        self.capture.check_unchanged(placed.files)
        before = self.manifests[-1].checkpoint_id if self.manifests else None
        manifest = CheckpointManifest.new(
            self.number,
            epoch=batch + 1,
            batch=batch,
            operator_states=placed.operator_states,
            is_incremental=not taken.is_full,
            parent_id=before,
            shared_objects=[list(each) for each in placed.shared_objects] or None,
            restore_bytes=placed.restore_size,
        )
        self.manifests.append(self.store.save_with_state(manifest, placed.chunks or None))
        self.number += 1
        self.capture.saved(taken, placed.files)
        self.captured.append(taken)

    def chain(self) -> Chain:
        """The newest checkpoint and what it builds on."""
        return Chain.load(self.store, self.manifests[-1])

    def restored(self, root: Path) -> LocalCopy:
        """A directory made from the newest checkpoint."""
        chain, copy = self.chain(), LocalCopy(root)
        assert chain.index is not None
        restore_index(copy, chain.index, chain.small, self.shared)
        return copy


def capture_all(root: Path, batches: int, full_at: int = 0, *, inline: bool = True) -> Stored:
    """Checkpoints of some batches: a full one, then what each later batch adds."""
    stored = Stored(root, inline=inline)
    for batch in range(full_at, batches):
        stored.take(batch)
    return stored


def everything(copy: LocalCopy) -> dict[str, bytes]:
    return {path: copy.read(path) for path in copy.files_below(".")}


def require_whole(copy: LocalCopy, batch: int) -> None:
    """Check that a directory is what a restart after the batch needs."""
    made = everything(copy)
    for partition in (0, 1):
        for version in range(1, batch + 2):
            path = f"state/0/{partition}/{version}.delta"
            assert made[path] == state_of(partition, version)
    assert copy.batches("offsets") == [batch - 1, batch]
    assert copy.batches("commits") == [batch - 1, batch]
    assert sorted(copy.source_entries()) == [f"sources/0/{n}" for n in range(batch + 1)]


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "shared"])
@pytest.mark.parametrize("full_every", [1, 2, 100])
def test_a_chain_of_captures_makes_the_directory_again(
    inline: bool, full_every: int, tmp_path: Path
) -> None:
    stored = Stored(tmp_path / "a", inline=inline, full_every=full_every)
    for batch in range(2, 5):
        stored.take(batch)
    require_whole(stored.restored(tmp_path / "b"), 4)
    assert stored.store.validate_checkpoint(3).valid


def test_a_chain_from_before_there_were_indexes_makes_the_directory_again(tmp_path: Path) -> None:
    copy = LocalCopy(tmp_path / "b")
    restore(copy, old_chain(tmp_path / "a", 5, full_at=2), 4)
    require_whole(copy, 4)


def test_an_increment_holds_only_what_its_parents_lack(tmp_path: Path) -> None:
    third = capture_all(tmp_path / "a", 3).captured[-1]
    paths = [path for contents in third.files.values() for path in contents]
    state = sorted(path for path in paths if path.startswith("state/"))
    assert state == ["state/0/0/3.delta", "state/0/1/3.delta"]
    assert [path for path in paths if path.startswith("sources/")] == ["sources/0/2"]


def test_I11_a_full_checkpoint_stores_no_shared_file_again(tmp_path: Path) -> None:
    stored = capture_all(tmp_path / "a", 3, inline=False)
    before = stored.shared.entries().keys()
    taken = stored.take(3, full=True)
    assert {p for c in taken.files.values() for p in c if is_state(p)} == {
        "state/0/0/4.delta",
        "state/0/1/4.delta",
    }
    assert len(stored.shared.entries().keys() - before) == 1
    assert len(stored.manifests[-1].shared_objects) == 4
    assert stored.manifests[-1].builds_on is None
    require_whole(stored.restored(tmp_path / "b"), 3)


def test_a_batch_that_was_not_read_in_full_is_no_epoch(tmp_path: Path) -> None:
    stored = capture_all(tmp_path / "a", 2)
    source = make_copy(tmp_path / "a", 3)
    source.remove("state/0/1/3.delta")
    with pytest.raises(MissingVersion, match="partition 1"):
        stored.capture.take(2, COMMIT, full=False)
    with pytest.raises(MissingVersion, match="partition 1"):
        Stored(tmp_path / "a").capture.take(2, COMMIT, full=True)


def test_a_state_file_that_changed_since_an_earlier_checkpoint_is_damage(tmp_path: Path) -> None:
    stored = capture_all(tmp_path / "a", 2)
    again = StoredFile(3, sha256(b"new").digest())
    with pytest.raises(DamageError, match="has changed"):
        stored.capture.check_unchanged({"state/0/0/2.delta": again})


def test_a_repeated_epoch_whose_state_differs_is_noticed(tmp_path: Path) -> None:
    stored = capture_all(tmp_path / "a", 2)
    assert stored.capture.differences(1) == ""
    stored.copy.write("state/0/0/2.delta", b"something else")
    assert stored.capture.differences(1) == "state/0/0/2.delta"


def test_a_chain_with_a_hole_is_not_restored(tmp_path: Path) -> None:
    first, second, third = old_chain(tmp_path / "a", 3)
    assert second
    with pytest.raises(DamageError, match="lacks state"):
        restore(LocalCopy(tmp_path / "b"), [first, third], 2)


@pytest.mark.parametrize("what", ["gone", "flipped", "cut"])
def test_I7_a_damaged_shared_object_is_never_restored(what: str, tmp_path: Path) -> None:
    stored = capture_all(tmp_path / "a", 2, inline=False)
    entry = next(iter(stored.shared.entries().values()))
    blobs = stored.store.backend
    data = bytearray(blobs.read(entry.key, 1 << 20).data)  # type: ignore[union-attr]
    blobs.delete([entry.key])
    data[9] ^= 1
    if what != "gone":
        blobs.create(entry.key, bytes(data if what == "flipped" else data[:-1]))
    with pytest.raises(DamageError, match="shared/"):
        stored.restored(tmp_path / "b")
    assert not stored.store.validate_checkpoint(2).valid
    assert stored.store.recover_latest_validated().chosen_id != 2


def test_restoring_into_a_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    stored = capture_all(tmp_path / "a", 1)
    make_copy(tmp_path / "b", 1)
    with pytest.raises(DamageError, match="empty"):
        stored.restored(tmp_path / "b")


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "state/../../x", "other/x", "state//x", ""]
)
def test_a_hostile_path_never_leaves_the_directory(path: str, tmp_path: Path) -> None:
    with pytest.raises(DamageError):
        check_path(path)
    with pytest.raises(DamageError):
        restore(LocalCopy(tmp_path / "b"), [{path: b"x"}], 0)
    index = FileIndex({path: StoredFile(1, sha256(b"x").digest())})
    with pytest.raises(DamageError):
        restore_index(LocalCopy(tmp_path / "b"), index, {path: b"x"}, Stored(tmp_path / "a").shared)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("inline", [True, False])
def test_a_restore_and_a_proof_count_every_byte_once(tmp_path: Path, inline: bool) -> None:
    stored = capture_all(tmp_path / "a", 3, inline=inline)
    chain, counted = stored.chain(), list[int]()
    assert chain.index is not None
    copy = LocalCopy(tmp_path / "b")
    done = restore_index(copy, chain.index, chain.small, stored.shared, counted.append)
    assert sum(counted) == done.size == chain.index.size
    compared = list[str]()
    assert difference(copy, chain.expected, 2, compared.append) is None
    assert sorted(compared) == sorted(chain.expected)
    on_disk = sum((tmp_path / "b" / path).stat().st_size for path in compared)
    assert chain.bytes_of(compared) == on_disk > 0


class TestKeeping:
    """A directory of the last run is kept only when every needed file is proven."""

    @pytest.fixture
    def chain(self, tmp_path: Path) -> list[Contents]:
        return old_chain(tmp_path / "a", 3)

    @pytest.fixture
    def source(self, tmp_path: Path, chain: list[Contents]) -> LocalCopy:
        assert chain
        return make_copy(tmp_path / "a", 4)  # one batch more than the checkpoint

    @pytest.fixture
    def digests(self, chain: list[Contents]) -> dict[str, bytes]:
        files = {path: data for each in chain for path, data in each.items()}
        return {path: sha256(data).digest() for path, data in files.items() if is_state(path)}

    def test_it_matches(self, source: LocalCopy, digests: dict[str, bytes]) -> None:
        assert difference(source, digests, 2) is None

    def test_a_swapped_state_file_is_noticed(
        self, source: LocalCopy, digests: dict[str, bytes]
    ) -> None:
        shutil.copy(source.path("state/0/0/1.delta"), source.path("state/0/0/2.delta"))
        assert difference(source, digests, 2) == "state/0/0/2.delta has other bytes"

    def test_a_flipped_bit_is_noticed(self, source: LocalCopy, digests: dict[str, bytes]) -> None:
        data = bytearray(source.read("state/0/1/3.delta"))
        data[7] ^= 1
        source.write("state/0/1/3.delta", bytes(data))
        assert difference(source, digests, 2) == "state/0/1/3.delta has other bytes"

    def test_a_missing_needed_file_is_noticed(
        self, source: LocalCopy, digests: dict[str, bytes]
    ) -> None:
        source.remove("state/0/1/2.delta")
        assert "version 2" in (difference(source, digests, 2) or "")

    def test_state_that_no_checkpoint_vouches_for_is_removed(
        self, source: LocalCopy, chain: list[Contents], digests: dict[str, bytes]
    ) -> None:
        source.write("state/0/0/2.snapshot", b"an abandoned history")
        source.write("state/0/0/.2.snapshot.crc", b"")
        logs = {p: d for each in chain for p, d in each.items() if "state/0/0" not in p}
        logs = {p: d for p, d in logs.items() if "/_" in p or not p.startswith("state/")}
        keep(source, logs, digests, 2)
        left = {path for path in source.files_below("state") if "/_" not in path}
        assert left == {f"state/0/{p}/{v}.delta" for p in (0, 1) for v in (1, 2, 3)}
        assert source.batches("offsets") == [0, 1, 2]
        assert source.batches("commits") == [0, 1, 2]
        assert sorted(source.source_entries()) == [f"sources/0/{n}" for n in range(3)]

    def test_a_lost_commit_and_a_torn_log_are_put_right(
        self, source: LocalCopy, chain: list[Contents], digests: dict[str, bytes]
    ) -> None:
        source.remove("commits/2")
        source.write("offsets/2", b"")
        logs = {p: d for each in chain for p, d in each.items() if not p.startswith("state/0/")}
        assert keep(source, logs, digests, 2) == "kept, commits/2 written"
        assert source.read_text("offsets/2") == offsets_text('{"logOffset":2}')
        assert source.read_text("commits/2") == COMMIT


class TestPlans:
    """An epoch that is run again reads exactly the rows that it was planned for."""

    def test_a_plan_holds_the_entries_of_its_own_batch_only(self, tmp_path: Path) -> None:
        plan = read_plan(make_copy(tmp_path / "a", 4), 2, [0])
        assert plan is not None
        assert plan.sources == {"sources/0/2": source_entry(2)}

    def test_a_torn_entry_is_no_plan(self, tmp_path: Path) -> None:
        copy = make_copy(tmp_path / "a", 2)
        copy.write("offsets/2", b"v1\n{")
        assert read_plan(copy, 2, [0]) is None
        assert read_plan(copy, 7, [0]) is None

    def test_a_source_without_a_log_belongs_to_the_first_batch(self, tmp_path: Path) -> None:
        copy = make_copy(tmp_path / "a", 2)
        for batch in (0, 1):
            copy.write(f"offsets/{batch}", offsets_text(str(batch)).encode())
        first, second = read_plan(copy, 0, [0]), read_plan(copy, 1, [0])
        assert first is not None
        assert sorted(first.sources) == ["sources/0/0", "sources/0/1"]
        assert second is not None
        assert second.sources == {}

    def test_a_source_that_was_added_belongs_to_the_batch_that_it_begins_with(
        self, tmp_path: Path
    ) -> None:
        copy = make_copy(tmp_path / "a", 3)
        copy.write("sources/1/0", b"v1\nit began here")
        for batch, added in enumerate(("-", "7", "8")):
            lines = offsets_text(f'{{"logOffset":{batch}}}', added)
            copy.write(f"offsets/{batch}", lines.encode())
        begins, follows = read_plan(copy, 1, [0, 1]), read_plan(copy, 2, [0, 1])
        assert begins is not None
        assert sorted(begins.sources) == ["sources/0/1", "sources/1/0"]
        assert follows is not None
        assert sorted(follows.sources) == ["sources/0/2"]

    def test_a_compaction_is_made_again_from_what_came_before(self, tmp_path: Path) -> None:
        copy = make_copy(tmp_path / "a", 10)
        whole = "\n".join(["v1", *(source_entry(n).split("\n")[1] for n in range(10))])
        copy.remove("sources/0/9")
        copy.write("sources/0/9.compact", whole.encode())
        plan = read_plan(copy, 9, [0])
        assert plan is not None
        assert plan.sources == {"sources/0/9.compact": source_entry(9)}
        for path in ("sources/0/9.compact", "offsets/9"):
            copy.remove(path)
        install_plan(copy, 9, plan)
        assert copy.read_text("sources/0/9.compact") == whole
        assert copy.read_text("offsets/9") == offsets_text('{"logOffset":9}')

    def test_lines_of_other_batches_are_not_a_compactions_own(self) -> None:
        entry = (
            'v1\n{"path":"a","timestamp":1,"batchId":1}\n{"path":"b","timestamp":1,"batchId":19}'
        )
        own = own_lines("sources/0/19.compact", entry)
        assert own == 'v1\n{"path":"b","timestamp":1,"batchId":19}'


def test_absolute_paths_lead_to_where_the_directory_is_now(tmp_path: Path) -> None:
    path = "state/0/_metadata/v2/0"
    old = 'v2\n{"stateSchemaFilePaths":["file:/old/place/state/0/_stateSchema/default/0_ab"]}'
    anywhere = with_root(path, old.encode(), ROOT_MARK)
    assert b"/old/place" not in anywhere
    here = with_root(path, anywhere, f"file:{tmp_path}")
    assert here.decode() == old.replace("/old/place", str(tmp_path))


def test_the_files_of_the_log_are_kept_apart_from_state(tmp_path: Path) -> None:
    taken = Stored(tmp_path / "a").take(1)
    assert set(taken.files) == {LOG, "0-stateStoreSave"}
    assert taken.versions == [2, 2]


def test_a_restore_that_a_prune_overtakes_says_so_and_calls_nothing_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = Stored(tmp_path / "a", inline=False)
    stored.take(0)

    def overtaken(*args: Any) -> Any:
        stored.store.save(CheckpointManifest.new(2, epoch=2))
        assert stored.store.prune(1).objects
        return restore_index(*args)

    monkeypatch.setattr(native_restore, "restore_index", overtaken)
    with pytest.raises(CheckpointNotFoundError, match="pruned"):
        native_restore.restore_directory(stored.store, 1, LocalDirectory(tmp_path / "b"))
