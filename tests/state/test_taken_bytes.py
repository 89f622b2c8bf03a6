"""What was taken of an object is known for every copy, and copies share most of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.state import CheckpointId, PartitionSnapshotEntry, taken_bytes
from seamark.state.chains import Link
from seamark.state.taken_bytes import Root, Taken, TakenBytes

LINK = Link(CheckpointId.now(), PartitionSnapshotEntry(0, False, "p", 1))
ROOTS = [Root(place, LINK) for place in range(4)]
BLOCKS = st.tuples(st.integers(0, 400), st.integers(1, 9), st.integers(0, 3))


@given(
    st.lists(
        st.tuples(st.lists(BLOCKS, min_size=1, max_size=30), st.sets(st.integers(0, 3))),
        max_size=30,
    )
)
def test_bytes_are_taken_once_by_all_that_are_there(
    history: list[tuple[list[tuple[int, int, int]], set[int]]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taken_bytes, "_WIDTH", 3)
        patch.setattr(taken_bytes, "_FEW", 2)
        compared_with_single_bytes(history)


def compared_with_single_bytes(
    history: list[tuple[list[tuple[int, int, int]], set[int]]],
) -> None:
    taken, owner = TakenBytes(), dict[int, int]()
    for blocks, gone in history:

        def is_there(root: Root, gone: set[int] = gone) -> bool:
            return root.place not in gone

        # what is new is there: only those that are left take more
        new = [Taken(at, at + n, ROOTS[place]) for at, n, place in blocks if place not in gone]
        bytes_of_new = [at for block in new for at in range(block.start, block.end)]
        left = {at: place for at, place in owner.items() if place not in gone}
        is_twice = len({*bytes_of_new}) < len(bytes_of_new) or not left.keys().isdisjoint(
            bytes_of_new
        )
        more = taken.with_more(new, is_there)
        assert (more is None) == is_twice
        if more is not None:
            starts = [block.start for block in more.blocks]
            assert starts == sorted(starts)
            held = {at: b.root.place for b in more.blocks for at in range(b.start, b.end)}
            assert sum(block.end - block.start for block in more.blocks) == len(held)
            expected = left | {at: b.root.place for b in new for at in range(b.start, b.end)}
            assert held.items() >= expected.items()
            taken, owner = more, held


def test_a_long_line_in_one_object_shares_what_is_the_same() -> None:
    line = [TakenBytes()]
    for place in range(2_000):
        more = line[-1].with_more([Taken(2 * place, 2 * place + 1, ROOTS[0])], lambda _: True)
        assert more is not None
        line.append(more)
    assert [block.start for block in line[-1].blocks] == [*range(0, 4_000, 2)]
    pieces = {id(piece): len(piece) for each in line for piece in each._pieces}
    assert sum(pieces.values()) < 150 * len(line)
    assert max(len(each._pieces) for each in line) < 2_000 / 32
