"""A table fits the screen, however long its cells are, and costs no more than they do."""

from __future__ import annotations

import time

from seamark.cli.layout import _fitted


def test_columns_share_the_screen() -> None:
    assert _fitted([("a" * 10, "b" * 10)], 80) == [10, 10]
    assert _fitted([("a" * 10, "b" * 1_000)], 80) == [10, 68]
    assert sum(_fitted([("a" * 1_000, "b" * 5_000)], 80)) == 78
    assert sum(_fitted([("a" * 5_000, "b" * 5_000, "c" * 70)], 80)) == 76


def test_two_very_long_cells_are_fitted_at_once() -> None:
    before = time.process_time()
    assert sum(_fitted([("a" * 3_000_000, "b" * 3_000_000)], 80)) == 78
    assert time.process_time() - before < 4
