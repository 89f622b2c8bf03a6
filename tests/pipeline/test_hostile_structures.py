"""A pipeline that somebody made up is compared at a cost in proportion to its size."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.compatibility import compare_structures
from seamark.pipeline.declaration.recorded_structure import require_readable
from seamark.pipeline.declaration.upgrade_plan import plan_upgrade
from seamark.spark.plans.computation import FORM
from tests.support.counted_lines import lines_run

Structure = dict[str, Any]
FEW, MANY = 50, 400

COUNT: Structure = {"operator": "aggregation", "keys": ["k"], "functions": ["count(1)"]}
OURS: Structure = {
    "name": "shop",
    "form": FORM,
    "output_mode": "append",
    "state_partitions": 4,
    "sources": {"orders": {"format": "rate", "options": {}}},
    "operators": ["bars: aggregation"],
    "sinks": {"bars": {"kind": "files", "target": "/bars", "options": {}, "columns": []}},
    "computes": {"bars": [{**COUNT, "watermarks": [], "computation": "4.0:ab"}]},
    "shares": {},
}


def watermarks(count: int) -> Structure:
    marks = [{"operator": "watermark", "of": f"c{n}", "delay": "1 second"} for n in range(count)]
    return {"computes": {"bars": [COUNT, *marks]}}


def operators(count: int) -> Structure:
    joins = [{"operator": "join"}] * count
    return {"operators": ["bars: join"] * count, "computes": {"bars": joins}}


def branches(count: int) -> Structure:
    return {
        "operators": [f"o{n}: aggregation" for n in range(count)],
        "shares": {f"s{n}": "bars" for n in range(count)},
    }


@pytest.mark.parametrize("made", [watermarks, operators, branches])
def test_a_structure_is_compared_in_time_that_grows_with_its_size(
    made: Callable[[int], Structure],
) -> None:
    def lines(count: int) -> int:
        old = copy.deepcopy(OURS | made(count))

        def work() -> None:
            compare_structures(old, OURS, "strict")
            plan_upgrade(old, OURS)

        return lines_run(work)

    assert lines(MANY) < 2 * lines(FEW) * MANY / FEW


def test_the_name_of_an_operator_is_not_repeated_for_each_of_its_parts() -> None:
    odd = COUNT | {f"part{n}": n for n in range(100)} | {"operator": "x" * 10_000}
    plan = plan_upgrade(OURS | {"computes": {"bars": [odd]}}, OURS)
    assert sum(len(row.text) for row in plan.rows) < 20_000


@pytest.mark.parametrize(
    "odd",
    [
        {"watermarks": 3},
        {"watermarks": [{}]},
        {"computation": {}},
        {"order": [0] * 1000, "functions": ["x" * 1000]},
    ],
)
def test_what_an_operator_cannot_have_is_damage(odd: Structure) -> None:
    recorded = OURS | {"computes": {"bars": [COUNT | odd]}}
    checkpoint = CheckpointManifest.new(1, epoch=1).with_extra(structure=recorded)
    with pytest.raises(DamageError, match="does not say in a known way"):
        require_readable(checkpoint)
