"""The conformance suite is worth something: each rule catches who breaks it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seamark.testing import SinkSuite
from seamark.testing.conformance.sink_examples import Writer
from tests.sinks.support.broken_sinks import BREAKS
from tests.sinks.support.frames import failing_frame, frame
from tests.sinks.support.local_sink import LocalSink, rows_shown

RULES = sorted(name for name in dir(SinkSuite) if name.startswith("test_"))
CASES = [(rule, broken) for rule, every in BREAKS.items() for broken in every]


def call(rule: str, kind: type[LocalSink], root: Path) -> None:
    """Run one test of the suite on a sink of this kind."""
    fixtures: dict[str, Any] = {
        "writer": Writer(lambda: kind(root), frame),
        "visible": lambda: rows_shown(root),
        "failing_frame": failing_frame,
    }
    test: Callable[..., None] = getattr(SinkSuite(), rule)
    test(**{name: fixtures[name] for name in inspect.signature(test).parameters})


@pytest.mark.parametrize(
    ("rule", "broken"), CASES, ids=[f"{kind.__name__}-{rule}" for rule, kind in CASES]
)
def test_a_broken_sink_is_caught_by_its_rule(
    rule: str, broken: type[LocalSink], tmp_path: Path
) -> None:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - a failed test, whatever it raises
        call(rule, broken, tmp_path)
    assert not isinstance(caught.value, TypeError | AttributeError | NameError | KeyError)
    assert not isinstance(caught.value, pytest.skip.Exception)


@pytest.mark.parametrize("rule", RULES)
def test_a_sound_sink_passes(rule: str, tmp_path: Path) -> None:
    call(rule, LocalSink, tmp_path)


def test_every_rule_has_a_sink_that_breaks_it() -> None:
    assert sorted(BREAKS) == RULES
