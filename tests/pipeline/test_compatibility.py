"""Whether a changed pipeline may go on: a pure decision over two structures."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.compatibility import (
    Compatibility,
    check_checkpoint,
    compare_structures,
)
from seamark.pipeline.declaration.settings import Policy
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.declaration.upgrade_plan import plan_upgrade, upgrade_table
from seamark.spark.plans.computation import FORM

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
        (BASE, Compatibility.SAME, Compatibility.SAME),
        (ADDED_SINK, Compatibility.GOES_ON, Compatibility.GOES_ON),
        (REMOVED_SINK, Compatibility.REFUSED, Compatibility.GOES_ON),
        (MOVED_SINK, Compatibility.REFUSED, Compatibility.GOES_ON),
        (ADDED_SOURCE, Compatibility.REFUSED, Compatibility.REFUSED),
        (OTHER_PARTITIONS, Compatibility.REFUSED, Compatibility.REFUSED),
        (OTHER_OPERATORS, Compatibility.REFUSED, Compatibility.REFUSED),
        (OTHER_MODE, Compatibility.REFUSED, Compatibility.REFUSED),
    ],
)
def test_each_policy_decides_each_change(
    new: dict[str, Any], strict: Compatibility, warn: Compatibility
) -> None:
    assert compare_structures(BASE, new, "strict").fit is strict
    assert compare_structures(BASE, new, "warn").fit is warn
    reset = compare_structures(BASE, new, "auto_reset").fit
    assert reset is (strict if strict is not Compatibility.REFUSED else Compatibility.RESET)


@pytest.mark.parametrize("policy", ["strict", "warn", "auto_reset"])
def test_a_first_start_has_nothing_to_compare_with(policy: Policy) -> None:
    assert compare_structures(None, BASE, policy).fit is Compatibility.SAME


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
    verdict = compare_structures(BASE, new, "strict")
    assert any(words in change for change in verdict.changes)
    assert "auto_reset" in verdict.hint


def test_an_added_sink_beside_another_change_does_not_slip_through() -> None:
    both = copy.deepcopy(ADDED_SINK)
    both["sinks"]["bars"]["target"] = "/elsewhere"
    assert compare_structures(BASE, both, "strict").fit is Compatibility.REFUSED


ODD: list[Any] = [None, [[]], {"bars": 3}]
OPERATOR: dict[str, Any] = {"operator": "aggregation", "keys": ["k"], "functions": ["count(1)"]}
ODD_COMPUTES: list[Any] = [3, [3], [{}], [{**OPERATOR, "keys": 3}]]


@pytest.mark.parametrize("policy", ["strict", "warn", "auto_reset", "evolve"])
@pytest.mark.parametrize(
    ("part", "odd"),
    [
        *((part, odd) for part in BASE if part != "name" for odd in ODD),
        *(("computes", {"bars": odd}) for odd in ODD_COMPUTES),
        ("computes", {"bars": [{**OPERATOR, "state": []}]}),
        ("shares", {"bars": 3}),
        ("reads", {"bars": [{}]}),
    ],
)
def test_a_structure_that_cannot_be_read_is_damage(part: str, odd: Any, policy: Policy) -> None:
    recorded = {**BASE, "form": FORM, part: odd}
    checkpoint = CheckpointManifest.new(1, epoch=1).with_extra(structure=recorded)
    identity = PipelineIdentity(name="trades", structure=ADDED_SINK, leaves=("trades",))
    with pytest.raises(DamageError, match="checkpoint 1 does not say in a known way"):
        check_checkpoint(checkpoint, identity, policy)


@pytest.mark.parametrize("part", sorted(BASE.keys() - {"name"}))
def test_a_structure_that_lacks_a_part_is_damage(part: str) -> None:
    recorded = {key: value for key, value in BASE.items() if key != part}
    checkpoint = CheckpointManifest.new(1, epoch=1).with_extra(structure=recorded)
    identity = PipelineIdentity(name="trades", structure=BASE, leaves=("trades",))
    with pytest.raises(DamageError, match="checkpoint 1 does not say in a known way") as damage:
        check_checkpoint(checkpoint, identity, "auto_reset")
    assert "roll back to an earlier" in str(damage.value)


def test_another_ledger_of_a_sink_is_a_change_where_the_old_one_is_recorded() -> None:
    new = changed("sinks.bars.options", {"ledger": "b"})
    assert compare_structures(BASE, new, "strict").fit is Compatibility.SAME
    assert "ledger" not in upgrade_table(plan_upgrade(BASE, new))
    old = changed("sinks.bars.options", {"ledger": "a"})
    verdict = compare_structures(old, new, "strict")
    assert verdict.fit is Compatibility.REFUSED
    assert "ledger" in str(verdict.changes)
    assert "ledger a → b" in upgrade_table(plan_upgrade(old, new))


@pytest.mark.parametrize("is_stateful", [False, True])
def test_files_that_are_parsed_in_another_way_are_a_change(*, is_stateful: bool) -> None:
    base = copy.deepcopy(BASE)
    base["operators"] = BASE["operators"] if is_stateful else []
    old, new, unrecorded = (copy.deepcopy(base) for _ in range(3))
    old["sources"]["trades"]["parsing"] = {"options": {"sep": ";"}, "columns": ["a", "b"]}
    new["sources"]["trades"]["parsing"] = {"options": {"sep": ","}, "columns": ["a", "b", "c"]}
    found = compare_structures(old, new, "strict")
    assert found.fit is Compatibility.REFUSED
    assert found.changes == ["source 'trades': option sep ';' → ','"]
    assert compare_structures(old, new, "warn").fit is Compatibility.GOES_ON
    assert compare_structures(unrecorded, new, "strict").fit is Compatibility.SAME
    new["sources"]["trades"]["parsing"]["options"] = {"sep": ";"}
    longer = compare_structures(old, new, "strict")
    assert (longer.fit, longer.changes) == (Compatibility.GOES_ON, [])
