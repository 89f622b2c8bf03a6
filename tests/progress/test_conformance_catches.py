"""The conformance suite is worth something: each rule catches who breaks it."""

from __future__ import annotations

import inspect
import itertools
from contextlib import ExitStack
from typing import Any

import pytest

from seamark.progress import Session, SourceCheckpointStore
from seamark.progress import store as store_module
from seamark.testing import ProgressSuite
from tests.progress.support import broken_sessions, broken_stores  # noqa: F401 - noted in BREAKS
from tests.progress.support.broken_ledgers import BREAKS, SoundLedger

RULES = sorted(name for name in dir(ProgressSuite) if name.startswith("test_"))
CASES = [(rule, broken) for rule, every in BREAKS.items() for broken in every]


def call(rule: str, kind: type, arguments: dict[str, Any]) -> None:
    """Run one test of the suite over a ledger, a store or sessions of this kind."""
    ledger = kind() if issubclass(kind, SoundLedger) else SoundLedger()
    opened = kind if issubclass(kind, SourceCheckpointStore) else SourceCheckpointStore
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        if issubclass(kind, Session):
            patch.setattr(store_module, "Session", kind)

        def open_store(*, read_only: bool = False) -> SourceCheckpointStore:
            found: SourceCheckpointStore = opened(ledger, read_only=read_only)
            stack.callback(found.close)
            return found

        test = getattr(ProgressSuite(), rule)
        wanted = inspect.signature(test).parameters
        fixtures: dict[str, Any] = {"open_store": open_store, **arguments}
        for name, read_only in (("store", False), ("reader", True)):
            if name in wanted:
                fixtures[name] = open_store(read_only=read_only)
        test(**{name: fixtures[name] for name in wanted})


def call_with_all(rule: str, kind: type) -> None:
    """Run it with all arguments that it is parametrized by."""
    marks = getattr(getattr(ProgressSuite, rule), "pytestmark", [])
    choices = [[{mark.args[0]: value} for value in mark.args[1]] for mark in marks]
    for chosen in itertools.product(*choices):
        call(rule, kind, {name: value for each in chosen for name, value in each.items()})


@pytest.mark.parametrize(
    ("rule", "broken"), CASES, ids=[f"{kind.__name__}-{rule}" for rule, kind in CASES]
)
def test_a_broken_store_is_caught_by_its_rule(rule: str, broken: type) -> None:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - a failed test, whatever it raises
        call_with_all(rule, broken)
    assert not isinstance(caught.value, TypeError | AttributeError | NameError | KeyError)
    assert not isinstance(caught.value, pytest.skip.Exception)


@pytest.mark.parametrize("rule", RULES)
def test_a_sound_store_passes(rule: str) -> None:
    call_with_all(rule, SoundLedger)


def test_every_rule_has_a_store_that_breaks_it() -> None:
    assert sorted(BREAKS) == RULES
