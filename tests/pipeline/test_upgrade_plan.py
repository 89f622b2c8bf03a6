"""What becomes of each part of a changed pipeline: decided from two structures alone."""

from __future__ import annotations

from typing import Any

import pytest

from seamark.errors import InvalidInputError
from seamark.pipeline.declaration.operator_matching import Fate
from seamark.pipeline.declaration.settings import PipelineSettings
from seamark.pipeline.declaration.upgrade_plan import (
    UpgradeOptions,
    UpgradePlan,
    plan_upgrade,
    upgrade_table,
)

WINDOW = {"window": "time", "of": "orders.t", "length": "10 seconds", "slide": "10 seconds"}
BARS: dict[str, Any] = {
    "operator": "aggregation",
    "keys": [WINDOW, "orders.k"],
    "functions": ["count(1)"],
    "state": {"keys": "struct, int", "values": "bigint"},
}
MORE: dict[str, Any] = {
    "functions": ["count(1)", "max(orders.v)"],
    "state": {"keys": "struct, int", "values": "bigint, int"},
}
ONCE: dict[str, Any] = {
    "operator": "deduplication",
    "keys": ["orders.id"],
    "state": {"keys": "int"},
}
MARK: dict[str, Any] = {"operator": "watermark", "of": "orders.t", "delay": "10 seconds"}


def structure(
    outputs: dict[str, list[dict[str, Any]]],
    *,
    shares: dict[str, str] | None = None,
    sources: tuple[str, ...] = ("orders",),
    **other: Any,
) -> dict[str, Any]:
    """A structure with these outputs; each has its operators, parents first."""
    operators = [
        f"{name}: {operator['operator']}"
        for name, of_output in outputs.items()
        for operator in of_output
        if operator["operator"] != "watermark"
    ]
    names = [*outputs, *(shares or {})]
    return {
        "name": "shop",
        "output_mode": "append",
        "state_partitions": 4 if operators else 0,
        "sources": {name: {"format": "json", "options": {"path": name}} for name in sources},
        "sinks": {
            name: {"kind": "files", "target": f"/{name}", "options": {}, "columns": [["k", "int"]]}
            for name in names
        },
        "operators": operators,
        "form": 1,
        "computes": {name: of_output for name, of_output in outputs.items() if of_output},
        "shares": shares or {},
        **other,
    }


def fates(plan: UpgradePlan, what: str = "operator") -> dict[str, Fate]:
    return {row.name: row.fate for row in plan.rows if row.what == what}


def why(plan: UpgradePlan, name: str) -> str:
    return "; ".join(row.why for row in plan.rows if row.name == name)


def test_a_new_output_begins_empty_and_moves_the_numbers_of_the_others() -> None:
    plan = plan_upgrade(structure({"bars": [BARS]}), structure({"once": [ONCE], "bars": [BARS]}))
    assert fates(plan) == {"once/deduplication": Fate.EMPTY, "bars/aggregation": Fate.CARRIED}
    assert (plan.origins, plan.empty) == ({1: 0}, (0,))
    assert fates(plan, "sink") == {"once": Fate.NEW, "bars": Fate.CARRIED}


def test_a_removed_output_is_dropped_and_the_rest_goes_on() -> None:
    plan = plan_upgrade(structure({"once": [ONCE], "bars": [BARS]}), structure({"bars": [BARS]}))
    assert fates(plan) == {"bars/aggregation": Fate.CARRIED, "once/deduplication": Fate.DROPPED}
    assert plan.origins == {0: 1}
    assert fates(plan, "sink")["once"] is Fate.DROPPED


def test_outputs_in_another_order_keep_their_own_state() -> None:
    old, new = {"once": [ONCE], "bars": [BARS]}, {"bars": [BARS], "once": [ONCE]}
    assert plan_upgrade(structure(old), structure(new)).origins == {0: 1, 1: 0}


