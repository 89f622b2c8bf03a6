"""Sizes, durations and times read as people expect them."""

from __future__ import annotations

import pytest

from seamark._common.text import (
    age_text,
    duration_text,
    elapsed_text,
    parse_duration,
    phase_text,
    seconds_text,
    size_text,
    time_text,
)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (41 * 1024 + 100, "41 KiB"),
        (1024 * 1024 - 1, "1.0 MiB"),
        (3_250_586, "3.1 MiB"),
        (42 * 1024**2, "42 MiB"),
        (1024**3, "1.0 GiB"),
        (5 * 1024**5, "5120 TiB"),
    ],
)
def test_sizes_are_written_in_powers_of_1024(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.00 s"), (0.412, "0.41 s"), (9.996, "10.0 s"), (12.34, "12.3 s"), (125.4, "125 s")],
)
def test_seconds_have_as_many_digits_as_matter(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0091, "9 ms"), (0.9994, "999 ms"), (0.9996, "1.00 s"), (2.5, "2.50 s")]
)
def test_a_phase_is_in_milliseconds_below_a_second(seconds: float, text: str) -> None:
    assert phase_text(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15min", 900), ("15 min", 900), ("2h", 7200), ("7d", 604800), ("1.5H", 5400)],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1y", "1d2h", "٣h x"])
def test_anything_else_is_not_a_duration(text: str) -> None:
    assert parse_duration(text) is None


def test_durations_are_written_as_people_read_them() -> None:
    texts = [duration_text(seconds) for seconds in (90, 900, 7200, 86400, 604800, 0.5)]
    assert texts == ["90 s", "15 min", "2 h", "1 day", "7 days", "0.5 s"]


def test_the_time_between_two_events_is_in_its_two_largest_units() -> None:
    texts = [elapsed_text(seconds) for seconds in (0.02, 4.0, 3725.0, 86400.0, 31_190_300.0)]
    assert texts == ["0.02 s", "4 s", "1 h 2 min", "1 day", "360 days 23 h"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s ago"),
        (59, "59 s ago"),
        (185, "3 min ago"),
        (7300, "2 h ago"),
        (90_000, "1 day ago"),
    ],
)
def test_an_age_is_in_its_largest_unit(seconds: int, text: str) -> None:
    assert age_text(1_000_000_000_000, now=1_000_000_000 + seconds) == text


def test_a_time_in_the_future_is_not_called_past() -> None:
    assert age_text(1_000_000_180_000, now=1_000_000_000) == "in 3 min"
    assert age_text(1_000_000_000_500, now=1_000_000_000) == "0 s ago", "clocks differ a little"


def test_an_exact_time_has_milliseconds_and_its_zone() -> None:
    assert time_text(1_767_605_401_500) == "2026-01-05 09:30:01.500 UTC"
    assert time_text(2**63) == f"{2**63} ms", "no calendar goes that far"
