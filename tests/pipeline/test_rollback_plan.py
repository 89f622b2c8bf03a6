"""What a rollback means for each sink is said before it is done, and says no more than is known."""

from __future__ import annotations

from typing import Any

import pytest

from seamark.blobs.memory import MemoryBlobs
from seamark.errors import CheckpointNotFoundError, RefusedError
from seamark.manifest import CheckpointManifest, SinkCommitStatus
from seamark.pipeline.recovery.rollback import (
    Action,
    SinkRollback,
    plan_rollback,
    roll_back,
    rolled_back,
    sink_rollbacks,
)
from seamark.store import CheckpointStore
from seamark.store.copy.plan import plan_copy
from seamark.store.copy.run import copy_checkpoints
from seamark.store.layout import ObjectLayout
from seamark.store.validation import ValidationResult
from tests.support.counted_lines import lines_run


def manifest(epoch: int, sinks: dict[str, str], **fields: Any) -> CheckpointManifest:
    structure = {"sinks": {name: {"kind": kind} for name, kind in sinks.items()}}
    fields.setdefault("sink_epochs", dict.fromkeys(sinks, epoch))
    return CheckpointManifest.new(
        epoch, epoch=epoch, sink_names=list(sinks), extra={"structure": structure}, **fields
    )


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        ("files", "unpublish"),
        ("key-value", "unpublish if undo"),
        ("function", "beside"),
        ("console", "beside"),
        ("memory", "beside"),
        ("a kind of somebody else's", "asked"),
    ],
)
def test_each_kind_of_sink_goes_back_in_its_own_way(kind: str, action: Action) -> None:
    chosen, newest = manifest(4, {"out": kind}), manifest(7, {"out": kind})
    assert [each.action for each in sink_rollbacks(chosen, newest)] == [action]
    assert [each.action for each in sink_rollbacks(chosen, manifest(4, {"out": kind}))] == [
        "nothing"
    ]
    assert sink_rollbacks(chosen, newest)[0].epoch == 7


def test_a_commit_that_was_cut_short_may_be_visible() -> None:
    newest = manifest(
        7,
        {"out": "files"},
        sink_epochs={"out": 4},
        sink_commit_statuses={"out": SinkCommitStatus.pending()},
    )
    (found,) = sink_rollbacks(manifest(4, {"out": "files"}), newest)
    assert (found.epoch, found.action) == (7, "unpublish")


def test_a_sink_that_was_added_later_is_not_forgotten() -> None:
    found = sink_rollbacks(
        manifest(4, {"a": "files"}), manifest(7, {"a": "files", "b": "function"})
    )
    assert [(each.name, each.action) for each in found] == [("a", "unpublish"), ("b", "beside")]


def test_a_manifest_that_says_nothing_of_its_sinks_promises_nothing() -> None:
    bare = CheckpointManifest.new(7, epoch=7, sink_names=["out"], sink_epochs={"out": 7})
    (found,) = sink_rollbacks(CheckpointManifest.new(4, epoch=4), bare)
    assert (found.kind, found.action) == ("unknown", "asked")


def test_checkpoints_are_not_gone_through_for_each_sink_that_they_name() -> None:
    def work(many: int) -> int:
        given_up = [manifest(n, {f"{n}-{k}": "files" for k in range(3)}) for n in range(2, many)]
        found: list[SinkRollback] = []
        lines = lines_run(
            lambda: found.extend(sink_rollbacks(manifest(1, {}), manifest(1, {}), given_up))
        )
        assert [each.epoch for each in found] == [n for n in range(2, many) for _ in range(3)]
        return lines

    assert work(80) < 3 * work(40)


def test_what_cannot_be_rolled_back_to_fences_nobody() -> None:
    store = CheckpointStore(MemoryBlobs(), ObjectLayout())
    store.claim()
    for number in (1, 2, 3):
        store.save(CheckpointManifest.new(number, epoch=number))
    assert plan_rollback(store, 1).given_up == [2, 3]
    again = roll_back(store, 1, None)
    assert (again.checkpoint_id, again.epoch) == (4, 1)
    assert plan_rollback(store, 4).is_newest
    other = CheckpointStore(store.backend, ObjectLayout())
    with pytest.raises(RefusedError, match="given up"):
        roll_back(other, 3, None)
    with pytest.raises(CheckpointNotFoundError):
        roll_back(other, 17, None)
    store.check_claim()


def test_a_target_that_is_pruned_meanwhile_is_gone_and_not_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = CheckpointStore(MemoryBlobs(), ObjectLayout())
    for number in (1, 2, 3):
        store.save(CheckpointManifest.new(number, epoch=number))
    validate = store.validate_checkpoint

    def overtaken(checkpoint_id: int) -> ValidationResult:
        CheckpointStore(store.backend, ObjectLayout()).prune(1)
        return validate(checkpoint_id)

    monkeypatch.setattr(store, "validate_checkpoint", overtaken)
    with pytest.raises(CheckpointNotFoundError, match="pruned"):
        plan_rollback(store, 1)