def test_a_renamed_output_keeps_its_state_when_its_new_name_is_given() -> None:
    old, new = structure({"bars": [BARS]}), structure({"candles": [BARS]})
    assert fates(plan_upgrade(old, new)) == {
        "candles/aggregation": Fate.EMPTY,
        "bars/aggregation": Fate.DROPPED,
    }
    plan = plan_upgrade(old, new, UpgradeOptions({"bars": "candles"}))
    assert plan.origins == {0: 0}
    assert plan.sinks == {}  # its target is another one


def test_a_renamed_output_that_keeps_its_target_goes_on_there() -> None:
    old, new = structure({"bars": [BARS]}), structure({"candles": [BARS]})
    new["sinks"]["candles"]["target"] = "/bars"
    plan = plan_upgrade(old, new, UpgradeOptions({"bars": "candles"}))
    assert plan.sinks == {"candles": "bars"}
    assert "it was bars" in why(plan, "candles")


def test_a_name_that_nothing_has_is_refused() -> None:
    same = structure({"bars": [BARS]})
    assert plan_upgrade(same, same, UpgradeOptions({"candles": "bars"})).refused
    (row,) = plan_upgrade(same, same, UpgradeOptions(begin_empty=["bars/limit"])).refused
    assert "There are: bars/aggregation" in row.hint


def test_a_rename_to_a_name_that_no_output_has_is_refused_and_no_state_is_dropped_for_it() -> None:
    old, new = structure({"bars": [BARS]}), structure({"candles": [BARS]})
    plan = plan_upgrade(old, new, UpgradeOptions({"bars": "cnadles"}))
    assert [row.name for row in plan.refused] == ["cnadles"]
    assert "It has: candles." in plan.refused[0].hint
    two = structure({"bars": [BARS], "more": [BARS]})
    plan = plan_upgrade(two, new, UpgradeOptions({"bars": "candles", "more": "candles"}))
    assert {row.name for row in plan.refused} == {"candles"}


def test_an_output_that_shares_state_cannot_begin_empty_by_itself() -> None:
    shared = structure({"bars": [BARS]}, shares={"more": "bars"})
    plan = plan_upgrade(structure({"bars": [BARS]}), shared, UpgradeOptions(begin_empty=["more"]))
    assert [row.name for row in plan.refused] == ["more"]


def test_an_operator_that_comes_into_an_output_begins_empty_only_when_that_is_asked_for() -> None:
    old, new = structure({"bars": [BARS]}), structure({"bars": [BARS, ONCE]})
    (row,) = plan_upgrade(old, new).refused
    assert row.name == "bars/deduplication"
    assert "begin_empty=['bars/deduplication']" in row.hint
    plan = plan_upgrade(old, new, UpgradeOptions(begin_empty=["bars/deduplication"]))
    assert not plan.refused
    assert (plan.origins, plan.empty) == ({0: 0}, (1,))


def test_an_operator_that_leaves_an_output_is_dropped_and_the_other_goes_on() -> None:
    plan = plan_upgrade(structure({"bars": [BARS, ONCE]}), structure({"bars": [BARS]}))
    assert fates(plan) == {"bars/aggregation": Fate.CARRIED, "bars/deduplication": Fate.DROPPED}


def test_which_of_two_equal_operators_has_left_is_not_guessed() -> None:
    twice, once = structure({"bars": [ONCE, ONCE]}), structure({"bars": [ONCE]})
    assert [row.name for row in plan_upgrade(twice, once).refused] == ["bars/deduplication"]
    other = {**ONCE, "keys": ["orders.k"]}
    plan = plan_upgrade(structure({"bars": [other, ONCE]}), once)
    assert plan.origins == {0: 1}


def test_two_operators_of_a_kind_that_change_places_keep_their_own_state() -> None:
    longer = {**BARS, "keys": [{**WINDOW, "length": "30 seconds"}, "orders.k"]}
    old, new = structure({"bars": [BARS, longer]}), structure({"bars": [longer, BARS]})
    plan = plan_upgrade(old, new)
    assert plan.origins == {0: 1, 1: 0}
    assert not plan.refused


