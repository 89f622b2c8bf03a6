"""Whatever reads a pipeline's store while the pipeline goes on sees it as it is at one moment.

Before each single I/O of a reader the pipeline saves, prunes or is rolled back. An answer about the
whole store is the one of some moment; one about a checkpoint may also say that it was pruned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from seamark._common.progress_bars import no_bar
from seamark.audit.expectations import histories_of
from seamark.blobs.memory import MemoryBlobs
from seamark.capture.checkpoint_contents import Chain
from seamark.capture.file_index import FileIndex
from seamark.capture.observed_cost import observed_cost
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.cli.compare import _compared
from seamark.cli.copy import _copied
from seamark.cli.list import _listed
from seamark.errors import (
    CheckpointNotFoundError,
    RefusedError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.manifest import SinkCommitStatus
from seamark.native.bisection import span_of
from seamark.pipeline.recovery.fork import choose, choose_again, fork_store
from seamark.pipeline.recovery.rollback import plan_rollback, roll_back
from seamark.pipeline.replay.recorded_epochs import epoch_to_replay, epochs_of
from seamark.pipeline.replay.scratch import recorded_file, recorded_plan
from seamark.reports.checkpoint_document import describe
from seamark.reports.checkpoint_summary import summarize_checkpoints
from seamark.reports.named_checkpoints import use_named
from seamark.reports.recovery_walk import explain_walk
from seamark.reports.state_rows import named_for_reading
from seamark.reports.store_health import check_store
from seamark.reports.verification import check_named
from seamark.sinks.consistent_cut import read_epoch
from seamark.spark.row_digests import FORMULA
from seamark.store import CheckpointStore
from seamark.store.consistent_read import until_settled
from seamark.store.inspection import scan
from seamark.store.layout import ObjectLayout
from seamark.ui.history import history_document, window_of
from seamark.ui.overview import store_health
from seamark.ui.store_watch import StoreWatch
from tests.pipeline.support.forks import Origin, contents
from tests.store.support.interleaving import Kind, Place, Seat

KINDS = ["object", pytest.param("locked", marks=pytest.mark.slow)]
Read = Callable[[CheckpointStore], Any]
Visit = Callable[[Origin], Iterator[object]]
WANTED = 5


# what a pipeline does meanwhile, step by step


def go_on(origin: Origin) -> Iterator[object]:
    for _ in range(3):
        yield origin.add(full=True)


def go_on_step_by_step(origin: Origin) -> Iterator[object]:
    for _ in range(2):
        yield origin.add()


def go_on_and_prune(origin: Origin) -> Iterator[object]:
    yield from go_on(origin)
    yield origin.store.prune(1)


def prune_around_a_pin(origin: Origin) -> Iterator[object]:
    yield origin.store.pin("old", 2)
    yield from go_on_and_prune(origin)


def only_prune(origin: Origin) -> Iterator[object]:
    yield origin.store.prune(1)


def go_back(origin: Origin) -> Iterator[object]:
    yield origin.store.claim(pipeline="trades")
    yield origin.store.supersede(4, WANTED)
    newest = roll_back(origin.store, 3, "trades")
    yield newest
    origin.newest, index = newest, Chain.load(origin.store, newest).index
    assert index is not None
    origin.index = index
    yield origin.add(full=True)
    yield origin.add()


def purge_and_prune(origin: Origin) -> Iterator[object]:
    """Spark has removed all old files, so nothing that is pruned is needed any more."""
    origin.index = FileIndex()
    yield origin.add(full=True)
    yield origin.store.prune(1)


VISITS = [
    pytest.param(go_on, marks=pytest.mark.slow),
    pytest.param(go_on_step_by_step, marks=pytest.mark.slow),
    go_on_and_prune,
    pytest.param(prune_around_a_pin, marks=pytest.mark.slow),
    pytest.param(only_prune, marks=pytest.mark.slow),
    pytest.param(go_back, marks=pytest.mark.slow),
]


# who reads


def latest_cut(store: CheckpointStore) -> object:
    cut = read_epoch(store)
    return cut.checkpoint_id, cut.epoch


def earlier_cut(store: CheckpointStore) -> object:
    return read_epoch(store, WANTED).checkpoint_id


def bisected(store: CheckpointStore) -> object:
    return [(each.epoch, each.checkpoint_id) for each in span_of(store).candidates]


def replayable(store: CheckpointStore) -> object:
    return [each for each, recorded in epochs_of(store).items() if not recorded.why_not]


def replayed(store: CheckpointStore) -> object:
    return epoch_to_replay(store, WANTED).decided.checkpoint_id


def planned_again(store: CheckpointStore) -> object:
    decided = epoch_to_replay(store, WANTED).decided
    with TemporaryDirectory() as folder:
        # the fingerprint of these checkpoints is made up
        plan = recorded_plan(store, decided.with_extra(fingerprint=None), LocalCopy(folder), [0])
    return plan.entry.lines


def state_to_compare(store: CheckpointStore) -> object:
    chain = Chain.load(store, epoch_to_replay(store, WANTED).decided)
    assert chain.index is not None
    files = [recorded_file(store, chain, path) for path in chain.index.files]
    return "gone" if None in files else files


def audited(store: CheckpointStore) -> object:
    return [each.epoch for history in histories_of(scan(store)) for each in history.epochs]


def compared(store: CheckpointStore) -> object:
    return sorted(manifest.checkpoint_id for manifest in _compared(store).manifests)


def listed(store: CheckpointStore) -> object:
    return [(i, each.status) for i, each in summarize_checkpoints(store).items()]


def listed_and_verified(store: CheckpointStore) -> object:
    _, rows, _ = until_settled(partial(_listed, store, verify=True), store.url)
    return [(i, each.status) for i, each in rows.items()]


def verified(number: str | None, store: CheckpointStore) -> object:
    checks = until_settled(partial(check_named, store, number, 1.0, 0, no_bar), store.url)
    return {each.status for each in checks} <= {"ok", "gone"}


def described(number: str, store: CheckpointStore) -> object:
    document = use_named(store, number, partial(describe, store))
    parents = document["parents"]
    # how long a manifest is depends on names that are drawn, but it has some hundred bytes
    manifests = document["restore_reads_bytes"] - document["referenced_bytes"]
    assert manifests > 500 * (1 + len(parents)), document
    sizes = [document[name] for name in ("new_bytes", "stored_bytes", "referenced_bytes")]
    return document["id"], parents, document["broken_chain"], sizes


def explained(store: CheckpointStore) -> object:
    document = explain_walk(store)
    facts = document["chosen"]
    return document["outcome"], facts["id"], facts["files"], facts["state_bytes"]


def healthy(store: CheckpointStore) -> object:
    checks = check_store(store, write=False)
    # on a store that only conditions protect nobody knows whether the writer lives
    return [(each.name, each.found) for each in checks if each.verdict != "ok"]


class About(int):
    """Bytes of manifests: names that are drawn make them a few more or less."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and abs(self - other) < 250

    __hash__ = None  # type: ignore[assignment]


