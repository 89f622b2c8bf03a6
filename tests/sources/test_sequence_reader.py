"""Epochs: numbered without gaps, read once, and after a crash exactly the same or not at all."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.errors import InvalidInputError, PositionUnavailable, RefusedError
from seamark.sources.offsets import BEGINNING, Offset, Position
from seamark.sources.sequence_reader import Placed, SequenceReader
from tests.sources.support.examples import Numbers, Pages, drained, reader_of

VALUES = [f"v{n}" for n in range(25)]
ROWS = list(enumerate(VALUES))


def test_every_row_comes_once_in_epochs_of_at_most_so_many_rows() -> None:
    offsets, rows = drained(reader_of(Numbers(VALUES)))
    assert rows == ROWS
    assert [(o.sequence, o.position) for o in offsets[1:]] == [(10, 10), (20, 20), (25, 25)]


def test_sparks_own_limit_counts_when_it_is_smaller() -> None:
    offsets, _ = drained(reader_of(Numbers(VALUES)), limit=4)
    assert offsets[1].sequence == 4


def test_rows_that_were_read_to_find_the_end_are_not_read_again() -> None:
    source = Numbers(VALUES)
    drained(reader_of(source))
    assert [position for position, _ in source.asked] == [None, 10, 20, 25]


def test_asking_again_for_an_epoch_that_was_not_begun_gives_the_same_end() -> None:
    source = Numbers(VALUES[:5])
    reader = reader_of(source)
    end = reader.end_after(BEGINNING, 10)
    source.rows.append("late")
    assert reader.end_after(BEGINNING, 10) == end
    assert len(source.asked) == 1


def test_only_the_newest_epoch_is_held_in_memory() -> None:
    source = Numbers(VALUES)
    reader = reader_of(source)
    first = reader.end_after(BEGINNING, 10)
    reader.end_after(first, 10)
    asked = len(source.asked)
    assert reader.rows_between(BEGINNING, first) == ROWS[:10]  # still right, but read again
    assert len(source.asked) == asked + 1


def test_a_new_process_goes_on_where_the_sequence_was() -> None:
    source = Numbers(VALUES[:7])
    offsets, _ = drained(reader_of(source))
    source.rows += VALUES[7:]
    later, rows = drained(reader_of(source), offsets[-1])
    assert rows == ROWS[7:]
    assert later[-1].sequence == 25


@given(st.lists(st.integers(1, 7), max_size=12), st.integers(1, 12))
def test_the_offset_after_a_row_does_not_depend_on_how_epochs_were_cut(
    cuts: list[int], max_rows: int
) -> None:
    whole = drained(reader_of(Numbers(VALUES), 100))[0][-1]
    offset = BEGINNING
    for cut in cuts:
        offset = reader_of(Numbers(VALUES), max_rows).end_after(offset, cut)
    assert drained(reader_of(Numbers(VALUES), max_rows), offset)[0][-1] == whole


@pytest.mark.parametrize("kind", [Numbers, Pages])
def test_an_epoch_is_read_again_exactly(kind: type[Numbers]) -> None:
    offsets, _ = drained(reader_of(kind(VALUES)))
    for start, end in itertools.pairwise(offsets):
        again = reader_of(kind([*VALUES, "newer"])).rows_between(start, end)
        assert again == ROWS[start.sequence : end.sequence]


def test_several_epochs_can_be_read_again_at_once() -> None:
    offsets, _ = drained(reader_of(Numbers(VALUES)))
    assert reader_of(Pages(VALUES)).rows_between(offsets[0], offsets[-1]) == ROWS


def test_no_rows_between_an_offset_and_itself() -> None:
    source = Numbers(VALUES)
    offset = reader_of(source).end_after(BEGINNING, 10)
    asked = len(source.asked)
    assert reader_of(source).rows_between(offset, offset) == []
    assert len(source.asked) == asked


# what must not be hidden


def test_rows_that_are_gone_are_told_and_an_epoch_is_never_shorter() -> None:
    offsets, _ = drained(reader_of(Numbers(VALUES)))
    with pytest.raises(PositionUnavailable, match="2 of 5 rows") as gone:
        reader_of(Numbers(VALUES[:23])).rows_between(offsets[-2], offsets[-1])
    assert gone.value.source == "numbers"
    assert gone.value.requested == b"20"
    assert "rows 21 to 25, up to position 25" in str(gone.value)


class WithGap(Numbers):
    """Lost a row, and its positions stay as they were."""

    def read_from(self, position: Position | None, limit: int) -> Iterator[Placed]:
        for row, after in super().read_from(position, limit + 1):
            if row is not None and row[0] != 3:
                yield row, after


def test_a_row_missing_in_the_middle_is_gone_although_more_rows_follow() -> None:
    end = reader_of(Numbers(VALUES)).end_after(BEGINNING, 10)
    with pytest.raises(PositionUnavailable, match="1 of 10 rows"):
        reader_of(WithGap(VALUES)).rows_between(BEGINNING, end)


def test_a_changed_row_is_told() -> None:
    end = reader_of(Numbers(VALUES)).end_after(BEGINNING, 10)
    with pytest.raises(RefusedError, match=r"other rows than the epoch was made of.*SHA-256") as it:
        reader_of(Numbers(["other", *VALUES[1:]])).rows_between(BEGINNING, end)
    assert not isinstance(it.value, PositionUnavailable)
    assert "rows 1 to 10" in str(it.value)


class Shifted(Numbers):
    """The rows are the same, and their positions are others."""

    def read_from(self, position: Position | None, limit: int) -> Iterator[Placed]:
        for row, after in super().read_from(position, limit):
            assert isinstance(after, int)
            yield row, after + 100


def test_other_positions_are_told() -> None:
    end = reader_of(Numbers(VALUES)).end_after(BEGINNING, 10)
    with pytest.raises(RefusedError, match="followed by position 110"):
        reader_of(Shifted(VALUES)).rows_between(BEGINNING, end)


class Between(Numbers):
    """Reads again by a way of its own, and finds a row that was not there before."""

    def read_between(
        self, start: Position | None, end: Position, limit: int
    ) -> Iterable[Placed] | None:
        assert isinstance(end, int)
        placed: list[Placed] = [((n, self.rows[n]), n + 1) for n in range(end)]
        return [((99, "late"), 0), *placed][:limit]


def test_a_row_that_appeared_among_those_read_is_told() -> None:
    end = reader_of(Numbers(VALUES)).end_after(BEGINNING, 10)
    with pytest.raises(RefusedError, match="more rows now"):
        reader_of(Between(VALUES)).rows_between(BEGINNING, end)


def test_reading_backwards_is_refused() -> None:
    end = reader_of(Numbers(VALUES)).end_after(BEGINNING, 10)
    with pytest.raises(RefusedError, match="backwards"):
        reader_of(Numbers(VALUES)).rows_between(end, BEGINNING)


def test_an_epoch_read_ahead_is_not_given_out_for_another_start() -> None:
    # before Spark 4.2 the reader has to remember where it is; Spark's own start must win
    source = Numbers(VALUES)
    reader = reader_of(source)
    end = reader.end_after(BEGINNING, 10)
    elsewhere = Offset(4, 4, "b" * 64)
    with pytest.raises(RefusedError, match="SHA-256"):
        reader.rows_between(elsewhere, end)


# what authors get wrong


class Returning(Numbers):
    """Returns whatever it was given."""

    def read_from(self, position: Position | None, limit: int) -> Iterator[Placed]:
        return iter(self.rows)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ([(1, "a")], "pairs of a row"),
        ([("ab", 1)], "pairs of a row"),
        ([((1, "a"), 1, 2)], "pairs of a row"),
        ([((1,), 1)], "1 values for 2 columns"),
        ([((1, "a"), None)], "not a position"),
        ([((1, "a"), 1), ((2, "b"), 1)], "two rows with the position 1"),
    ],
)
def test_mistakes_are_told_in_words(returned: list[Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        reader_of(Returning(returned)).end_after(BEGINNING, 10)


def test_more_rows_than_asked_for_are_left_for_the_next_epoch() -> None:
    rows = [((n, "x"), n + 1) for n in range(50)]
    assert reader_of(Returning(rows), 10).end_after(BEGINNING, 10).sequence == 10


def test_named_rows_are_assigned_by_name() -> None:
    from pyspark.sql import Row

    reader = reader_of(Returning([(Row(value="a", number=1), 1)]))
    end = reader.end_after(BEGINNING, 10)
    assert reader.rows_between(BEGINNING, end) == [(1, "a")]


def test_a_generator_is_closed_when_enough_was_read() -> None:
    closed = []

    class Holding(Numbers):
        def read_from(self, position: Position | None, limit: int) -> Iterator[Placed]:
            try:
                yield from super().read_from(position, 1_000)
            finally:
                closed.append(True)

    reader_of(Holding(VALUES)).end_after(BEGINNING, 3)
    assert closed == [True]


# until there is nothing more


def test_available_now_ends_at_what_was_there_although_more_comes() -> None:
    source = Numbers(VALUES)
    reader = reader_of(source)
    reader.stop_at_present()
    source.rows += ["later"] * 30
    offsets, rows = drained(reader)
    assert rows == ROWS
    asked = len(source.asked)
    assert reader.end_after(offsets[-1], 10) == offsets[-1]
    assert len(source.asked) == asked, "once at the end, it asks no more"


def test_available_now_is_not_ended_by_a_source_that_returns_few_rows_at_a_time() -> None:
    reader = reader_of(Pages(VALUES))
    reader.stop_at_present()
    assert drained(reader)[1] == ROWS


def test_a_stream_without_an_end_goes_on_when_rows_come_after_a_pause() -> None:
    source = Numbers(VALUES[:3])
    reader = reader_of(source)
    offsets, _ = drained(reader)
    source.rows.append("later")
    assert reader.end_after(offsets[-1], 10).sequence == 4


def test_all_that_is_available_can_be_one_epoch() -> None:
    assert reader_of(Pages(VALUES)).end_after(BEGINNING, None).sequence == 25


def test_an_idle_source_is_left_in_peace_for_a_while() -> None:
    now = 0.0
    source = Numbers([])
    reader = SequenceReader(source, "numbers", ["number", "value"], 10, 0.5, lambda: now)
    for _ in range(3):
        assert reader.end_after(BEGINNING, 10) == BEGINNING
    assert len(source.asked) == 1
    source.rows.append("new")
    now = 0.5
    assert reader.end_after(BEGINNING, 10).sequence == 1
    assert len(source.asked) == 2


def test_a_busy_source_is_read_without_a_pause() -> None:
    reader = SequenceReader(Numbers(VALUES), "numbers", ["number", "value"], 10, 60.0)
    assert drained(reader)[1] == ROWS


class Gaps(Numbers):
    """Every second row is one that a reader is not given; positions count all of them."""

    def read_from(self, position: Position | None, limit: int) -> Iterator[Placed]:
        first = position or 0
        assert isinstance(first, int)
        for number in range(first, len(self.rows)):
            yield (None if number % 2 else (number, self.rows[number])), number + 1

    def read_between(
        self, start: Position | None, end: Position, limit: int
    ) -> Iterator[Placed] | None:
        return self.read_from(start, limit)


def test_a_position_moves_over_what_has_no_rows_and_an_epoch_ends_there_again() -> None:
    source = Gaps("abcd")
    reader = reader_of(source)
    end = reader.end_after(BEGINNING, 10)
    assert (end.sequence, end.position) == (2, 4)
    assert reader_of(source).rows_between(BEGINNING, end) == [(0, "a"), (2, "c")]
    source.rows += "e"
    after = reader_of(source).end_after(end, 1)
    source.rows += "f"
    moved = reader_of(source).end_after(after, 1)
    assert (moved.sequence, moved.position, moved.digest) == (3, 6, after.digest)
    assert reader_of(source).rows_between(after, moved) == []
    assert reader_of(source).end_after(moved, 1) == moved


def test_a_beginning_without_rows_stays_the_beginning() -> None:
    class Empty(Gaps):
        def read_from(self, position: Position | None, limit: int) -> Iterator[Placed]:
            yield None, 1

    assert reader_of(Empty("")).end_after(BEGINNING, 10) == BEGINNING
