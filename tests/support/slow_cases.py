"""Which cases of a long list run every time, and which only in ``make test-spark``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def slow_except(
    cases: Iterable[Any], *quick: str, name: Callable[[Any], str] = str, marks: Any = ()
) -> list[Any]:
    """``cases`` as parameters, all but the named ones marked ``slow``; ``marks`` are for all."""
    cases = list(cases)
    names = [name(case) for case in cases]
    unknown = set(quick) - set(names)
    assert not unknown, f"no such cases: {unknown}"
    return [
        pytest.param(case, marks=marks if each in quick else [*marks, pytest.mark.slow], id=each)
        for case, each in zip(cases, names, strict=True)
    ]