def test_which_of_two_changed_operators_of_a_kind_is_which_is_not_guessed() -> None:
    def bars(*lengths: int) -> dict[str, Any]:
        windows = [{**WINDOW, "length": f"{length} seconds"} for length in lengths]
        return structure({"bars": [{**BARS, "keys": [window, "orders.k"]} for window in windows]})

    assert plan_upgrade(bars(10, 20), bars(10, 30)).origins == {0: 0, 1: 1}
    plan = plan_upgrade(bars(10, 20), bars(30, 40))
    assert [row.name for row in plan.refused] == ["bars/aggregation", "bars/aggregation 2"]
    assert "changed at once" in why(plan, "bars/aggregation")
    assert plan.origins == {}


def test_equal_operators_go_together_by_what_distinguishes_them_and_never_by_their_order() -> None:
    def bars(*inputs: str, **parts: str) -> dict[str, Any]:
        return structure({"bars": [{**BARS, "input": text, **parts} for text in inputs]})

    assert plan_upgrade(bars("a", "b"), bars("b", "a")).origins == {0: 1, 1: 0}
    alike = bars("a", "a", **{"told apart": "no"})
    plan = plan_upgrade(alike, alike)
    assert [row.name for row in plan.refused] == ["bars/aggregation", "bars/aggregation 2"]
    plan = plan_upgrade(structure({"bars": [BARS, BARS]}), bars("a", "b"))
    assert [row.name for row in plan.refused] == ["bars/aggregation", "bars/aggregation 2"]
    assert "does not say which state is whose" in why(plan, "bars/aggregation")
    assert plan.origins == {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"keys": [WINDOW, "orders.v"]}, "key orders.k → orders.v"),
        ({"functions": ["sum(orders.v)"]}, "count(1) → sum(orders.v)"),
        (MORE, "nothing is known of max(orders.v) for the rows that came before"),
        ({"state": {"keys": "struct, string", "values": "bigint"}}, "the keys in its state"),
    ],
)
def test_state_of_another_computation_is_refused_and_begins_empty_when_asked_for(
    change: dict[str, Any], words: str
) -> None:
    old, new = structure({"bars": [BARS]}), structure({"bars": [{**BARS, **change}]})
    (row,) = plan_upgrade(old, new).refused
    assert words in row.why
    for name in ("bars", "bars/aggregation"):
        plan = plan_upgrade(old, new, UpgradeOptions(begin_empty=[name]))
        assert (plan.refused, plan.empty, plan.origins) == ([], (0,), {})


def test_a_new_function_begins_empty_when_asked_for_and_the_others_go_on() -> None:
    old, new = structure({"bars": [BARS]}), structure({"bars": [{**BARS, **MORE}]})
    (row,) = plan_upgrade(old, new).refused
    assert "begin_empty=['bars/max(orders.v)']" in row.hint
    plan = plan_upgrade(old, new, UpgradeOptions(begin_empty=["bars/max(orders.v)"]))
    assert (plan.refused, plan.empty, plan.origins) == ([], (), {})
    assert plan.rewritten[0].new == ["max(orders.v)"]
    assert "max(orders.v) begins empty" in why(plan, "bars/aggregation")
    (wrong,) = plan_upgrade(old, new, UpgradeOptions(begin_empty=["bars/min(v)"])).refused[:1]
    assert "no such operator" in wrong.why


def test_a_function_that_is_removed_leaves_the_others_as_they_are() -> None:
    old, new = structure({"bars": [{**BARS, **MORE}]}), structure({"bars": [BARS]})
    plan = plan_upgrade(old, new)
    assert (plan.refused, plan.origins, plan.rewritten[0].gone) == ([], {}, ["max(orders.v)"])
    assert "max(orders.v) was removed" in why(plan, "bars/aggregation")
    # worded by another Spark, nothing tells which function is which
    assert plan_upgrade(old, new, same_spark=False).refused


