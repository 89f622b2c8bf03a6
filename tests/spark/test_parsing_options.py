"""A file that is parsed in another way has other rows: a start notices."""

from __future__ import annotations

from typing import Any

from seamark.spark.plans.parsing_options import (
    PARSING,
    parsing_changed,
    parsing_in,
    parsing_of,
    recorded_as,
)

CSV = parsing_of("csv", {"SEP": ";", "header": "true", "password": "x"}, ["k", "v"])


def changes(new: Any, old: Any = CSV) -> list[str]:
    return parsing_changed({"in": old}, {"in": new})


def test_only_options_that_make_other_rows_are_recorded() -> None:
    assert CSV == {"options": {"sep": ";"}, "columns": ["k", "v"]}
    assert parsing_of("json", {}, ["k"]) == {"options": {}}


def test_another_separator_and_another_format_of_times_are_changes() -> None:
    other = parsing_of("csv", {"sep": ",", "timestampFormat": "yyyy"}, ["k", "v"])
    assert changes(other) == [
        "source 'in': option sep ';' → ','",
        "source 'in': option timestampformat none → 'yyyy'",
    ]
    assert changes(CSV) == []


def test_a_column_at_another_place_is_a_change_and_one_more_is_none() -> None:
    assert changes(parsing_of("csv", {"sep": ";"}, ["v", "k"])) == [
        "source 'in': column 'v' is column 1 of its files, and was column 2",
        "source 'in': column 'k' is column 2 of its files, and was column 1",
    ]
    assert changes(parsing_of("csv", {"sep": ";"}, ["k", "v", "w"])) == []
    by_name = parsing_of("json", {}, ["v", "k"])
    assert changes(by_name, parsing_of("json", {}, ["k", "v"])) == []


def test_what_an_older_seamark_has_not_recorded_is_not_compared() -> None:
    old, new = {"format": "csv"}, {"format": "csv", PARSING: CSV}
    assert recorded_as({"in": new}, {"in": old}) == {"in": old}
    assert recorded_as({"in": new}, {"in": new}) == {"in": new}
    assert recorded_as({"in": new}, {}) == {"in": new}
    assert parsing_changed({"in": parsing_in(old)}, {"in": parsing_in(new)}) == []
    assert changes(CSV, {"options": 3, "columns": None}) == ["source 'in': option sep none → ';'"]
