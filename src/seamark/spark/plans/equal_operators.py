"""Operators of one output that compute the same: what distinguishes each from the others.

Spark knows operators by their order alone. When two of them are written in another order, each
would go on from the state of the other. So each is described by the rows that it reads. Where that
is not seen (tables in memory, Python functions of one name), by what the output makes of its rows.
Operators that are the same to Catalyst may change places.

Tests: ``tests/spark/test_equal_operators.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from seamark.spark.plans.definitions import shortened
from seamark.spark.plans.subtrees import SAME_ROWS, NameOf, Subtrees
from seamark.spark.plans.trees import class_name, each

INPUT: Final = "input"
OUTPUT: Final = "output"
TOLD_APART: Final = "told apart"
"""Parts of a description that only equal operators have; the last where nothing distinguishes."""


class Place(NamedTuple):
    """A stateful operator in a plan."""

    number: int
    """Of its node, parents first."""
    node: Any
    operator: dict[str, Any]
    """Its description."""


def tell_equal_apart(
    plan: Any,
    places: Sequence[Place],
    alone: Callable[[Place], Any],
    name_of: NameOf,
    table_of: NameOf,
) -> None:
    """Describe further those that are equal.

    ``alone`` describes one without regard to the rest of the plan: other descriptions number tables
    and streams by their order in the plan.
    """
    for equal in _groups(places, {place.number: alone(place) for place in places}):
        inputs = {p.number: Subtrees(p.node, name_of, table_of).rows_below() for p in equal}
        for place in equal:
            place.operator[INPUT] = shortened(inputs[place.number])
        for unseen in _groups(equal, inputs):
            ways = _ways_up(plan, unseen, name_of, table_of)
            for place in unseen:
                place.operator[OUTPUT] = shortened(ways[place.number] or "as it is")
            for place in (place for alike in _groups(unseen, ways) for place in alike):
                place.operator[TOLD_APART] = "no"


def _groups(places: Sequence[Place], keys: Mapping[int, Any]) -> Iterator[list[Place]]:
    """Several with an equal key, by their numbers, that are not the same."""
    groups: dict[str, list[Place]] = {}
    for place in places:
        groups.setdefault(json.dumps(keys[place.number], sort_keys=True), []).append(place)
    for group in groups.values():
        if any(not _is_same(group[0].node, place.node) for place in group[1:]):
            yield group


def _is_same(one: Any, other: Any) -> bool:
    """Whether two operators have the same state."""
    return bool(one.sameResult(other)) or _drops_the_same(one, other)


def _drops_the_same(one: Any, other: Any) -> bool:
    """Whether two deduplications are by the same columns of the same rows: they keep only these."""
    if not class_name(one) == class_name(other) == "Deduplicate":
        return False
    rows, others = _rows_of(one), _rows_of(other)
    return bool(rows.sameResult(others)) and all(
        below.outputSet().contains(key)
        for node, below in ((one, rows), (other, others))
        for key in each(node.keys())
    )


def _rows_of(node: Any) -> Any:
    """The rows that a node reads, before columns are chosen of them."""
    below = node.child()
    while class_name(below) in SAME_ROWS:
        below = below.children().head()
    return below


def _ways_up(
    plan: Any, places: Sequence[Place], name_of: NameOf, table_of: NameOf
) -> dict[int, str]:
    """By the number of each operator: what is made of its rows before they meet the others'."""
    ancestors = list(_ancestors(plan))
    paths = {place.number: ancestors[place.number] for place in places}
    turns = [[turn for _, turn in path] for path in paths.values()]
    common = next(
        (n for n, several in enumerate(zip(*turns, strict=False)) if len(set(several)) > 1),
        min(map(len, turns)),
    )
    ways = {}
    for number, path in paths.items():
        nodes = [node for node, _ in path[common + 1 :]]
        ways[number] = Subtrees(nodes[0], name_of, table_of).way_up(nodes) if nodes else ""
    return ways


def _ancestors(
    plan: Any, above: tuple[tuple[Any, int], ...] = ()
) -> Iterator[tuple[tuple[Any, int], ...]]:
    """For each node, parents first: the nodes above it, each with the child that leads to it."""
    yield above
    for turn, child in enumerate(each(plan.children())):
        yield from _ancestors(child, (*above, (plan, turn)))