def test_functions_of_sessions_and_all_functions_at_once_are_not_exchanged() -> None:
    session = {**BARS, "keys": [{"window": "session", "of": "orders.t", "gap": "1 minute"}]}
    plan = plan_upgrade(structure({"s": [session]}), structure({"s": [{**session, **MORE}]}))
    assert "the values in its state" in why(plan, "s/aggregation")
    other = {**BARS, "functions": ["sum(orders.v)"]}
    options = UpgradeOptions(begin_empty=["bars/sum(orders.v)"])
    plan = plan_upgrade(structure({"bars": [BARS]}), structure({"bars": [other]}), options)
    assert plan.refused


def test_a_changed_window_or_delay_goes_on_and_its_effect_is_said() -> None:
    longer = {**WINDOW, "length": "20 seconds", "slide": "20 seconds"}
    later = {**MARK, "delay": "30 seconds"}
    old = structure({"bars": [BARS, MARK]})
    new = structure({"bars": [{**BARS, "keys": [longer, "orders.k"]}, later]})
    plan = plan_upgrade(old, new)
    assert plan.origins == {0: 0}
    assert "window length 10 seconds → 20 seconds" in why(plan, "bars/aggregation")
    assert "windows that are open close as they are" in why(plan, "bars/aggregation")
    assert "10 seconds → " in why(plan, "bars")
    assert {row.name for row in plan.changes} == {"bars/aggregation", "bars"}


def test_a_watermark_that_moves_past_an_operator_is_told() -> None:
    plan = plan_upgrade(structure({"once": [ONCE, MARK]}), structure({"once": [MARK, ONCE]}))
    assert plan.origins == {0: 0}
    assert "is no longer below the deduplication" in why(plan, "once")


def test_a_column_by_which_an_operator_no_longer_forgets_is_told_and_its_state_goes_on() -> None:
    forgets, keeps = ({**ONCE, "forgets by": what} for what in ("key 1", "nothing"))
    plan = plan_upgrade(structure({"once": [forgets, MARK]}), structure({"once": [keeps, MARK]}))
    assert plan.origins == {0: 0}
    assert "forgets by key 1 → nothing" in why(plan, "once/deduplication")
    unrecorded = plan_upgrade(structure({"once": [ONCE]}), structure({"once": [forgets]}))
    assert unrecorded.origins == {0: 0}
    assert unrecorded.changes == []


def test_the_wording_of_another_spark_changes_nothing_by_itself() -> None:
    old = structure({"bars": [BARS]})
    new = structure({"bars": [{**BARS, "functions": ["count(ONE)"]}]})
    assert plan_upgrade(old, new).refused
    assert plan_upgrade(old, new, same_spark=False).origins == {0: 0}


def test_a_setting_that_decides_values_is_told_beside_another_change() -> None:
    name = "spark.sql.legacy.timeParserPolicy"
    old = structure({"bars": [BARS]}, settings={})
    new = structure({"bars": [BARS], "once": [ONCE]}, settings={name: "legacy"})
    plan = plan_upgrade(old, new)
    assert not plan.refused
    assert any(f"setting {name}: Spark's own → legacy" in row.text for row in plan.changes)


def test_sources_are_known_by_their_names() -> None:
    old = structure({"bars": [BARS]}, sources=("orders", "old"))
    new = structure({"bars": [BARS]}, sources=("new", "orders"))
    new["sources"]["orders"]["options"] = {"path": "elsewhere"}
    plan = plan_upgrade(old, new)
    assert fates(plan, "source") == {
        "new": Fate.NEW,
        "orders": Fate.CARRIED,
        "old": Fate.DROPPED,
    }
    assert why(plan, "orders") == "path orders → elsewhere"
    new["sources"]["orders"]["format"] = "kafka"
    assert [row.name for row in plan_upgrade(old, new).refused] == ["orders"]


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({"output_mode": "update"}, "output mode"),
        ({"form": 2}, "computations"),
    ],
)
def test_what_no_rearrangement_makes_fit_is_refused(other: dict[str, Any], name: str) -> None:
    plan = plan_upgrade(structure({"bars": [BARS]}), structure({"bars": [BARS]}, **other))
    assert [row.name for row in plan.refused] == [name]