def estimated(store: CheckpointStore) -> object:
    cost = observed_cost(store)
    return cost.state_bytes, cost.restore.reads, About(cost.restore.bytes)


def chosen_for_a_fork(store: CheckpointStore) -> object:
    chosen = choose(store)
    return chosen.manifest.checkpoint_id, chosen.skipped


def forked(store: CheckpointStore) -> object:
    target = CheckpointStore(MemoryBlobs(), ObjectLayout())
    chosen = choose(store)
    try:
        fork = fork_store(store, target, chosen)
    except SeamarkError as error:
        fork = fork_store(store, target, choose_again(store, chosen, error))
    assert target.validate_checkpoint(fork.manifest.checkpoint_id).valid
    return fork.chosen.manifest.checkpoint_id


def copied(number: str | None, store: CheckpointStore) -> object:
    """What a copy ends with; of a source that is rolled back meanwhile it is repeated."""
    target = CheckpointStore(MemoryBlobs(), ObjectLayout())
    for _ in range(3):
        with suppress(StoreUnavailableError):
            until_settled(partial(_copied, store, target, number, pins=False), store.url)
            break
    report = target.recover_latest_validated()
    assert report.broken == []
    return report.chosen_id


def restored(store: CheckpointStore) -> object:
    manifest = store.load_by_id(WANTED)
    if manifest is None:
        raise CheckpointNotFoundError("there is none")
    return sorted(Chain.load(store, manifest).digests)


def restored_newest(store: CheckpointStore) -> object:
    return use_named(
        store, "latest", lambda manifest: (manifest.checkpoint_id, len(contents(store, manifest)))
    )


def state_looked_into(store: CheckpointStore) -> object:
    with named_for_reading(store, "latest") as directory:
        return sorted(directory.listing())


def planned_rollback(store: CheckpointStore) -> object:
    return [*plan_rollback(store, 4).given_up]


