"""Offsets: a chain of digests, and no token that silently stands for the beginning."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.errors import FormatTooNewError, InvalidInputError
from seamark.sources.offsets import (
    BEGINNING,
    LARGEST_POSITION,
    Offset,
    checked_position,
    digest_after,
    offset_from,
)

GOOD = Offset(7, {"page": 2}, "a" * 64)


def test_an_offset_survives_the_trip_through_sparks_log() -> None:
    for offset in (BEGINNING, GOOD):
        assert offset_from(json.loads(json.dumps(offset.as_json()))) == offset


@pytest.mark.parametrize(
    "token",
    [
        None,
        {},
        7,
        "latest",
        [],
        {"sequence": 7, "position": None, "digest": "a" * 64},
        {"sequence": 0, "position": 7, "digest": "0" * 64},
        {"sequence": 0, "position": None, "digest": "a" * 64},
        {"sequence": -1, "position": 7, "digest": "a" * 64},
        {"sequence": True, "position": 7, "digest": "a" * 64},
        {"sequence": "7", "position": 7, "digest": "a" * 64},
        {"sequence": 7, "position": True, "digest": "a" * 64},
        {"sequence": 7, "position": 7, "digest": "A" * 64},
        {"sequence": 7, "position": 7},
        {"logOffset": 3},
    ],
)
def test_what_is_no_offset_is_refused_and_never_taken_for_the_beginning(token: Any) -> None:
    with pytest.raises((InvalidInputError, FormatTooNewError)):
        offset_from(token)


def test_an_offset_of_a_newer_version_says_so() -> None:
    with pytest.raises(FormatTooNewError, match="'epoch'"):
        offset_from({**GOOD.as_json(), "epoch": 1})


@pytest.mark.parametrize("position", [None, True, False, b"1", {1}, math.nan, object()])
def test_what_json_cannot_hold_is_no_position(position: Any) -> None:
    with pytest.raises(InvalidInputError, match="not a position"):
        checked_position(position)


def test_a_position_looks_the_same_before_and_after_a_restart() -> None:
    assert checked_position((1, "a")) == [1, "a"]
    assert checked_position(2**70) == 2**70


def test_a_position_that_would_fill_the_log_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="65,536"):
        checked_position("x" * LARGEST_POSITION)


EVERYTHING = (
    None,
    True,
    -5,
    2.5,
    "ä",
    b"\x00\xff",
    Decimal("1.50"),
    date(2026, 1, 2),
    datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - a wall clock
    [1, [2]],
    {"b": 1, "a": 2},
)


def test_the_bytes_that_are_hashed_are_fixed_for_ever() -> None:
    # a change here makes every epoch that is read again after an upgrade look changed
    digest = "0f8993ff4ad673287318a3ce02ead5a22a7607fb111e0999d519c2fcbb313572"
    assert digest_after(bytes(32), EVERYTHING).hex() == digest


def test_the_same_moment_in_another_zone_and_another_order_of_keys_are_the_same_row() -> None:
    moment = datetime(2026, 1, 2, 3, tzinfo=UTC)
    elsewhere = moment.astimezone(timezone(timedelta(hours=5)))
    assert digest_after(bytes(32), (moment,)) == digest_after(bytes(32), (elsewhere,))
    assert digest_after(bytes(32), ({"a": 1, "b": 2},)) == digest_after(
        bytes(32), ({"b": 2, "a": 1},)
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, 2), (12,)),
        (("ab", "c"), ("a", "bc")),
        ((None,), ("",)),
        ((0,), (False,)),
        ((1,), (1.0,)),
        ((b"a",), ("a",)),
        ((2**70,), (2**70 + 1,)),
        ((Decimal("1.5"),), (Decimal("1.50"),)),
    ],
)
def test_rows_that_differ_have_different_digests(one: Any, other: Any) -> None:
    assert digest_after(bytes(32), one) != digest_after(bytes(32), other)


@pytest.mark.parametrize("value", [object(), [2**70], {1, 2, object()}])
def test_a_value_without_fixed_bytes_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="no fixed bytes"):
        digest_after(bytes(32), (value,))


@given(st.lists(st.tuples(st.integers(), st.text()), min_size=2), st.data())
def test_the_order_of_rows_is_part_of_the_digest(rows: list[tuple[int, str]], data: Any) -> None:
    def digest(of: list[tuple[int, str]]) -> bytes:
        found = bytes(32)
        for row in of:
            found = digest_after(found, row)
        return found

    shuffled = data.draw(st.permutations(rows))
    assert (digest(rows) == digest(shuffled)) == (rows == shuffled)
