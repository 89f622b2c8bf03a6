"""No regular expression of the package takes time that grows faster than the text."""

from __future__ import annotations

import re
import time

import pytest

from tests.amplifier.support.patterns import Pattern, patterns

pytestmark = pytest.mark.slow

SIZE = 10_000
FLOOR = 0.02
"""Processor time that no pattern is asked about: many times what going through takes."""
GROWS, MOST = 4, 8


def seconds(pattern: Pattern, text: str) -> float:
    before = time.process_time()
    pattern.run(text)
    return time.process_time() - before


def too_slow(pattern: Pattern) -> str:
    """A text for which four times as much takes far more than four times as long, if there is."""
    for number, text in enumerate(pattern.texts(SIZE)):
        if (took := seconds(pattern, text)) > FLOOR:
            longer = [each for n, each in enumerate(pattern.texts(GROWS * SIZE)) if n == number]
            if seconds(pattern, longer[0]) > MOST * took:
                return f"{pattern.name}: {text[:40]!r}"
    return ""


def test_a_pattern_that_is_slow_is_found() -> None:
    quadratic = Pattern("quadratic", re.compile(r"a+b"), searches=True)
    assert too_slow(quadratic)
    assert not too_slow(quadratic._replace(searches=False))


def test_every_pattern_takes_time_in_proportion_to_its_text() -> None:
    found = patterns()
    assert len(found) > 100
    assert [each for each in map(too_slow, found) if each] == []
