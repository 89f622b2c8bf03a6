"""Comparing the plan that Spark runs with the declared one, on plans made by hand."""

from __future__ import annotations

import pytest

from seamark.errors import RefusedError
from seamark.spark.plans.executed_plan import (
    EXCLUDED_RULES,
    PlanNode,
    PlanOperator,
    differences,
    lowest_marked,
    mixes_state,
    require_declared,
    require_watermarks,
    settings_for,
)

BARS = PlanOperator("aggregation", has_watermark=True)


def node(name: str, *children: PlanNode, operator: int | None = None) -> PlanNode:
    return PlanNode(name, children, operator)


def marked() -> PlanNode:
    return node("Exchange", node("EventTimeWatermark", node("Scan json")))


def bars(number: int, below: PlanNode | None = None) -> PlanNode:
    return node("StateStoreSave", node("StateStoreRestore", below or marked()), operator=number)


def test_a_plan_that_runs_what_was_declared_is_accepted() -> None:
    require_declared(node("Union", bars(0), bars(1)), [BARS, BARS], epoch=1)
    require_declared(node("Project", node("Scan json")), [], epoch=1)


def test_an_operator_that_reads_a_reused_stream_is_refused_with_what_where_and_what_next() -> None:
    reused = bars(1, node("ReusedExchange", marked()))
    with pytest.raises(RefusedError) as refused:
        require_declared(node("Union", bars(0), reused), [BARS, BARS], epoch=7)
    text = str(refused.value)
    assert "epoch 7" in text
    assert "operator 1" in text
    assert "spark.sql.exchange.reuse" in text


def test_an_operator_behind_a_reused_exchange_does_not_count_as_run() -> None:
    chained = bars(1, node("Exchange", node("Project", bars(0))))
    hidden = bars(2, node("ReusedExchange", bars(0)))
    assert differences(node("Union", chained, hidden), [BARS, BARS, BARS])


def test_a_reused_exchange_of_a_table_is_no_fault() -> None:
    table = node("BroadcastHashJoin", marked(), node("ReusedExchange", node("Scan parquet")))
    assert differences(bars(0, table), [BARS]) == []


def test_an_operator_that_is_missing_added_or_without_its_watermark_is_told() -> None:
    assert differences(bars(0), [BARS, BARS]) == [
        "declared and not run: aggregation with a watermark"
    ]
    assert differences(node("Union", bars(0), bars(1)), []) == [
        "run and not declared: 2 × aggregation with a watermark"
    ]
    assert differences(bars(0, node("Scan json")), [BARS]) == [
        "declared and not run: aggregation with a watermark",
        "run and not declared: aggregation without a watermark",
    ]


def test_only_operators_below_all_others_must_have_the_watermark_of_the_epoch() -> None:
    assert lowest_marked(bars(1, node("Exchange", bars(0)))) == {0}
    beside = node("StreamingSymmetricHashJoin", marked(), node("Exchange", bars(2)), operator=3)
    assert lowest_marked(beside) == {2}
    assert lowest_marked(bars(0, node("Scan json"))) == frozenset()
    assert lowest_marked(node("StreamingGlobalLimit", marked(), operator=0)) == frozenset()


def test_only_state_that_one_task_would_write_counts_as_mixed() -> None:
    once = node("StreamingDeduplicate", marked(), operator=1)
    assert mixes_state(node("Union", bars(0), node("Project", once)))
    assert not mixes_state(node("Union", bars(0), bars(1)))
    assert not mixes_state(bars(0, node("Exchange", once))), "that is another stage"
    assert mixes_state(bars(0, once)), "both have the same partitions"
    assert not mixes_state(once)


def test_a_watermark_that_is_declared_and_not_in_the_plan_is_refused() -> None:
    plan = bars(0, node("Exchange", PlanNode("EventTimeWatermark", mark="a")))
    require_watermarks(plan, {"a": "t of orders"}, epoch=1)
    require_watermarks(node("Scan json"), {"a": "t of orders"}, epoch=1)
    with pytest.raises(RefusedError, match="never move") as refused:
        require_watermarks(plan, {"a": "t of orders", "b": "pt of payments"}, epoch=1)
    assert "the watermark on pt of payments" in str(refused.value)


def test_what_one_batch_could_lack_is_protected_from_the_rules_that_remove_it() -> None:
    always = {
        "spark.sql.inMemoryColumnarStorage.partitionPruning": "false",
        "spark.sql.parser.quotedRegexColumnNames": "false",
    }
    assert settings_for([], [], "") == always
    assert settings_for([BARS], [], "x.Rule") == {**always, "spark.sql.exchange.reuse": "false"}
    rules = settings_for([BARS], ["GlobalLimit", "Sort"], " x.Rule , ")[EXCLUDED_RULES].split(",")
    assert rules[0] == "x.Rule"
    names = {rule.rpartition(".")[2] for rule in rules[1:]}
    assert names == {
        "EliminateLimits",
        "ConvertToLocalRelation",
        "EliminateSorts",
        "OptimizeOneRowPlan",
    }
