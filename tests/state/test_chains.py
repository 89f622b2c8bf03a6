"""Chains as pure decisions: against a model that remembers, and with links that are wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.errors import DamageError
from seamark.state import (
    CheckpointId,
    CheckpointManifestV2,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
)
from seamark.state.chains import (
    LONGEST_CHAIN,
    Chain,
    Link,
    PartitionKey,
    as_seen_from,
    is_due_for_rebase,
    lineage,
    needs_snapshot,
)
from seamark.state.layout import state_path
from seamark.state.resolution import resolve

IDS = [CheckpointId.now() for _ in range(200)]
Manifests = dict[CheckpointId, CheckpointManifestV2]


def entry(
    place: PartitionKey,
    *,
    delta: bool = False,
    size: int = 100,
    origin: CheckpointId | msgspec.UnsetType = msgspec.UNSET,
) -> PartitionSnapshotEntry:
    path = state_path(*place, is_delta=delta)
    return PartitionSnapshotEntry(place[1], delta, path, size, origin=origin)


def manifest(
    number: int, parent: int | None, entries: list[tuple[str, PartitionSnapshotEntry]]
) -> CheckpointManifestV2:
    partitions: dict[str, list[PartitionSnapshotEntry]] = {}
    for operator, found in entries:
        partitions.setdefault(operator, []).append(found)
    return CheckpointManifestV2.new(
        IDS[number],
        number,
        parent_id=None if parent is None else IDS[parent],
        operators={name: OperatorSnapshotEntry(found) for name, found in partitions.items()},
    )


def by_id(*found: CheckpointManifestV2) -> Manifests:
    return {one.checkpoint_id: one for one in found}


def chain_of(*sizes: int) -> Chain:
    """A snapshot and its deltas, with these sizes."""
    return tuple(
        Link(IDS[number], entry(("a", 0), delta=number > 0, size=size))
        for number, size in enumerate(sizes)
    )


SNAPSHOT, DELTA = ("a", entry(("a", 0))), ("a", entry(("a", 0), delta=True))


# Lineages.


def test_a_lineage_is_a_checkpoint_and_its_parents_newest_first() -> None:
    found = by_id(*(manifest(n, n - 1 if n else None, []) for n in range(5)))
    assert [m.epoch for m in lineage(found.get, IDS[4])] == [4, 3, 2, 1, 0]
    assert [m.epoch for m in lineage(found.get, IDS[2])] == [2, 1, 0]
    assert [m.epoch for m in lineage(found.get, IDS[0])] == [0]


def test_a_checkpoint_that_is_missing_is_named() -> None:
    with pytest.raises(DamageError, match=f"state checkpoint {IDS[3]} is missing"):
        lineage(lambda _: None, IDS[3])


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_missing_link_is_named_together_with_what_builds_on_it(lost: int) -> None:
    found = by_id(*(manifest(n, n - 1 if n else None, []) for n in range(4) if n != lost))
    with pytest.raises(DamageError) as caught:
        lineage(found.get, IDS[3])
    assert caught.value.what == (
        f"state checkpoint {IDS[lost]}, which {IDS[lost + 1]} builds on, is missing"
    )


@pytest.mark.parametrize("length", [1, 2, 3, 50])
def test_a_cycle_is_an_error_and_not_an_endless_loop(length: int) -> None:
    found = by_id(*(manifest(n, (n - 1) % length, []) for n in range(length)))
    for start in range(length):
        with pytest.raises(DamageError, match="cyclic"):
            lineage(found.get, IDS[start])


def test_a_parent_that_is_newer_than_its_child_is_an_error() -> None:
    found = by_id(manifest(3, None, []), manifest(1, 3, []))
    with pytest.raises(DamageError) as caught:
        lineage(found.get, IDS[1])
    assert str(IDS[1]) in caught.value.what
    assert str(IDS[3]) in caught.value.what


def test_a_very_long_lineage_is_followed() -> None:
    found = by_id(*(manifest(n, n - 1 if n else None, []) for n in range(200)))
    assert len(lineage(found.get, IDS[199])) == 200


# What a partition consists of.


def test_a_delta_without_a_snapshot_is_an_error_that_names_it() -> None:
    line = [manifest(1, 0, [DELTA]), manifest(0, None, [("b", entry(("b", 0)))])]
    with pytest.raises(DamageError) as caught:
        resolve(line)
    assert caught.value.what == (
        f"operator 'a' partition 0: the delta of {IDS[1]} has no snapshot below it"
    )


def test_of_several_deltas_without_a_snapshot_the_oldest_is_named() -> None:
    with pytest.raises(DamageError, match=f"the delta of {IDS[1]} has no snapshot"):
        resolve([manifest(n, n - 1, [DELTA]) for n in (3, 2, 1)])


def test_a_snapshot_after_a_delta_in_one_manifest_is_an_error() -> None:
    for entries in ([DELTA, SNAPSHOT], [SNAPSHOT, SNAPSHOT], [SNAPSHOT, DELTA, SNAPSHOT]):
        with pytest.raises(DamageError, match=r"operator 'a' partition 0 has a snapshot after"):
            resolve([manifest(0, None, entries)])


def test_partitions_of_one_number_in_two_operators_are_two() -> None:
    both = [("a", entry(("a", 1), size=1)), ("b", entry(("b", 1), size=2))]
    found = resolve([manifest(0, None, both)])
    assert {place: chain[0].entry.size_bytes for place, chain in found.items()} == {
        ("a", 1): 1,
        ("b", 1): 2,
    }


def test_what_lies_below_a_snapshot_does_not_matter() -> None:
    line = [manifest(2, 1, [SNAPSHOT]), manifest(1, 0, [DELTA])]  # a delta of nothing, but old
    assert resolve(line) == {("a", 0): (Link(IDS[2], SNAPSHOT[1]),)}


def test_a_chain_lies_in_several_checkpoints_oldest_first() -> None:
    line = [manifest(2, 1, [DELTA]), manifest(1, 0, [DELTA]), manifest(0, None, [SNAPSHOT])]
    assert resolve(line)["a", 0] == (
        Link(IDS[0], SNAPSHOT[1]),
        Link(IDS[1], DELTA[1]),
        Link(IDS[2], DELTA[1]),
    )


def test_an_entry_of_another_checkpoint_keeps_its_origin() -> None:
    carried = [
        ("a", entry(("a", 0), origin=IDS[0])),
        ("a", entry(("a", 0), delta=True, origin=IDS[1])),
        DELTA,
    ]
    chain = resolve([manifest(2, None, carried)])["a", 0]
    assert [link.origin for link in chain] == [IDS[0], IDS[1], IDS[2]]


def test_a_carried_chain_says_the_same_in_another_checkpoint() -> None:
    chain = chain_of(10, 1, 1)
    seen = as_seen_from(IDS[9], chain)
    assert [one.origin for one in seen] == [IDS[0], IDS[1], IDS[2]]
    own = as_seen_from(IDS[2], chain)
    assert own[2].origin is msgspec.UNSET
    again = resolve([manifest(9, None, [("a", one) for one in seen])])["a", 0]
    assert [link.origin for link in again] == [link.origin for link in chain]
    assert as_seen_from(IDS[9], again) == seen


# When a chain has become too long.


def test_without_a_chain_a_snapshot_is_needed() -> None:
    assert needs_snapshot(None)
    assert needs_snapshot(())


def test_after_ten_deltas_a_snapshot_is_needed() -> None:
    assert LONGEST_CHAIN == 10
    for deltas in range(10):
        assert not needs_snapshot(chain_of(1000, *[1] * deltas))
    for deltas in (10, 11, 50):
        assert needs_snapshot(chain_of(1000, *[1] * deltas))


def test_another_length_can_be_asked_for() -> None:
    assert needs_snapshot(chain_of(1000), longest=0)
    assert not needs_snapshot(chain_of(1000), longest=1)
    assert needs_snapshot(chain_of(1000, 1), longest=1)
    assert not needs_snapshot(chain_of(1000, *[1] * 19), longest=20)


def test_when_the_deltas_outweigh_the_snapshot_a_snapshot_is_needed() -> None:
    assert not needs_snapshot(chain_of(100, 99))
    assert not needs_snapshot(chain_of(100, 50, 50))
    assert needs_snapshot(chain_of(100, 50, 51))
    assert needs_snapshot(chain_of(100, 101))
    assert needs_snapshot(chain_of(0, 1, 1))
    assert not needs_snapshot(chain_of(0, 0))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=14), st.integers(0, 12))
def test_the_rule_for_every_chain(sizes: list[int], longest: int) -> None:
    deltas = sizes[1:]
    expected = len(deltas) >= longest or sum(deltas) > max(sizes[0], 1)
    assert needs_snapshot(chain_of(*sizes), longest) == expected


def test_a_rebase_is_due_after_ten_parents() -> None:
    found = by_id(*(manifest(n, n - 1 if n else None, []) for n in range(12)))
    due = [is_due_for_rebase(lineage(found.get, IDS[n])) for n in range(12)]
    assert due == [False] * 10 + [True] * 2


# Random histories against a model that remembers every partition's chain.


@dataclass
class History:
    """Writes manifests as a writer does, and remembers what each partition must consist of."""

    manifests: Manifests = field(default_factory=dict)
    truth: list[dict[PartitionKey, list[CheckpointId]]] = field(default_factory=list)

    def step(self, parent: int | None, rebase: bool, changes: dict[PartitionKey, bool]) -> None:
        number = len(self.truth)
        mine = IDS[number]
        before = {} if parent is None else self.truth[parent]
        truth = {place: list(origins) for place, origins in before.items()}
        entries: list[tuple[str, PartitionSnapshotEntry]] = []
        if rebase and parent is not None:
            for place, chain in resolve(lineage(self.manifests.get, IDS[parent])).items():
                if changes.get(place) is not False:
                    entries += [(place[0], one) for one in as_seen_from(mine, chain)]
        for place, delta in changes.items():
            is_delta = delta and place in truth
            truth[place] = [*truth.get(place, []), mine] if is_delta else [mine]
            entries.append((place[0], entry(place, delta=is_delta)))
        self.truth.append(truth)
        self.manifests[mine] = manifest(number, None if rebase else parent, entries)

    def resolved(self, number: int) -> dict[PartitionKey, list[CheckpointId]]:
        chains = resolve(lineage(self.manifests.get, IDS[number]))
        for chain in chains.values():
            assert [link.entry.is_delta for link in chain] == [False] + [True] * (len(chain) - 1)
        return {place: [link.origin for link in chain] for place, chain in chains.items()}


places = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2))
steps = st.lists(
    st.tuples(
        st.integers(-1, 30),
        st.booleans(),
        st.dictionaries(places, st.booleans(), max_size=4),
    ),
    min_size=1,
    max_size=25,
)


def history_of(chosen: list[tuple[int, bool, dict[PartitionKey, bool]]]) -> History:
    history = History()
    for back, rebase, changes in chosen:
        count = len(history.truth)
        parent = None if back < 0 or not count else max(0, count - 1 - back % 3)
        history.step(parent, rebase, changes)
    return history


@given(steps)
def test_every_checkpoint_of_any_history_resolves_to_what_was_written(
    chosen: list[tuple[int, bool, dict[PartitionKey, bool]]],
) -> None:
    history = history_of(chosen)
    for number, truth in enumerate(history.truth):
        assert history.resolved(number) == truth


@given(steps, st.data())
def test_losing_any_manifest_is_an_error_or_changes_nothing(
    chosen: list[tuple[int, bool, dict[PartitionKey, bool]]], choice: st.DataObject
) -> None:
    history = history_of(chosen)
    lost = IDS[choice.draw(st.integers(0, len(history.truth) - 1))]
    needed_by = [
        number
        for number in range(len(history.truth))
        if lost in {m.checkpoint_id for m in lineage(history.manifests.get, IDS[number])}
    ]
    del history.manifests[lost]
    for number, truth in enumerate(history.truth):
        if number in needed_by:
            with pytest.raises(DamageError, match=f"state checkpoint {lost}.* is missing"):
                history.resolved(number)
        else:
            assert history.resolved(number) == truth


@pytest.mark.parametrize("packs", [[(0, 100, 0), (99, 10, 0)], [(0, 100, 0), (0, 100, 0)]])
def test_bytes_that_two_partitions_name_are_an_error(packs: list[tuple[int, int, int]]) -> None:
    entries = [
        ("a", PartitionSnapshotEntry(number, False, "pack.lcb", 100, pack=pack))
        for number, pack in enumerate(packs)
    ]
    with pytest.raises(DamageError, match="named twice"):
        resolve([manifest(0, None, entries)])


def test_blocks_next_to_each_other_belong_to_nobody_twice() -> None:
    packs = [(0, 100, 0), (100, 0, 0), (100, 10, 0)]
    entries = [
        ("a", PartitionSnapshotEntry(number, False, "pack.lcb", 100, pack=pack))
        for number, pack in enumerate(packs)
    ]
    assert len(resolve([manifest(0, None, entries)])) == 3