def on_the_page(store: CheckpointStore) -> object:
    watch = StoreWatch(lambda: store, store.url)
    watch.look()
    state = watch.state
    window = window_of(state.ids, None, None)
    document = history_document(state, window, watch.read(window.drawn))
    assert [each for each in document["events"] if each["kind"] in ("damage", "unreadable")] == []
    return document["id"][-1:], store_health(state, watch.points, time.time()).word


OF_A_MOMENT: list[Read] = [
    latest_cut,
    bisected,
    replayable,
    listed,
    partial(verified, None),
    partial(verified, "latest"),
    partial(described, "latest"),
    explained,
    healthy,
    estimated,
    chosen_for_a_fork,
    forked,
    partial(copied, None),
    partial(copied, "latest"),
    restored_newest,
    state_looked_into,
    on_the_page,
]
OF_ONE: list[Read] = [
    earlier_cut,
    replayed,
    partial(described, str(WANTED)),
    partial(described, "4"),
    restored,
    planned_rollback,
    partial(verified, str(WANTED)),
]
"""Their answer may also be that the checkpoint is gone, or was given up by a rollback."""
OF_MANY: list[Read] = [audited, compared, listed_and_verified, bisected, replayable, listed]
"""Of their rows older ones may be missing, because they were pruned while the others were read."""


class Meeting:
    """A pipeline with five checkpoints, the fourth one full, and a reader at its seat."""

    def __init__(self, kind: Kind) -> None:
        place = Place(kind)
        digest = {"rows": 1, "digest": "a" * 32, "since": 1, "formula": FORMULA}
        self.origin = Origin(
            place.store(place.seat()),
            sink_commit_statuses={"bars": SinkCommitStatus.committed()},
            output_digests={"bars": {**digest, "total_rows": 9, "total_digest": "b" * 32}},
        )
        for epoch in range(1, WANTED):
            self.origin.add(full=True if epoch == 4 else None)
        read = b'v1\n{"path":"file:/a","timestamp":1,"batchId":4}'
        self.origin.add(large_logs={f"sources/0/{WANTED - 1}": read})
        self.seat: Seat = place.seat()
        self.reader = place.store(self.seat)
        self.fresh = place.store


def answer(read: Read, store: CheckpointStore) -> object:
    """What a reader says; an error about the data is none that it may say."""
    try:
        return read(store)
    except CheckpointNotFoundError:
        return "gone"
    except RefusedError as error:
        assert "given up" in error.what
        return "given up"


def exhaust(steps: Iterator[object]) -> None:
    for _ in steps:
        pass


def moments(kind: Kind, visit: Visit, read: Read) -> list[object]:
    """What a reader says before a visit and after each of its steps."""
    meeting = Meeting(kind)
    before = answer(read, meeting.fresh())
    return [before, *(answer(read, meeting.fresh()) for _ in visit(meeting.origin))]


def overtaken(kind: Kind, visit: Visit, read: Read) -> Iterator[object]:
    """What the reader says, for a visit before each of its I/Os."""
    for at in range(1, 500):
        meeting = Meeting(kind)
        meeting.seat.arm(at, partial(exhaust, visit(meeting.origin)))
        found = answer(read, meeting.reader)
        if meeting.seat.disarm():
            assert at > 1, "nothing was read"
            return
        yield found
    raise AssertionError("it never came to an end")


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize("visit", VISITS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_tells_of_the_store_as_it_is_at_one_moment(kind: Kind, visit: Visit) -> None:
    for read in [*OF_A_MOMENT, *OF_ONE]:
        if read in OF_MANY and visit not in (go_on, go_on_step_by_step):
            continue
        allowed = [*moments(kind, visit, read), *(["gone", "given up"] if read in OF_ONE else [])]
        for found in overtaken(kind, visit, read):
            assert found in allowed, read


@pytest.mark.sampled(5)
@pytest.mark.parametrize("visit", VISITS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_of_a_list_are_of_one_history_and_the_newest_is_among_them(
    kind: Kind, visit: Visit
) -> None:
    for read in OF_MANY:
        allowed: Any = moments(kind, visit, read)
        for found in overtaken(kind, visit, read):
            assert isinstance(found, list)
            assert found in allowed or any(
                {*found} <= {*rows} and found and max(found) == max(rows) for rows in allowed
            ), (read, found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read", [planned_again, state_to_compare])
def test_a_replay_of_an_epoch_that_is_pruned_meanwhile_meets_no_damage(
    kind: Kind, read: Read
) -> None:
    allowed = [*moments(kind, purge_and_prune, read), "gone"]
    for found in overtaken(kind, purge_and_prune, read):
        assert found in allowed
