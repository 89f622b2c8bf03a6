"""A row that is changed leaves the earlier one as it was, and shares the rest with it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seamark.state.shared_rows import WIDTH, SharedRow

CHANGES = st.dictionaries(st.integers(0, 5 * WIDTH), st.none() | st.integers(), max_size=20)


@given(st.lists(CHANGES, max_size=8))
def test_every_row_keeps_what_it_was_given(history: list[dict[int, int | None]]) -> None:
    row, truth = SharedRow[int](), dict[int, int | None]()
    rows = []
    for changes in history:
        row, truth = row.changed(changes), truth | changes
        rows.append((row, truth))
    for each, expected in rows:
        assert dict(each.items()) == {n: v for n, v in expected.items() if v is not None}
        assert all(each[number] == expected.get(number) for number in range(6 * WIDTH))


def test_one_change_copies_one_chunk() -> None:
    row = SharedRow[int]().changed({number: number for number in range(100 * WIDTH)})
    other = row.changed({7: -1})
    assert sum(a is b for a, b in zip(row.chunks, other.chunks, strict=True)) == 99
