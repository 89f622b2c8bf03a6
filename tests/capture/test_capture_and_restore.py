"""What is captured is enough to make the directory again, and nothing else is believed."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from seamark.capture.capture import LOG, Capture
from seamark.capture.plans import check_path, install_plan, own_lines, read_plan
from seamark.capture.readers import Contents
from seamark.capture.restore import difference, keep, restore
from seamark.checkpoint_dir.files import ROOT_MARK, rooted_at
from seamark.checkpoint_dir.places.local import WorkingCopy
from seamark.checkpoint_dir.state_files import MissingVersion
from seamark.errors import DamageError
from tests.checkpoint_dir.support.directories import make_copy, offsets_text, source_entry, state_of

COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def capture_all(root: Path, batches: int, full_at: int = 0) -> list[Contents]:
    """Checkpoints of some batches: a full one, then what each later batch adds."""
    capture, chain = Capture(WorkingCopy(root)), []
    for batch in range(full_at, batches):
        make_copy(root, batch + 1)
        taken = capture.take(batch, COMMIT, full=batch == full_at)
        merged = {
            path: data for contents in taken.files.values() for path, data in contents.items()
        }
        capture.packed({path: sha256(data).digest() for path, data in merged.items()})
        capture.saved(taken)
        chain.append(merged)
    return chain


def everything(copy: WorkingCopy) -> dict[str, bytes]:
    return {path: copy.read(path) for path in copy.files_below(".")}


def test_a_chain_of_captures_makes_the_directory_again(tmp_path: Path) -> None:
    chain = capture_all(tmp_path / "a", 5, full_at=2)
    copy = WorkingCopy(tmp_path / "b")
    restore(copy, chain, 4)
    made = everything(copy)
    for partition in (0, 1):
        for version in range(1, 6):
            path = f"state/0/{partition}/{version}.delta"
            assert made[path] == state_of(partition, version)
    assert copy.batches("offsets") == [3, 4]
    assert copy.batches("commits") == [3, 4]
    assert sorted(copy.source_entries()) == [f"sources/0/{n}" for n in range(5)]


def test_an_increment_holds_only_what_its_parents_lack(tmp_path: Path) -> None:
    _, _, third = capture_all(tmp_path / "a", 3)
    state = sorted(path for path in third if path.startswith("state/"))
    assert state == ["state/0/0/3.delta", "state/0/1/3.delta"]
    assert [path for path in third if path.startswith("sources/")] == ["sources/0/2"]


def test_a_batch_that_was_not_read_in_full_is_no_epoch(tmp_path: Path) -> None:
    source = make_copy(tmp_path / "a", 3)
    source.remove("state/0/1/3.delta")
    with pytest.raises(MissingVersion, match="partition 1"):
        Capture(source).take(2, COMMIT, full=True)
    with pytest.raises(MissingVersion, match="partition 1"):
        Capture(source).take(2, COMMIT, full=False)


def test_a_state_file_that_changed_since_an_earlier_checkpoint_is_damage(tmp_path: Path) -> None:
    source = make_copy(tmp_path / "a", 2)
    capture = Capture(source)
    first = capture.take(0, COMMIT, full=True)
    capture.packed({p: sha256(d).digest() for c in first.files.values() for p, d in c.items()})
    capture.saved(first)
    source.write("state/0/0/1.delta", b"something else")
    again = capture.take(1, COMMIT, full=True)
    with pytest.raises(DamageError, match="has changed"):
        capture.packed({p: sha256(d).digest() for c in again.files.values() for p, d in c.items()})


def test_a_chain_with_a_hole_is_not_restored(tmp_path: Path) -> None:
    first, second, third = capture_all(tmp_path / "a", 3)
    assert second
    with pytest.raises(DamageError, match="lacks state"):
        restore(WorkingCopy(tmp_path / "b"), [first, third], 2)


def test_restoring_into_a_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    chain = capture_all(tmp_path / "a", 1)
    with pytest.raises(DamageError, match="empty"):
        restore(make_copy(tmp_path / "b", 1), chain, 0)


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "state/../../x", "other/x", "state//x", ""]
)
def test_a_hostile_path_never_leaves_the_directory(path: str, tmp_path: Path) -> None:
    with pytest.raises(DamageError):
        check_path(path)
    with pytest.raises(DamageError):
        restore(WorkingCopy(tmp_path / "b"), [{path: b"x"}], 0)
    assert not (tmp_path / "x").exists()


class TestKeeping:
    """A directory of the last run is kept only when every needed file is proven."""

    @pytest.fixture
    def chain(self, tmp_path: Path) -> list[Contents]:
        return capture_all(tmp_path / "a", 3)

    @pytest.fixture
    def source(self, tmp_path: Path, chain: list[Contents]) -> WorkingCopy:
        assert chain
        return make_copy(tmp_path / "a", 4)  # one batch more than the checkpoint

    @pytest.fixture
    def digests(self, chain: list[Contents]) -> dict[str, bytes]:
        return {path: sha256(data).digest() for each in chain for path, data in each.items()}

    def test_it_matches(self, source: WorkingCopy, digests: dict[str, bytes]) -> None:
        assert difference(source, digests, 2) is None

    def test_a_swapped_state_file_is_noticed(
        self, source: WorkingCopy, digests: dict[str, bytes]
    ) -> None:
        shutil.copy(source.path("state/0/0/1.delta"), source.path("state/0/0/2.delta"))
        assert difference(source, digests, 2) == "state/0/0/2.delta has other bytes"

    def test_a_flipped_bit_is_noticed(self, source: WorkingCopy, digests: dict[str, bytes]) -> None:
        data = bytearray(source.read("state/0/1/3.delta"))
        data[7] ^= 1
        source.write("state/0/1/3.delta", bytes(data))
        assert difference(source, digests, 2) == "state/0/1/3.delta has other bytes"

    def test_a_missing_needed_file_is_noticed(
        self, source: WorkingCopy, digests: dict[str, bytes]
    ) -> None:
        source.remove("state/0/1/2.delta")
        assert "version 2" in (difference(source, digests, 2) or "")

    def test_state_that_no_checkpoint_vouches_for_is_removed(
        self, source: WorkingCopy, chain: list[Contents], digests: dict[str, bytes]
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
        self, source: WorkingCopy, chain: list[Contents], digests: dict[str, bytes]
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
    old = '{"stateSchemaFilePaths":["file:/old/place/state/0/_stateSchema/default/0_ab"]}'
    anywhere = rooted_at(old, ROOT_MARK)
    assert "/old/place" not in anywhere
    assert rooted_at(anywhere, f"file:{tmp_path}") == old.replace("/old/place", str(tmp_path))


def test_the_files_of_the_log_are_kept_apart_from_state(tmp_path: Path) -> None:
    taken = Capture(make_copy(tmp_path / "a", 2)).take(1, COMMIT, full=True)
    assert set(taken.files) == {LOG, "0-stateStoreSave"}
    assert taken.versions == [2, 2]
