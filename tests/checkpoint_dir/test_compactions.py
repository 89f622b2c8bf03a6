from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.checkpoint_dir.file_logs.compactions import (
    is_accepted,
    laid_out,
    parse_names,
    pinned_interval,
    restart_interval,
)


@pytest.mark.parametrize(
    ("compacted", "setting", "interval"),
    [
        # the cases of Spark's own test of the derivation: one compaction is left
        ((0,), 1, 1),
        ((1,), 2, 2),
        ((1,), 3, 2),
        ((2,), 3, 3),
        ((3,), 2, 4),
        ((4,), 2, 5),
        ((9,), 3, 5),
        ((11,), 5, 6),
        ((23,), 10, 12),
        # none, and two
        ((), 7, 7),
        ((9, 19), 3, 10),
        ((2, 5, 8), 10, 3),
    ],
)
def test_the_interval_is_the_one_that_a_restart_works_out(
    compacted: tuple[int, ...], setting: int, interval: int
) -> None:
    assert restart_interval(compacted, setting) == interval


@given(st.integers(2, 3_000), st.integers(1, 60))
def test_a_new_layout_is_accepted_under_every_setting(last: int, setting: int) -> None:
    layout = laid_out(last, pinned_interval(last))
    assert is_accepted(layout.compacted, last, setting)
    assert set(layout.plain) == set(range(layout.compacted[-1] + 1, last + 1))


def test_a_plain_entry_where_a_compaction_is_asked_for_is_not_accepted() -> None:
    assert is_accepted((), 8)
    assert not is_accepted((), 9)
    assert not is_accepted((29,), 45), "10 divides 30, so a restart asks for 39.compact"
    assert is_accepted((29,), 45, setting=30)


def test_only_entries_count_as_entries() -> None:
    names = ["0", "1", ".1.crc", ".2.4f1c.tmp", "2.compact", ".2.compact.crc", "3.tmp", "04", "x"]
    found = parse_names(names)
    assert found.plain == (0, 1)
    assert found.compacted == (2,)
    assert found.newest == 2
    assert parse_names([]).newest == -1
