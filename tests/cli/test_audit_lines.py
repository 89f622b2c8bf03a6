"""How many rows a line of ``seamark audit`` says that were found."""

from __future__ import annotations

from typing import Any

from seamark.cli.audit import rows_found


def epochs(first: int, last: int, rows: int | None) -> dict[str, Any]:
    return {"first": first, "last": last, "found_rows": rows}


def test_rows_of_a_table_that_is_also_compared_as_a_whole_are_counted_once() -> None:
    assert rows_found([epochs(1, 1, 3), epochs(2, 2, 4), epochs(1, 2, 7)]) == 7
    assert rows_found([epochs(1, 1, 3), epochs(1, 1, 3)]) == 3


def test_rows_of_files_are_those_of_their_epochs() -> None:
    assert rows_found([epochs(1, 1, 3), epochs(2, 2, 4)]) == 7


def test_rows_that_could_not_be_counted_are_not_guessed() -> None:
    assert rows_found([epochs(1, 1, 3), epochs(2, 2, None)]) is None
