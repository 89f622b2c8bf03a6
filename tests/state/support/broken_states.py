"""Ways to break a state store, and the promise that each one breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from seamark.state import catalog, removals, store, task, writer
from seamark.state import cleanup as upkeep
from seamark.state import reader as reading
from seamark.state.catalog import Catalog
from seamark.state.chains import Chain
from seamark.state.layout import CheckpointId, CheckpointManifestV2, state_path
from seamark.state.reader import PartitionState
from seamark.state.removals import StatePlace, objects_of
from seamark.state.store import StateStore
from seamark.state.task import StateTask
from seamark.state.writer import StateWriter

Break = Callable[[pytest.MonkeyPatch], None]
BREAKS: dict[str, list[Break]] = {}


def breaks(*promises: str) -> Callable[[Break], Break]:
    """Note that the decorated change breaks the promises of these names."""

    def note(change: Break) -> Break:
        for promise in promises:
            BREAKS.setdefault(f"test_{promise}", []).append(change)
        return change

    return note


# writing


@breaks("the_manifest_is_written_after_all_states_and_before_the_pointer")
def the_manifest_comes_first(patch: pytest.MonkeyPatch) -> None:
    late: list[Callable[[], None]] = []
    publish = Catalog.publish

    def publish_then_upload(self: Catalog, *args: Any) -> None:
        publish(self, *args)
        for upload in late:
            upload()

    patch.setattr(StateTask, "_submit", lambda self, upload: late.append(upload))
    patch.setattr(Catalog, "publish", publish_then_upload)


@breaks("nothing_is_visible_before_the_commit", "nothing_is_visible_of_what_was_abandoned")
def a_folder_is_a_checkpoint(patch: pytest.MonkeyPatch) -> None:
    def ids(self: Catalog) -> list[CheckpointId]:
        entries = self._blobs.entries(self._paths.prefix)
        names = {entry.key.removeprefix(self._paths.prefix).split("/")[0] for entry in entries}
        return sorted(i for name in names if (i := catalog.parsed_id(name)))

    patch.setattr(Catalog, "ids", ids)


@breaks("nothing_is_visible_before_the_commit")
def the_pointer_moves_at_the_beginning(patch: pytest.MonkeyPatch) -> None:
    begin = StateStore.begin

    def begin_and_point(self: StateStore, *args: Any, **kwargs: Any) -> StateWriter:
        begun = begin(self, *args, **kwargs)
        self._place.catalog._advance_latest(begun.checkpoint_id)
        return begun

    patch.setattr(StateStore, "begin", begin_and_point)


@breaks("small_states_share_packs")
def nothing_is_packed(patch: pytest.MonkeyPatch) -> None:
    _with_options(patch, pack_below=0)


@breaks("large_states_are_objects_under_their_documented_names")
def everything_is_packed(patch: pytest.MonkeyPatch) -> None:
    _with_options(patch, pack_below=1 << 40)


@breaks("a_pack_that_is_full_is_followed_by_another")
def packs_grow_for_ever(patch: pytest.MonkeyPatch) -> None:
    _with_options(patch, pack_bytes=1 << 40)


def _with_options(patch: pytest.MonkeyPatch, **forced: int) -> None:
    create = StateTask.__init__

    def created(self: StateTask, *args: Any, **options: Any) -> None:
        create(self, *args, **options | forced)

    patch.setattr(StateTask, "__init__", created)


@breaks("one_partition_with_two_contents_is_refused")
def the_last_task_wins(patch: pytest.MonkeyPatch) -> None:
    def written(self: StateWriter) -> Any:
        receipts = self._receipts.values()
        return {(o, e.partition_id): [e] for r in receipts for o, e in r.entries}

    patch.setattr(StateWriter, "_written", written)


@breaks("a_task_that_is_tried_again_does_no_harm")
def a_second_try_overwrites(patch: pytest.MonkeyPatch) -> None:
    path = state_path

    def plain(*args: Any, token: str = "", **kwargs: Any) -> str:
        return path(*args, **kwargs)

    def write(self: StateTask, operator: str, partition: int, *args: Any) -> None:
        key = self._folder + path(operator, partition, is_delta=False)
        self._blobs.delete([key])
        write_alone(self, operator, partition, *args)

    write_alone = StateTask._write_alone
    patch.setattr(task, "state_path", plain)
    patch.setattr(StateTask, "_write_alone", write)


@breaks("the_receipts_of_several_tasks_meet_in_one_manifest")
def only_the_writers_own_states_count(patch: pytest.MonkeyPatch) -> None:
    add = StateWriter.add

    def added(self: StateWriter, receipt: task.TaskReceipt) -> None:
        if receipt.task == "main":
            add(self, receipt)

    patch.setattr(StateWriter, "add", added)


# chains


@breaks(
    "partitions_that_were_not_put_are_inherited",
    "deltas_come_in_the_order_in_which_they_were_made",
    "a_missing_parent_is_named",
)
def parents_are_not_followed(patch: pytest.MonkeyPatch) -> None:
    def lineage(self: Catalog, checkpoint_id: CheckpointId, *_: Any) -> list[CheckpointManifestV2]:
        manifest = self.load(checkpoint_id)
        return [manifest] if manifest else []

    patch.setattr(Catalog, "lineage", lineage)


@breaks("deltas_come_in_the_order_in_which_they_were_made", "a_chain_survives_a_rebase")
def deltas_come_newest_first(patch: pytest.MonkeyPatch) -> None:
    read_chain = reading.read_chain

    def read(*args: Any) -> PartitionState:
        state = read_chain(*args)
        return PartitionState(state.snapshot, state.deltas[::-1])

    patch.setattr(store, "read_chain", read)


@breaks(
    "a_delta_without_a_snapshot_is_refused",
    "a_chain_of_ten_deltas_needs_a_snapshot",
    "deltas_that_outweigh_their_snapshot_need_a_new_one",
    "a_delta_of_a_task_needs_a_snapshot_too",
)
def no_snapshot_is_ever_needed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "needs_snapshot", lambda *_: False)


@breaks("after_ten_parents_a_checkpoint_stands_alone_and_writes_nothing_again")
def chains_are_never_rebased(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "is_due_for_rebase", lambda *_: False)


@breaks("a_chain_survives_a_rebase", "rebases_of_rebases_name_where_an_object_really_is")
def a_rebase_forgets_where_objects_are(patch: pytest.MonkeyPatch) -> None:
    def entries(checkpoint_id: CheckpointId, chain: Chain) -> list[Any]:
        return [link.entry for link in chain]

    patch.setattr(writer, "as_seen_from", entries)


@breaks("what_is_forgotten_is_gone_and_the_rest_stays")
def forgetting_does_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StateWriter, "forget", lambda *_: None)


@breaks("a_cyclic_chain_is_refused")
def cycles_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    def lineage(find: Any, newest: CheckpointId, known: Any = ()) -> list[Any]:
        line = [find(newest)]
        while (parent := line[-1].parent_id) is not None and parent not in known:
            if any(parent == each.checkpoint_id for each in line):
                break
            line.append(find(parent))
        return line

    patch.setattr(catalog, "lineage", lineage)


# damage


@breaks(
    "a_flipped_bit_is_found", "a_damaged_checkpoint_is_not_copied", "a_stream_is_the_same_state"
)
def hashes_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reading, "compare", lambda *_: None)


@breaks("an_object_that_is_missing_is_found", "a_flipped_bit_is_found")
def verify_looks_at_manifests_only(patch: pytest.MonkeyPatch) -> None:
    def verify(place: Any, checkpoint_id: CheckpointId, **_: Any) -> upkeep.StateVerification:
        return upkeep.StateVerification(checkpoint_id)

    patch.setattr(upkeep, "verify", verify)


@breaks("a_damaged_manifest_is_found")
def seals_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(catalog, "unseal", lambda data: data)


@breaks("a_manifest_leads_nowhere_else")
def any_path_is_followed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reading, "unsafe_path", lambda path: None)


# upkeep


def _take(
    place: StatePlace, doomed: Sequence[CheckpointId], is_needed: Callable[[str], bool]
) -> None:
    removals.remove(place, doomed[::-1], place.catalog.load_listed(), is_needed)


@breaks("prune_keeps_what_rebases_refer_to", "delete_leaves_what_a_rebase_refers_to")
def removal_ignores_references(patch: pytest.MonkeyPatch) -> None:
    remove = removals.remove

    def without(place: Any, doomed: Any, loaded: Any, is_needed: Any) -> Any:
        return remove(place, doomed, loaded, lambda _: False)

    patch.setattr(upkeep, "remove", without)


@breaks(
    "prune_keeps_the_parents_of_what_it_keeps", "prune_across_a_rebase_loses_nothing_of_a_chain"
)
def prune_ignores_parents(patch: pytest.MonkeyPatch) -> None:
    def prune(place: StatePlace, keep: int) -> int:
        ids = place.catalog.ids()
        doomed, kept = ids[:-keep], ids[-keep:]
        manifests = [m for i in kept if (m := place.catalog.load(i))]
        needed = {key for m in manifests for key in objects_of(m, place.paths)}
        _take(place, doomed, needed.__contains__)
        return len(doomed)

    patch.setattr(upkeep, "prune", prune)


@breaks("prune_counts_only_whole_checkpoints", "prune_with_nothing_whole_removes_nothing")
def prune_counts_everything(patch: pytest.MonkeyPatch) -> None:
    def prune(place: StatePlace, keep: int) -> int:
        doomed = place.catalog.ids()[:-keep]
        _take(place, doomed, lambda _: False)
        return len(doomed)

    patch.setattr(upkeep, "prune", prune)


@breaks("delete_refuses_a_parent")
def delete_takes_parents(patch: pytest.MonkeyPatch) -> None:
    def delete(place: StatePlace, doomed: Iterable[CheckpointId]) -> Iterator[upkeep.Removal]:
        for checkpoint_id in doomed:
            _take(place, [checkpoint_id], lambda _: False)
            yield checkpoint_id, None

    patch.setattr(upkeep, "delete_each", delete)


@breaks("clean_up_leaves_what_is_young")
def clean_up_ignores_age(patch: pytest.MonkeyPatch) -> None:
    clean = upkeep.cleanup_orphans
    patch.setattr(upkeep, "cleanup_orphans", lambda place, age: clean(place, -60))


@breaks("clean_up_removes_what_nobody_names")
def clean_up_takes_everything_that_is_old(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(upkeep, "objects_of", lambda *_: set())


@breaks("clean_up_leaves_other_things_below_the_same_prefix")
def clean_up_takes_what_is_not_ours(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(upkeep, "parsed_id", lambda text: text)


@breaks("clean_up_beside_a_damaged_manifest_is_refused")
def clean_up_passes_over_damage(patch: pytest.MonkeyPatch) -> None:
    load_all = Catalog.load_all

    def readable(self: Catalog, ids: Iterable[CheckpointId]) -> Any:
        found = load_all(self, ids)
        return {i: m for i, m in found.items() if isinstance(m, CheckpointManifestV2)}

    patch.setattr(Catalog, "load_all", readable)


# copies and the pointer


@breaks("a_damaged_checkpoint_is_not_copied", "damage_at_the_target_is_told")
def copies_are_not_verified(patch: pytest.MonkeyPatch) -> None:
    def copied(source: StatePlace, target: StatePlace, key: str, *_: Any) -> int:
        blob = source.blobs.read(key, 1 << 30)
        if blob and target.blobs.stat(key) is None:
            target.blobs.create(key, blob.data)
        return 1

    patch.setattr(upkeep, "_copy_object", copied)


@breaks("a_copy_that_was_interrupted_is_taken_up_again")
def a_copy_begins_with_manifests(patch: pytest.MonkeyPatch) -> None:
    copy = upkeep.copy

    def copied(source: StatePlace, target: StatePlace, new: Any, done: Any, **kw: Any) -> int:
        for manifest in source.catalog.lineage(new):
            data = source.catalog.raw(manifest.checkpoint_id)
            target.catalog.publish_bytes(manifest.checkpoint_id, data or b"")
        return copy(source, target, new, done, **kw)

    patch.setattr(upkeep, "copy", copied)


@breaks("a_copy_restores_to_the_same")
def a_copy_leaves_parents_behind(patch: pytest.MonkeyPatch) -> None:
    publish = Catalog.publish_bytes
    copy = upkeep.copy

    def copied(source: Any, target: Any, new: CheckpointId, done: Any, **kw: Any) -> int:
        def only(self: Catalog, checkpoint_id: CheckpointId, data: bytes) -> None:
            if checkpoint_id == new:
                publish(self, checkpoint_id, data)

        patch.setattr(Catalog, "publish_bytes", only)
        return copy(source, target, new, done, **kw)

    patch.setattr(upkeep, "copy", copied)


@breaks("the_pointer_never_moves_back", "a_copy_of_an_older_one_leaves_the_pointer")
def the_pointer_follows_the_last_commit(patch: pytest.MonkeyPatch) -> None:
    def advance(self: Catalog, checkpoint_id: CheckpointId) -> None:
        key = self._paths.latest_pointer()
        self._blobs.delete([key])
        self._blobs.create(key, str(checkpoint_id).encode())

    patch.setattr(Catalog, "_advance_latest", advance)


@breaks("the_pointer_names_the_newest")
def the_pointer_stays_where_it_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Catalog, "_advance_latest", lambda *_: None)


@breaks("a_lost_pointer_loses_nothing", "a_pointer_that_lags_or_names_what_is_gone_is_only_a_hint")
def the_pointer_is_believed(patch: pytest.MonkeyPatch) -> None:
    def latest(self: StateStore) -> CheckpointManifestV2 | None:
        named = self._place.catalog.pointed_at()
        return self._place.catalog.load(named) if named else None

    patch.setattr(StateStore, "latest", latest)


@breaks("an_id_is_committed_once")
def a_commit_overwrites(patch: pytest.MonkeyPatch) -> None:
    publish = Catalog.publish_bytes

    def overwriting(self: Catalog, checkpoint_id: CheckpointId, data: bytes) -> None:
        self._blobs.delete([self._paths.manifest(checkpoint_id)])
        publish(self, checkpoint_id, data)

    patch.setattr(Catalog, "publish_bytes", overwriting)
