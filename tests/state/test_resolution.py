"""What checkpoints consist of is worked out once for all that build on each other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark._common.json_documents import seal
from seamark.errors import DamageError
from seamark.limits import LONGEST_LIST
from seamark.state import (
    CheckpointId,
    CheckpointManifestV2,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
    ReadStates,
    StateStore,
    resolution,
)
from seamark.state.object_looks import SeenObject
from seamark.state.resolution import Numbers, Resolution, Step
from seamark.state.taken_bytes import Taken
from tests.state.support.chains import chain
from tests.support.counted_blobs import CountedBlobs

WIDE, CHILDREN = 500, 100
IDS = [CheckpointId.now() for _ in range(CHILDREN + 1)]


def wide_base(
    store: StateStore, children: int, changed: Callable[[int], int]
) -> list[CheckpointId]:
    """A checkpoint with very many partitions, and others on top that change one each."""
    ids: list[CheckpointId] = []
    for epoch in range(children + 1):
        with store.begin(epoch, parent=ids[-1] if ids else None) as writer:
            for partition in range(WIDE) if not ids else [changed(epoch)]:
                writer.put("agg", partition, b"%d of %d" % (partition, epoch))
            ids.append(writer.commit().checkpoint_id)
    return ids


@pytest.mark.parametrize("order", [1, -1])
def test_what_many_checkpoints_share_is_compared_once(
    store: StateStore, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = wide_base(store, 20, lambda epoch: epoch)[::order]
    compared = 0
    problem_of = SeenObject.problem_of

    def counted(self: SeenObject, *about: Any) -> str | None:
        nonlocal compared
        compared += 1
        return problem_of(self, *about)

    monkeypatch.setattr(SeenObject, "problem_of", counted)
    known = ReadStates()
    results = [store.verify(checkpoint_id, known=known) for checkpoint_id in ids]
    assert all(each.valid for each in results)
    assert compared == WIDE + 20
    assert [each.objects for each in results[::order]] == [*range(1, 22)]
    assert {each.size_bytes for each in results} == {
        sum(link.entry.size_bytes for chain in store.partitions(i).values() for link in chain)
        for i in ids
    }


def manifest(
    number: int, entries: list[PartitionSnapshotEntry], parent: int | None = None
) -> CheckpointManifestV2:
    return CheckpointManifestV2.new(
        IDS[number],
        number,
        operators={"a": OperatorSnapshotEntry(entries)},
        parent_id=None if parent is None else IDS[parent],
    )


def publish(blobs: CountedBlobs, made: CheckpointManifestV2) -> None:
    document = seal(made.replace(extra={"writer": "somebody"}).to_json())
    blobs.create(f"checkpoints/{made.checkpoint_id}/manifest.json", document)


def test_checkpoints_on_a_lost_or_damaged_one_read_it_and_nothing_else(
    blobs: CountedBlobs, store: StateStore
) -> None:
    ids = chain(store, 40)
    known = ReadStates()
    key = f"checkpoints/{ids[0]}/manifest.json"
    blobs.delete([key])
    blobs.forget()
    for checkpoint_id in reversed(ids[1:]):
        (issue,) = store.verify(checkpoint_id, known=known).issues
        assert issue == f"state checkpoint {ids[0]}, which {ids[1]} builds on, is missing"
    # each manifest, and whether the lost one is back; the first time a removal may just put it back
    assert blobs.reads == 39 + 39 + 1
    blobs.create(key, b"no manifest")
    for checkpoint_id in ids:
        assert "malformed" in store.verify(checkpoint_id, known=known).issues[0]
    blobs.forget()
    for checkpoint_id in ids:
        assert not store.verify(checkpoint_id, known=known).valid
    assert blobs.reads == 0


def test_a_lost_one_that_is_back_is_seen(blobs: CountedBlobs, store: StateStore) -> None:
    ids, known = chain(store, 5), ReadStates()
    key = f"checkpoints/{ids[0]}/manifest.json"
    blob = blobs.read(key, 1 << 20)
    assert blob is not None
    blobs.delete([key])
    assert not any(store.verify(checkpoint_id, known=known).valid for checkpoint_id in ids)
    blobs.create(key, blob.data)
    assert all(store.verify(checkpoint_id, known=known).valid for checkpoint_id in ids)


def test_what_is_wrong_with_very_many_partitions_is_told_in_few_words(
    blobs: CountedBlobs, store: StateStore
) -> None:
    digest = sha256(b"").hexdigest()
    path = "x" * 200 + "/"
    entries = [PartitionSnapshotEntry(n, False, f"{path * 4}{n}", 9, digest) for n in range(1_000)]
    publish(blobs, manifest(0, entries))
    for number in range(1, 100):
        publish(blobs, manifest(number, [entries[number]], number - 1))
    known, before = ReadStates(), time.process_time()
    for number in range(100):
        *told, last = store.verify(IDS[number], known=known).issues
        assert sum(map(len, told)) <= LONGEST_LIST
        assert last == f"and {1_000 - len(told)} more"
    assert time.process_time() - before < 5


SPANS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=25)


def named_twice(spans: Iterable[tuple[int, int]]) -> bool:
    taken = [at + i for at, length in spans for i in range(length)]
    return len(set(taken)) < len(taken)


def packed(numbers: list[tuple[int, int]]) -> list[PartitionSnapshotEntry]:
    return [
        PartitionSnapshotEntry(n, False, "pack.lcb", 1, pack=(10 * at, 10 * length, 0))
        for n, (at, length) in enumerate(numbers)
    ]


@given(st.lists(SPANS, min_size=1, max_size=5))
def test_bytes_that_are_named_twice_are_seen_at_every_checkpoint(
    history: list[list[tuple[int, int]]],
) -> None:
    newest, truth, is_wrong = Resolution(), dict[int, tuple[int, int]](), False
    for number, spans in enumerate(history):
        entries = [
            PartitionSnapshotEntry(n, False, "p", 1, origin=IDS[0], pack=(at, length, 0))
            for n, (at, length) in enumerate(spans)
        ]
        newest = newest.then(manifest(number, entries))
        truth |= dict(enumerate(spans))
        is_wrong |= named_twice(truth.values())  # and so is whatever builds on it
        assert (newest.problem is not None) == is_wrong
        if not is_wrong:
            assert newest.objects == bool(truth)
            assert newest.size_bytes == len(truth)


def block(partition: int, span: tuple[int, int], *, is_delta: bool) -> PartitionSnapshotEntry:
    at, length = span
    return PartitionSnapshotEntry(partition, is_delta, "p", 1, origin=IDS[0], pack=(at, length, 0))


@given(SPANS, SPANS, SPANS)
def test_a_snapshot_in_place_of_a_chain_leaves_what_others_name_of_the_same_bytes(
    long: list[tuple[int, int]], other: list[tuple[int, int]], later: list[tuple[int, int]]
) -> None:
    chains = [
        block(partition, span, is_delta=place > 0)
        for partition, spans in enumerate((long, other))
        for place, span in enumerate(spans)
    ]
    more = [block(0, span, is_delta=bool(long) or place > 0) for place, span in enumerate(later)]
    base = Resolution().then(manifest(0, chains)).then(manifest(1, more))
    for number, (at, length) in enumerate([(0, 2), (5, 9), (40, 1)], 2):
        anew = base.then(manifest(number, [block(0, (at, length), is_delta=False)]))
        is_wrong = named_twice([*long, *other, *later]) or named_twice([*other, (at, length)])
        assert (anew.problem is not None) == is_wrong
        if not is_wrong:
            assert anew.size_bytes == len(other) + 1
            assert anew.objects == 1


@pytest.mark.parametrize("kind", ["one block each", "one object each", "one manifest each"])
def test_whoever_replaces_a_long_chain_does_not_follow_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0

    def counted(of: Any) -> Any:
        def once(*about: Any) -> Any:
            nonlocal looked
            looked += 1
            return of(*about)

        return once

    monkeypatch.setattr(Numbers, "object", counted(Numbers.object))
    monkeypatch.setattr(resolution, "Taken", counted(Taken))
    monkeypatch.setattr(Step, "newest_first", counted(Step.newest_first))
    links = [
        block(0, (place, 1), is_delta=place > 0)
        if kind == "one block each"
        else PartitionSnapshotEntry(0, place > 0, f"{place}", 1)
        for place in range(CHILDREN)
    ]
    other = PartitionSnapshotEntry(1, False, "other", 1)
    bases = [Resolution().then(manifest(0, [other]))]
    for named in [[link] for link in links] if kind == "one manifest each" else [links]:
        bases.append(bases[-1].then(manifest(1, named)))
    anew = PartitionSnapshotEntry(0, False, "anew", 1)
    siblings = [
        bases[number % len(bases)].then(manifest(number, [anew])) for number in range(CHILDREN)
    ]
    assert {(each.size_bytes, each.problem) for each in siblings} == {(2, None)}
    assert looked == 2 * (1 + 2 * CHILDREN)  # the number of an object, and what is taken of it
    assert {each.objects for each in siblings} == {2}


def test_bytes_that_were_replaced_can_be_taken_again_by_anybody() -> None:
    first = Resolution().then(manifest(0, packed([(0, 1), (1, 1)])))
    left = first.then(manifest(1, [PartitionSnapshotEntry(0, False, "else", 1)]))
    again = PartitionSnapshotEntry(2, False, "pack.lcb", 1, origin=IDS[0], pack=(0, 10, 0))
    assert left.then(manifest(2, [again])).problem is None
    twice = first.then(manifest(2, [again]))
    assert twice.problem == f"bytes of pack.lcb of {IDS[0]} are named twice"
    assert twice.then(manifest(3, packed([(5, 1)]))).problem == twice.problem


def test_an_object_counts_though_nothing_of_it_is_taken() -> None:
    (entry,) = packed([(1, 0)])
    first = Resolution().then(manifest(0, [entry]))
    assert first.objects == 1
    assert first.taken[0] is None


def test_a_delta_without_a_snapshot_is_told_until_a_snapshot_is_there() -> None:
    delta = PartitionSnapshotEntry(0, True, "d", 1)
    lost = Resolution().then(manifest(0, [delta]))
    later = lost.then(manifest(1, [PartitionSnapshotEntry(1, False, "s", 1)]))
    with pytest.raises(DamageError, match="no snapshot below"):
        later.chains()
    assert len(later.then(manifest(2, [PartitionSnapshotEntry(0, False, "t", 1)])).chains()) == 2


def test_a_pack_that_many_checkpoints_name_is_copied_and_read_once(
    blobs: CountedBlobs, store: StateStore
) -> None:
    with store.begin(0) as writer:
        for partition in range(50):
            writer.put("agg", partition, b"state %d" % partition)
        first = writer.commit()
    ids = [first.checkpoint_id]
    for epoch in range(1, 21):
        with store.begin(epoch, parent=ids[-1], rebase=True) as writer:
            writer.put("agg", epoch, b"new %d" % epoch)
            ids.append(writer.commit().checkpoint_id)
    there, known = CountedBlobs(), ReadStates()
    target = StateStore(there)
    blobs.forget()
    assert sum(store.copy(checkpoint_id, target, known) for checkpoint_id in ids) == 21
    assert blobs.reads + blobs.streams == 3 * 21  # manifests twice, packs once
    there.forget()
    again = ReadStates()
    assert sum(store.copy(checkpoint_id, target, again) for checkpoint_id in ids) == 0
    read = Counter(key for key in there.read_keys if key.endswith(".lcb"))
    assert len(read) == 21
    assert {*read.values()} == {1}
    assert target.verify(ids[-1]).valid


def test_a_copy_is_refused_when_a_pack_lacks_the_block_that_is_named(
    blobs: CountedBlobs, store: StateStore
) -> None:
    with store.begin(0) as writer:
        writer.put("agg", 0, b"state")
        first = writer.commit()
    (entry,) = first.operators["agg"].partitions
    digest = sha256(b"tat").hexdigest()
    offset = entry.pack[0]  # type: ignore[index]
    inside = PartitionSnapshotEntry(
        1, False, entry.path, 3, digest, origin=first.checkpoint_id, pack=(offset + 1, 3, 0)
    )
    later = CheckpointManifestV2.new(
        CheckpointId.now(), 1, operators={"agg": OperatorSnapshotEntry([inside])}
    )
    publish(blobs, later)
    assert "does not have the block" in store.verify(later.checkpoint_id).issues[0]
    with pytest.raises(DamageError, match="does not have the block"):
        store.copy(later.checkpoint_id, StateStore("memory://"))
