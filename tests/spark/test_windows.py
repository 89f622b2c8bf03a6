"""Time windows are recognised in the arithmetic that Spark makes of them."""

from __future__ import annotations

import pytest

from seamark.spark.plans.time_windows import session_gap, span, time_window, window_text

_US = "precisetimestampconversion"


def tumbling(length: int, slide: int, offset: int, number: int = 0) -> str:
    """The SQL of one window as Spark 4.0 to 4.3 have it in an analysed plan."""
    rest = f"(({_US}(t) - {offset}L) % {slide}L)"
    last = (
        f"({_US}(t) - CASE WHEN ({rest} < CAST(0 AS BIGINT)) THEN ({rest} + {slide}L) "
        f"ELSE {rest} END)"
    )
    start = f"({last} - {number * slide}L)"
    return (
        f"named_struct('start', knownnullable({_US}({start})), "
        f"'end', knownnullable({_US}(({start} + {length}L))))"
    )


def session(gap: str) -> str:
    return (
        f"named_struct('start', {_US}({_US}(t)), 'end', "
        f"knownnullable({_US}({_US}(CAST(t + {gap} AS TIMESTAMP)))))"
    )


@pytest.mark.parametrize(
    ("sql", "parts"),
    [
        (tumbling(20_000_000, 20_000_000, 0), {"length": "20 seconds", "slide": "20 seconds"}),
        (tumbling(600_000_000, 5_000_000, 0, 3), {"length": "10 minutes", "slide": "5 seconds"}),
        (
            tumbling(3_600_000_000, 3_600_000_000, -3_000_000),
            {"length": "1 hour", "slide": "1 hour", "offset": "-3 seconds"},
        ),
        (session("CAST('6 seconds' AS INTERVAL)"), None),
        ("named_struct('start', a, 'end', b)", None),
        ("(((t - 0L) % 20L) + 20L)", None),
    ],
)
def test_the_length_slide_and_offset_of_a_window_are_read_back(
    sql: str, parts: dict[str, str] | None
) -> None:
    assert time_window(sql) == parts


@pytest.mark.parametrize(
    ("sql", "gap"),
    [
        (session("CAST('6 seconds' AS INTERVAL)"), "6 seconds"),
        (session("CAST('1 minute 30 seconds' AS INTERVAL)"), "1 minute 30 seconds"),
        (session("CAST(CASE WHEN (k > 1) THEN '5 seconds' ELSE '6 s' END AS INTERVAL)"), None),
        (tumbling(20_000_000, 20_000_000, 0), None),
        ("named_struct('start', a, 'end', b)", None),
    ],
)
def test_only_a_constant_gap_is_taken_for_the_gap_of_a_session(sql: str, gap: str | None) -> None:
    assert session_gap(sql) == gap


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 seconds"),
        (1, "1 microsecond"),
        (1500, "1500 microseconds"),
        (2_000, "2 milliseconds"),
        (90_000_000, "90 seconds"),
        (86_400_000_000, "1 day"),
        (1_209_600_000_000, "2 weeks"),
        (-3_000_000, "-3 seconds"),
    ],
)
def test_a_length_of_time_is_told_in_its_largest_whole_unit(microseconds: int, text: str) -> None:
    assert span(microseconds) == text


def test_a_window_in_one_line_names_each_part() -> None:
    parts = {"window": "time", "of": "t", "length": "20 seconds", "slide": "5 seconds"}
    assert window_text(parts) == "window(t, length 20 seconds, slide 5 seconds)"