@pytest.mark.parametrize("at", ["pin", "claim"])
def test_a_prune_beside_a_rollback_has_no_writer_fenced_for_nothing(
    monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    writer = CheckpointStore(MemoryBlobs(), ObjectLayout())
    writer.claim()
    for number in (1, 2, 3):
        writer.save(CheckpointManifest.new(number, epoch=number))
    other = CheckpointStore(writer.backend, ObjectLayout())
    begin = getattr(other, at)

    def overtaken(*args: Any, **options: Any) -> object:
        writer.prune(1)
        return begin(*args, **options)

    monkeypatch.setattr(other, at, overtaken)
    if at == "pin":  # the first step: it is pruned before, or not at all
        with pytest.raises(CheckpointNotFoundError):
            roll_back(other, 1, None)
        writer.save(CheckpointManifest.new(4, epoch=4))
    else:
        assert roll_back(other, 1, None).epoch == 1
    assert other.pins() == {}


def test_a_second_rollback_before_any_start_knows_what_sinks_still_show() -> None:
    store = CheckpointStore(MemoryBlobs(), ObjectLayout())
    store.claim()
    for number in range(1, 7):
        store.save(manifest(number, {"out": "files"}))
    again = roll_back(store, 3, None)
    (found,) = plan_rollback(store, 2).sinks
    assert (found.epoch, found.action) == (6, "unpublish")
    # once a pipeline has gone on, its start has brought the sinks back
    sinks = {"structure": {"sinks": {"out": {"kind": "files"}}}}
    store.save(
        CheckpointManifest.new(
            again.checkpoint_id + 1,
            epoch=4,
            sink_names=["out"],
            sink_epochs={"out": 4},
            extra=sinks,
        )
    )
    (found,) = plan_rollback(store, 2).sinks
    assert found.epoch == 4


class Killed(BaseException):
    pass


def killed_before_its_checkpoint(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second rollback, behind the history of a first one."""

    def die(*_: object) -> None:
        raise Killed

    for number in range(1, 6):
        store.save(manifest(number, {"out": "files"}))
    store.save(manifest(roll_back(store, 3, None).checkpoint_id + 1, {"out": "files"}))
    with monkeypatch.context() as patched:
        patched.setattr(store, "save", die)
        with pytest.raises(Killed):
            roll_back(store, 2, None)


@pytest.mark.parametrize("repeated", [False, True])
def test_a_rollback_that_was_killed_knows_all_histories_that_it_has_given_up(
    monkeypatch: pytest.MonkeyPatch, repeated: bool
) -> None:
    store = CheckpointStore(MemoryBlobs(), ObjectLayout())
    first = store.claim().timeline
    killed_before_its_checkpoint(store, monkeypatch)
    store.claim()
    if repeated:
        again: CheckpointManifest | None = roll_back(store, 2, None)
    else:
        walk = store.recover_latest_validated()
        chosen = store.load_by_id(walk.chosen_id or 0)
        again = rolled_back(store, chosen, walk, store.owner().timeline)
    second = store.load_by_id(7)
    assert again is not None
    assert second is not None
    assert (again.epoch, again.parent_id, again.shown_as) == (2, 2, first)
    assert again.timeline == store.owner().timeline
    assert {first, second.timeline} <= {*(again.abandoned or ())}
    assert again.timeline not in (again.abandoned or ())
    found = store.recover_latest_validated()
    assert found.chosen_id == again.checkpoint_id
    assert rolled_back(store, again, found, again.timeline) is again, "once is enough"


def test_damage_behind_a_rollback_is_not_taken_for_one_that_was_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = CheckpointStore(MemoryBlobs(), ObjectLayout())
    store.claim()
    killed_before_its_checkpoint(store, monkeypatch)
    store.claim()
    newest = store.save(manifest(9, {"out": "files"}))
    key = ObjectLayout().manifest(newest.checkpoint_id)
    stored = store.backend.read(key, 1 << 20)
    assert stored is not None
    store.backend.replace(key, b"{", stored.tag)
    walk = store.recover_latest_validated()
    assert walk.chosen_id == 2
    chosen = store.load_by_id(2)
    assert rolled_back(store, chosen, walk, store.owner().timeline) is chosen


def test_a_copy_of_one_checkpoint_gets_a_timeline_of_its_own_by_a_rollback_to_it() -> None:
    source, target = (CheckpointStore(MemoryBlobs(), ObjectLayout()) for _ in range(2))
    timeline = source.claim().timeline
    for number in (1, 2, 3):
        source.save(manifest(number, {"out": "function"}))
    copy_checkpoints(source, target, plan_copy(source, target, 2))
    assert target.owner().timeline == timeline
    again = roll_back(target, 2, None)
    assert again.timeline == target.owner().timeline != timeline
    assert again.abandoned == [timeline]
    assert target.recover_latest_validated().chosen_id == again.checkpoint_id
    assert [number for number, _ in target.list()] == [2, again.checkpoint_id]
