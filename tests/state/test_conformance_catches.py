"""The suite for state is worth something: each promise catches who breaks it."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from seamark.blobs.memory import MemoryBlobs
from seamark.state import StateStore
from tests.state.support.broken_states import BREAKS, Break
from tests.state.support.conformance.suite import StateConformance

CASES = [
    pytest.param(promise, change, id=f"{change.__name__}-{promise}")
    for promise, changes in BREAKS.items()
    for change in changes
]


def cases_of(promise: str) -> Iterator[dict[str, Any]]:
    """The arguments of every case of a promise."""
    test = getattr(StateConformance, promise)
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    for values in itertools.product(*(mark.args[1] for mark in marks)):
        yield {mark.args[0]: value for mark, value in zip(marks, values, strict=True)}


def call(promise: str) -> None:
    """Run one test of the suite, all its cases, on stores in memory."""
    for case in cases_of(promise):
        blobs = MemoryBlobs()

        def open_state(on: MemoryBlobs = blobs, **options: Any) -> StateStore:
            return StateStore(on, **options)

        test: Callable[..., None] = getattr(StateConformance(), promise)
        with pytest.MonkeyPatch.context() as patch:
            fixtures = {
                "blobs": blobs,
                "other_blobs": MemoryBlobs(),
                "open_state": open_state,
                "monkeypatch": patch,
                **case,
            }
            test(**{name: fixtures[name] for name in inspect.signature(test).parameters})


@pytest.mark.parametrize(("promise", "change"), CASES)
def test_a_broken_store_is_caught_by_its_promise(
    promise: str, change: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(monkeypatch)
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - a failed test, whatever it raises
        call(promise)
    wrong = (TypeError, AttributeError, NameError)
    assert not isinstance(caught.value, wrong), f"broken in the wrong way: {caught.value!r}"


@pytest.mark.parametrize("promise", BREAKS)
def test_a_healthy_store_passes(promise: str) -> None:
    call(promise)


def test_every_broken_promise_is_one() -> None:
    promises = {name for name in dir(StateConformance) if name.startswith("test_")}
    assert promises >= BREAKS.keys()
