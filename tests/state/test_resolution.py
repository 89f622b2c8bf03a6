"""What checkpoints consist of is worked out once for all that build on each other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
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
)
from seamark.state.chains import Link
from seamark.state.object_looks import SeenObject
from seamark.state.resolution import Blocks, Numbers, Resolution
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
    assert blobs.reads == 39 + 39  # each manifest, and whether the lost one is back
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


def packed(numbers: list[tuple[int, int]]) -> list[PartitionSnapshotEntry]:
    return [
        PartitionSnapshotEntry(n, False, "pack.lcb", 1, pack=(10 * at, 10 * length, 0))
        for n, (at, length) in enumerate(numbers)
    ]


@given(st.lists(SPANS, min_size=1, max_size=5))
def test_bytes_that_are_named_twice_are_seen_at_every_checkpoint(
    history: list[list[tuple[int, int]]],
) -> None:
    resolution, truth = Resolution(), dict[int, tuple[int, int]]()
    for number, spans in enumerate(history):
        entries = [
            PartitionSnapshotEntry(n, False, "p", 1, origin=IDS[0], pack=(at, length, 0))
            for n, (at, length) in enumerate(spans)
        ]
        resolution = resolution.then(manifest(number, entries))
        truth |= dict(enumerate(spans))
        taken = [at + i for at, length in truth.values() for i in range(length)]
        assert (resolution.problem is not None) == (len(set(taken)) < len(taken))
        assert resolution.objects == bool(truth)
        assert resolution.size_bytes == len(truth)


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
        taken = [a + i for a, size in [*other, (at, length)] for i in range(size)]
        assert (anew.problem is not None) == (len(set(taken)) < len(taken))
        assert anew.size_bytes == len(other) + 1
        assert anew.objects == 1


def test_siblings_that_all_replace_one_long_chain_follow_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbered, asked = Numbers.object, 0

    def counted(numbers: Numbers, link: Link) -> int:
        nonlocal asked
        asked += 1
        return numbered(numbers, link)

    monkeypatch.setattr(Numbers, "object", counted)
    links = [block(0, (place, 1), is_delta=place > 0) for place in range(3_000)]
    base = Resolution().then(manifest(0, [*links, block(1, (9_000, 1), is_delta=False)]))
    siblings = [
        base.then(manifest(number, [PartitionSnapshotEntry(0, False, "q", 1)]))
        for number in range(1, CHILDREN)
    ]
    assert {(each.objects, each.size_bytes, each.problem) for each in siblings} == {(2, 2, None)}
    assert asked <= 2 * len(links) + 2 * CHILDREN


def test_the_links_of_an_object_are_counted_though_some_are_empty() -> None:
    (entry,) = packed([(1, 0)])
    first = Resolution().then(manifest(0, [entry]))
    assert first.objects == 1
    assert first.blocks[0] == Blocks(1)


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