def test_an_output_that_loses_the_one_it_shared_state_with_keeps_the_state() -> None:
    shared = structure({"bars": [BARS]}, shares={"copy": "bars"})
    plan = plan_upgrade(shared, structure({"copy": [BARS]}))
    assert plan.origins == {0: 0}
    assert fates(plan) == {"copy/aggregation": Fate.CARRIED}


def test_outputs_that_stop_sharing_state_each_go_on_from_it() -> None:
    shared = structure({"bars": [BARS]}, shares={"copy": "bars"})
    plan = plan_upgrade(shared, structure({"bars": [BARS], "copy": [BARS]}))
    assert plan.origins == {0: 0, 1: 0}
    assert Fate.DROPPED not in fates(plan).values()


def test_outputs_that_begin_to_share_state_go_on_from_that_of_the_first() -> None:
    apart = structure({"bars": [BARS], "copy": [BARS]})
    plan = plan_upgrade(apart, structure({"bars": [BARS]}, shares={"copy": "bars"}))
    assert plan.origins == {0: 0}
    assert fates(plan)["copy/aggregation"] is Fate.DROPPED


def test_the_table_has_a_line_for_each_part_and_says_what_to_do_instead() -> None:
    text = upgrade_table(plan_upgrade(structure({"a": [ONCE]}), structure({"a": [BARS]})))
    assert "operator  a/aggregation    refused" in text
    assert text.splitlines()[-1].startswith("begin_empty=['a/aggregation']")


def test_what_is_said_about_a_change_goes_with_evolve_only() -> None:
    with pytest.raises(InvalidInputError, match="policy='evolve'"):
        PipelineSettings(renames={"a": "b"})
    with pytest.raises(InvalidInputError, match="a list of names"):
        PipelineSettings(policy="evolve", begin_empty="bars")
    assert PipelineSettings(policy="evolve", begin_empty=["a"]).upgrade.begin_empty == ["a"]


def test_outputs_that_exchange_their_sources_do_not_go_on_from_state_of_other_rows() -> None:
    def shop(first: str, second: str, **other: Any) -> dict[str, Any]:
        outputs = {"first": [ONCE], "second": [ONCE]}
        reads = {"first": [first], "second": [second]}
        return structure(outputs, sources=("old", "new"), reads=reads, **other)

    plan = plan_upgrade(shop("old", "new"), shop("new", "old"))
    assert len(plan.refused) == 2
    assert "reads old → new" in why(plan, "first/deduplication")


def test_a_source_in_the_place_of_another_goes_on_with_its_state_and_that_is_said() -> None:
    old = structure({"once": [ONCE]}, sources=("orders",), reads={"once": ["orders"]})
    new = structure({"once": [ONCE]}, sources=("orders-2",), reads={"once": ["orders-2"]})
    plan = plan_upgrade(old, new)
    assert plan.origins == {0: 0}
    assert why(plan, "once/deduplication") == "reads orders → orders-2"
    both = structure({"once": [ONCE]}, sources=("orders", "b"), reads={"once": ["b", "orders"]})
    assert plan_upgrade(old, both).origins == {0: 0}


def test_the_name_of_a_renamed_output_is_not_given_to_a_new_one_at_once() -> None:
    old, new = structure({"bars": [BARS]}), structure({"all": [BARS], "bars": [BARS]})
    plan = plan_upgrade(old, new, UpgradeOptions(renames={"bars": "all"}))
    assert [row.name for row in plan.refused] == ["bars"]
    assert "both would go on from one state" in why(plan, "bars")


def test_outputs_may_exchange_their_names() -> None:
    old = structure({"bars": [BARS], "once": [ONCE]})
    new = structure({"bars": [ONCE], "once": [BARS]})
    plan = plan_upgrade(old, new, UpgradeOptions(renames={"bars": "once", "once": "bars"}))
    assert "both would go on" not in why(plan, "bars") + why(plan, "once")
    assert plan.origins == {0: 1, 1: 0}
