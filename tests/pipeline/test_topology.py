"""Whether a changed pipeline may go on: a pure decision over two structures."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from seamark.pipeline.declaration.compatibility import Fit, compare
from seamark.pipeline.declaration.settings import Policy

BASE: dict[str, Any] = {
    "name": "trades",
    "output_mode": "append",
    "state_partitions": 4,
    "sources": {"trades": {"format": "rate", "options": {}}},
    "sinks": {
        "bars": {"kind": "files", "target": "/data/bars", "options": {}, "columns": [["k", "int"]]},
        "large": {"kind": "files", "target": "/data/large", "options": {}, "columns": []},
    },
    "operators": ["aggregation"],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The structure with one member set, or removed for None."""
    made = copy.deepcopy(BASE)
    *way, last = path.split(".")
    at = made
    for name in way:
        at = at[name]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return made


ADDED_SINK = changed("sinks.more", {"kind": "memory", "target": "", "options": {}, "columns": []})
REMOVED_SINK = changed("sinks.large", None)
MOVED_SINK = changed("sinks.bars.target", "/elsewhere")
ADDED_SOURCE = changed("sources.quotes", {"format": "kafka", "options": {}})
OTHER_PARTITIONS = changed("state_partitions", 8)
OTHER_OPERATORS = changed("operators", ["aggregation", "deduplication"])
OTHER_MODE = changed("output_mode", "update")


@pytest.mark.parametrize(
    ("new", "strict", "warn"),
    [
        (BASE, Fit.SAME, Fit.SAME),
        (ADDED_SINK, Fit.GOES_ON, Fit.GOES_ON),
        (REMOVED_SINK, Fit.REFUSED, Fit.GOES_ON),
        (MOVED_SINK, Fit.REFUSED, Fit.GOES_ON),
        (ADDED_SOURCE, Fit.REFUSED, Fit.REFUSED),
        (OTHER_PARTITIONS, Fit.REFUSED, Fit.REFUSED),
        (OTHER_OPERATORS, Fit.REFUSED, Fit.REFUSED),
        (OTHER_MODE, Fit.REFUSED, Fit.REFUSED),
    ],
)
def test_each_policy_decides_each_change(new: dict[str, Any], strict: Fit, warn: Fit) -> None:
    assert compare(BASE, new, "strict").fit is strict
    assert compare(BASE, new, "warn").fit is warn
    reset = compare(BASE, new, "auto_reset").fit
    assert reset is (strict if strict is not Fit.REFUSED else Fit.RESET)


@pytest.mark.parametrize("policy", ["strict", "warn", "auto_reset"])
def test_a_first_start_has_nothing_to_compare_with(policy: Policy) -> None:
    assert compare(None, BASE, policy).fit is Fit.SAME


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (REMOVED_SINK, "large"),
        (MOVED_SINK, "/elsewhere"),
        (ADDED_SOURCE, "quotes"),
        (OTHER_PARTITIONS, "8"),
    ],
)
def test_a_refusal_names_what_changed_and_a_way_out(new: dict[str, Any], words: str) -> None:
    verdict = compare(BASE, new, "strict")
    assert any(words in change for change in verdict.changes)
    assert "auto_reset" in verdict.hint


def test_an_added_sink_beside_another_change_does_not_slip_through() -> None:
    both = copy.deepcopy(ADDED_SINK)
    both["sinks"]["bars"]["target"] = "/elsewhere"
    assert compare(BASE, both, "strict").fit is Fit.REFUSED
