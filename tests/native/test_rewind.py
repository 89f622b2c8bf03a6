"""A directory is taken back to a batch as a whole, at whatever point a try was interrupted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from seamark import open_store
from seamark.capture.batches import batch_at
from seamark.capture.checkpoint_contents import Sizes, contents_of
from seamark.checkpoint_dir.places.directory import Directory, Tree
from seamark.checkpoint_dir.places.local import LocalCopy, LocalDirectory
from seamark.checkpoint_dir.state_files import MissingVersion
from seamark.errors import RefusedError
from seamark.native.rewind import targets
from seamark.native.rewind.barrier import found_barrier
from seamark.native.rewind.files import OPERATORS, SINK_LOG, STATE
from seamark.native.rewind.rewind import (
    plan_rewind,
    possible_batches,
    require_still,
    rewind,
)
from seamark.native.rewind.targets import RewindRequest, planned_rewind, shared_history
from seamark.native.snapshot import take_snapshot
from tests.checkpoint_dir.support.directories import make_copy, offsets_text, source_entry
from tests.native.support.rewinds import (
    BATCHES,
    Stopped,
    Stopping,
    contents,
    is_refused,
    make_directory,
    make_sink,
    plan_of_sink,
)
from tests.support.slow_cases import slow_except

TARGET = 3
NEW_METADATA = b'{"id":"11111111-1111-1111-1111-111111111111"}'


def moved(directory: Directory, batch: int) -> set[str]:
    plan = plan_rewind(Tree.of(directory), batch)
    return {each.path for each in (*plan.moves, *plan.spare)}


def test_nothing_of_later_batches_stays_behind_and_nothing_of_earlier_ones_goes(
    tmp_path: Path,
) -> None:
    directory = make_directory(tmp_path / "checkpoint")
    before = directory.listing()
    rewind(directory, plan_rewind(Tree.of(directory), TARGET), directory.sibling(".aside"))
    kept = {
        "metadata",
        "state/0/_metadata/metadata",
        *(f"{log}/{batch}" for log in ("offsets", "commits") for batch in range(TARGET + 1)),
        "commits/.2.crc",
        *(f"state/0/{part}/{version}.delta" for part in (0, 1) for version in range(1, TARGET + 2)),
    }
    left = directory.listing()
    assert {path for path in left if not path.startswith("sources/")} == kept
    assert all(left[path] == before[path] for path in kept), "what stays was touched"
    gone = before.keys() - left.keys()
    assert directory.sibling(".aside").listing().keys() == gone


def test_state_files_of_every_kind_go_when_they_are_newer(tmp_path: Path) -> None:
    copy = make_copy(tmp_path / "c", 6)
    later = (
        "0/7.delta", "0/7.snapshot", "0/.7.delta.crc", "1/6.zip", "1/6.changelog",
        "1/6_0d5c1f-aa.zip", "1/6_0d5c1f-aa.zip.crc", "1/.6_0d5c1f-aa.zip.crc.crc",
        "_metadata/v2/5", "_metadata/v2/.5.crc", "_stateSchema/default/5_0d5c",
    )  # fmt: skip
    stays = (
        "0/5.snapshot", "1/5_0d5c1f-aa.zip.crc", "1/SSTs/000012-0d5c.sst", "_metadata/v2/0",
        "_metadata/v2/4", "_stateSchema/default/0_0d5c", "_stateSchema/default/.0_0d5c.crc",
    )  # fmt: skip
    for name in (*later, *stays):
        (tmp_path / "c" / "state" / "0" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "c" / "state" / "0" / name).write_bytes(
            copy.read("state/0/_metadata/metadata") if "v2" in name else b"state"
        )
    plan = plan_rewind(Tree.of(LocalDirectory(tmp_path / "c")), 4)
    found = {each.path for each in plan.moves if each.kind in (STATE, OPERATORS)}
    usual = {f"state/0/{part}/6.delta" for part in (0, 1)}
    assert found == {f"state/0/{name}" for name in later} | usual


def test_a_batch_whose_operators_are_described_by_later_starts_only_is_refused(
    tmp_path: Path,
) -> None:
    copy = make_copy(tmp_path, 6)
    copy.write("state/0/_metadata/v2/5", copy.read("state/0/_metadata/metadata"))
    with pytest.raises(RefusedError, match="described from batch 5 on only"):
        plan_rewind(Tree.of(LocalDirectory(tmp_path)), 4)


@pytest.mark.parametrize("committed", [[], [4, 5]])
def test_a_batch_that_is_not_in_the_commit_log_is_refused_because_it_would_run_again(
    tmp_path: Path, committed: list[int]
) -> None:
    """As Spark 2.1 leaves a directory, and as it is after an upgrade."""
    copy = make_copy(tmp_path, 6)
    for batch in set(range(6)) - set(committed):
        copy.remove(f"commits/{batch}")
    with (
        pytest.raises(RefusedError, match="cannot be gone back to") as refused,
        planned_rewind(Tree.of(LocalDirectory(tmp_path)), RewindRequest(TARGET), None),
    ):
        pass
    assert "batch 3 is not in the commit log: a restart would run it again" in str(refused.value)
    assert possible_batches(Tree.of(LocalDirectory(tmp_path))).batches == committed


def test_what_a_compaction_has_swallowed_is_told_apart_again(tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "checkpoint")
    rewind(directory, plan_rewind(Tree.of(directory), TARGET), directory.sibling(".aside"))
    tree = Tree.of(directory)
    lines = [
        line
        for path in sorted(tree.source_entries())
        for line in (tree.read_text(path) or "").split("\n")[1:]
    ]
    assert sorted(set(lines)) == [
        source_entry(number).partition("\n")[2] for number in range(TARGET + 1)
    ]
    assert batch_at(tree, TARGET).batch == TARGET


def test_going_back_to_the_newest_batch_drops_what_was_only_planned(tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "checkpoint")
    gone = moved(directory, BATCHES - 1)
    assert gone == {"offsets/7", "state/0/1/8.delta", "sources/0/7"}


def test_the_same_again_finds_nothing_to_do(tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "checkpoint")
    rewind(directory, plan_rewind(Tree.of(directory), TARGET), directory.sibling(".aside"))
    assert not plan_rewind(Tree.of(directory), TARGET).is_needed


def test_a_batch_without_its_state_is_refused_and_the_others_are_named(tmp_path: Path) -> None:
    copy = make_copy(tmp_path / "checkpoint", 6)
    copy.remove("state/0/1/6.delta")  # the newest is not whole: batch 5 was not consumed
    copy.remove("offsets/0")
    tree = Tree.of(LocalDirectory(tmp_path / "checkpoint"))
    with pytest.raises(MissingVersion, match="partition 1"):
        plan_rewind(tree, 5)
    assert possible_batches(tree) == ([2, 3, 4], None)
    with pytest.raises(RefusedError) as told, planned_rewind(tree, RewindRequest(5), None):
        pass
    assert "batch 2 to 4 of the directory" in str(told.value)


def test_a_directory_that_changes_between_the_decision_and_the_deed_is_left_alone(
    tmp_path: Path,
) -> None:
    directory = make_directory(tmp_path / "checkpoint")
    tree = Tree.of(directory)
    plan = plan_rewind(tree, TARGET)
    directory.write("commits/7", b'v1\n{"nextBatchWatermarkMs":0}')
    before = contents(directory)
    with pytest.raises(RefusedError, match="seems to be running"):
        rewind(directory, plan, directory.sibling(".aside"))
    with pytest.raises(RefusedError, match="seems to be running"):
        require_still(tree, pause=0)
    assert contents(directory) == before
    assert not (tmp_path / "checkpoint.aside").exists()


def test_what_is_replaced_can_be_put_back_by_hand(tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "checkpoint")
    sink = make_sink(tmp_path / "out")
    before, before_sink = contents(directory), contents(sink)
    plan = plan_rewind(
        Tree.of(directory), TARGET, metadata=NEW_METADATA, sink=plan_of_sink(sink, TARGET)
    )
    aside = directory.sibling(".aside")
    rewind(directory, plan, aside)
    assert directory.read("metadata") == NEW_METADATA
    assert contents(sink).keys() == {str(number) for number in range(TARGET + 1)}
    kept = contents(aside)
    own = {path: data for path, data in kept.items() if not path.startswith(SINK_LOG)}
    rebuilt = dict.fromkeys(plan.writes, b"")
    assert contents(directory) | rebuilt | own == {**rebuilt, **before}
    assert before_sink == contents(sink) | {
        path.removeprefix(f"{SINK_LOG}/"): data
        for path, data in kept.items()
        if path.startswith(SINK_LOG)
    }


# interrupted at any operation

Rollback = Callable[[Directory, Directory], None]


def _by_itself(directory: Directory, sink: Directory) -> None:
    plan = plan_rewind(
        Tree.of(directory), TARGET, metadata=NEW_METADATA, sink=plan_of_sink(sink, TARGET)
    )
    rewind(directory, plan, directory.sibling(f".aside-{len(directory.listing())}"))


def _from_a_store(directory: Directory, sink: Directory) -> None:
    root = Path(directory.url).parent
    with ExitStack() as stack:
        store = stack.enter_context(open_store(root / "store"))
        # each try is given another id, as the command line does it
        new = f'{{"id":"0-0-0-0-{len(list(root.glob("checkpoint.aside-*")))}"}}'.encode()
        wanted = RewindRequest(TARGET, new, plan_of_sink(sink, TARGET))
        plan = stack.enter_context(planned_rewind(Tree.of(directory), wanted, store))
        assert plan.barrier.checkpoint_id == 1
        rewind(directory, plan, directory.sibling(f".aside-{len(directory.listing())}"))


def _prepared(root: Path, do: Rollback) -> None:
    directory = make_directory(root / "checkpoint")
    if do is _from_a_store:
        with open_store(root / "store") as store:
            take_snapshot(directory, store, batch=TARGET)
            take_snapshot(directory, store)
        # Spark has removed old files since
        old = [f"state/0/{part}/{version}.delta" for part in (0, 1) for version in (1, 2, 3)]
        directory.remove([*old, "offsets/0", "offsets/1", "commits/0", "commits/1"])
    make_sink(root / "out")


def _copied(above: Path, name: str) -> tuple[LocalDirectory, LocalDirectory]:
    root = shutil.copytree(above / "prepared", above / name)
    return LocalDirectory(root / "checkpoint"), LocalDirectory(root / "out" / SINK_LOG)


@pytest.mark.parametrize(
    "do", slow_except([_by_itself, _from_a_store], "_by_itself", name=lambda do: do.__name__)
)
def test_a_crash_at_any_operation_keeps_spark_out_and_a_repetition_finishes(
    tmp_path: Path, do: Rollback
) -> None:
    _prepared(tmp_path / "prepared", do)
    whole, whole_sink = _copied(tmp_path, "whole")
    left = [10_000]
    before = contents(whole)
    do(Stopping(whole, left), Stopping(whole_sink, left))
    operations = 10_000 - left[0]
    assert operations > 25
    expected, expected_sink = contents(whole), contents(whole_sink)
    assert batch_at(Tree.of(whole), TARGET).batch == TARGET
    for done in range(operations):
        root = tmp_path / str(done)
        directory, sink = _copied(tmp_path, root.name)
        left = [done]
        with pytest.raises(Stopped):
            do(Stopping(directory, left), Stopping(sink, left))
        tree = Tree.of(directory)
        untouched = contents(directory) == before
        assert untouched if done == 0 else is_refused(tree), f"after {done} operations"
        do(directory, sink)
        assert found_barrier(Tree.of(directory)) is None
        assert contents(directory) == expected, f"after {done} operations"
        assert contents(sink) == expected_sink
        saved = set(contents(directory).values())
        for aside in root.glob("checkpoint.aside-*"):
            saved |= set(contents(LocalDirectory(aside)).values())
        assert set(before.values()) <= saved, f"something is lost after {done} operations"
        shutil.rmtree(root)


def test_a_checkpoint_of_another_history_is_not_taken_for_this_one(tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "checkpoint")
    with open_store(tmp_path / "store") as store:
        take_snapshot(directory, store, batch=TARGET)
        take_snapshot(directory, store, batch=6)
        (tmp_path / "checkpoint/state/0/0/2.delta").unlink()
        with planned_rewind(Tree.of(directory), RewindRequest(TARGET), store) as plan:
            assert plan.barrier.checkpoint_id == 1
        # Spark has removed the batch's own entries; a later checkpoint still agrees
        for number in range(TARGET + 2):
            directory.remove([f"offsets/{number}", f"commits/{number}"])
        with planned_rewind(Tree.of(directory), RewindRequest(TARGET), store) as plan:
            assert plan.barrier.checkpoint_id == 1
        for number in (5, 6):  # it was rolled back and these were planned again
            text = directory.read(f"offsets/{number}").replace(b'"batchWatermarkMs": 0', b'"x": 0')
            directory.write(f"offsets/{number}", text)
        tree = Tree.of(directory)
        with pytest.raises(RefusedError), planned_rewind(tree, RewindRequest(TARGET), store):
            pass


def _run_again(copy: LocalCopy, batches: range, *, watermark: int = 777) -> None:
    """Batches of a history of their own: planned at another time, with other state."""
    for batch in batches:
        text = offsets_text(f'{{"logOffset":{batch}}}', watermark=watermark)
        copy.write(f"offsets/{batch}", text.encode())
        copy.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
        copy.write(f"sources/0/{batch}", source_entry(batch).encode())
        for part in (0, 1):
            copy.write(f"state/0/{part}/{batch + 1}.delta", b"%d: %d" % (watermark, batch + 1))


def _forget(copy: LocalCopy, batch: int) -> None:
    """What Spark removes: everything before a batch, whose state is a snapshot from then on."""
    for number in range(batch):
        for log in ("offsets", "commits"):
            copy.remove(f"{log}/{number}")
    for part in (0, 1):
        copy.write(f"state/0/{part}/{batch + 1}.snapshot", b"all of it")
        for version in range(1, batch + 2):
            copy.remove(f"state/0/{part}/{version}.delta")


def test_state_of_an_abandoned_history_is_not_installed_once_spark_has_removed_the_evidence(
    tmp_path: Path,
) -> None:
    copy = make_copy(tmp_path / "checkpoint", 4)
    directory = LocalDirectory(tmp_path / "checkpoint")
    with open_store(tmp_path / "store") as store:
        take_snapshot(directory, store)  # batch 3, then by hand back to 1 and on from there
        _run_again(copy, range(2, 13))
        _forget(copy, 8)
        assert take_snapshot(directory, store).batch == 12
        tree = Tree.of(directory)
        with pytest.raises(RefusedError) as told, planned_rewind(tree, RewindRequest(3), store):
            pass
    assert "nothing proves that it is of the history" in str(told.value)
    assert "batch 3 of" not in str(told.value.hint), "it was offered all the same"


def test_a_batch_that_was_planned_differently_since_is_told_to_be_of_another_history(
    tmp_path: Path,
) -> None:
    copy = make_copy(tmp_path / "checkpoint", 4)
    directory = LocalDirectory(tmp_path / "checkpoint")
    with open_store(tmp_path / "store") as store:
        take_snapshot(directory, store)
        _run_again(copy, range(2, 6))
        copy.remove("state/0/1/2.delta")
        tree = Tree.of(directory)
        with pytest.raises(RefusedError) as told, planned_rewind(tree, RewindRequest(3), store):
            pass
    assert "run this batch differently" in str(told.value)


def test_a_history_is_followed_from_checkpoint_to_checkpoint_as_far_as_they_touch(
    tmp_path: Path,
) -> None:
    copy = make_copy(tmp_path / "checkpoint", 0)
    directory = LocalDirectory(tmp_path / "checkpoint")
    with open_store(tmp_path / "store") as store:
        for batch in range(9):
            _run_again(copy, range(batch, batch + 1), watermark=batch)
            if batch != 2:  # here it is not known what became of batch 1
                take_snapshot(directory, store, full=True)
        _forget(copy, 7)
        shared = shared_history(Tree.of(directory), store)
    assert sorted(shared.proven) == [3, 4, 5, 6, 7, 8]
    assert sorted(shared.doubts) == [0, 1]


def test_a_full_checkpoint_that_begins_a_new_chain_remembers_what_it_follows(
    tmp_path: Path,
) -> None:
    copy = make_copy(tmp_path / "checkpoint", 0)
    directory = LocalDirectory(tmp_path / "checkpoint")
    with open_store(tmp_path / "store") as store:
        taken = []
        for batch in range(9):
            _run_again(copy, range(batch, batch + 1), watermark=batch)
            if batch % 3 == 2:  # entries of the logs never touch
                taken.append(take_snapshot(directory, store, longest_chain=1))
        assert [one.is_full for one in taken] == [True, False, True]
        _forget(copy, 7)
        assert sorted(shared_history(Tree.of(directory), store).proven) == [2, 5, 8]


def test_a_checkpoint_proves_itself_by_the_plan_that_was_carried_out_after_it(
    tmp_path: Path,
) -> None:
    copy = make_copy(tmp_path / "checkpoint", 4)
    directory = LocalDirectory(tmp_path / "checkpoint")
    with open_store(tmp_path / "store") as store:
        copy.remove("commits/3")
        assert take_snapshot(directory, store).in_flight
        copy.write("commits/3", copy.read("commits/1"))
        copy.remove("offsets/2")
        assert sorted(shared_history(Tree.of(directory), store).proven) == [2]
        copy.write("offsets/3", copy.read("offsets/3").replace(b":3}", b":4}"))
        assert sorted(shared_history(Tree.of(directory), store).doubts) == [2]


def test_a_checkpoint_that_is_pruned_while_it_is_compared_is_neither_offered_nor_doubted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = make_copy(tmp_path / "checkpoint", 3)
    directory, sizes = LocalDirectory(tmp_path / "checkpoint"), Sizes(inline_operator=0)
    look_into = contents_of
    with open_store(tmp_path / "store") as store:
        for batch in (3, 4, 5):
            take_snapshot(directory, store, full=True, sizes=sizes)
            _run_again(copy, range(batch, batch + 1))
        take_snapshot(directory, store, full=True, sizes=sizes)
        _forget(copy, 5)
        left = shared_history(Tree.of(directory), store)
        assert (sorted(left.proven), left.doubts) == ([2, 3, 4, 5], {})

        def overtaken(*args: Any, **options: Any) -> Any:
            monkeypatch.setattr(targets, "contents_of", look_into)
            store.prune(1)
            return look_into(*args, **options)

        monkeypatch.setattr(targets, "contents_of", overtaken)
        left = shared_history(Tree.of(directory), store)
    assert (sorted(left.proven), left.doubts) == ([5], {})
