"""Which cases of a long list run every time, and which only in ``make test-spark``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def slow_except(cases: Iterable[Any], *quick: str, name: Callable[[Any], str] = str) -> list[Any]:
    """``cases`` as parameters, all but the named ones marked ``slow``."""
    cases = list(cases)
    names = [name(case) for case in cases]
    unknown = set(quick) - set(names)
    assert not unknown, f"no such cases: {unknown}"
    return [
        pytest.param(case, marks=[] if each in quick else [pytest.mark.slow], id=each)
        for case, each in zip(cases, names, strict=True)
    ]
