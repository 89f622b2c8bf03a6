"""Changed computations are told in words, and told apart from what Spark may word anew. Pure."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from seamark.pipeline.declaration.compatibility import (
    Compatibility,
    CompatibilityCheck,
    compare_structures,
)
from seamark.pipeline.declaration.computed_changes import (
    computed_changes,
    operator_text,
    shape_change,
)
from seamark.spark.plans.computation import FORM

BARS: list[dict[str, Any]] = [
    {
        "operator": "aggregation",
        "keys": [{"window": "time", "of": "t", "length": "10 seconds", "slide": "10 seconds"}, "k"],
        "functions": ["count(1)", "sum(v)"],
        "state": {"keys": "struct<start:timestamp,end:timestamp>, int", "values": "bigint, bigint"},
    },
    {"operator": "watermark", "of": "t", "delay": "10 seconds"},
]
JOIN: list[dict[str, Any]] = [
    {"operator": "stream-stream join", "type": "inner", "condition": "(id = order)"}
]


def bars(number: int = 0, **parts: Any) -> list[dict[str, Any]]:
    made = copy.deepcopy(BARS)
    made[number].update(parts)
    return made


def window(**parts: str) -> list[dict[str, Any]]:
    made = copy.deepcopy(BARS)
    made[0]["keys"][0].update(parts)
    return made


def structure(
    computes: dict[str, Any] | None,
    form: int | None = 1,
    may_lose: dict[str, str] | None = None,
    **changed: Any,
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": "trades",
        "output_mode": "append",
        "state_partitions": 4,
        "sources": {"trades": {"format": "kafka", "options": {}, "may_lose": may_lose or {}}},
        "sinks": {"bars": {"kind": "files", "target": "/b", "options": {}, "columns": []}},
        "operators": ["bars: aggregation"],
        "form": form,
        "computes": computes,
    }
    if form is None:  # as they were before any of this was recorded
        del made["form"], made["computes"], made["sources"]["trades"]["may_lose"]
    return made | changed


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (window(length="20 seconds", slide="20 seconds"), "window length 10 seconds → 20 seconds"),
        (window(slide="5 seconds"), "window slide 10 seconds → 5 seconds"),
        (window(offset="3 seconds"), "window offset none → 3 seconds"),
        (window(of="u"), "window column t → u"),
        (bars(1, delay="1 minute"), "watermark delay 10 seconds → 1 minute"),
        (bars(1, of="u"), "watermark column t → u"),
        (bars(keys=[BARS[0]["keys"][0], "(k % 2)"]), "key k → (k % 2)"),
        (bars(functions=["count(1)", "sum(w)"]), "sum(v) → sum(w)"),
        (bars(functions=["count(1)"]), "sum(v) was removed"),
        (bars(functions=["count(1)", "sum(v)", "max(v)"]), "max(v) was added"),
        (
            bars(functions=["sum(v)", "count(1)"]),
            "functions (count(1), sum(v)) → (sum(v), count(1))",
        ),
        (BARS[:1], "watermark of t, 10 seconds was removed"),
        (
            BARS[::-1],
            "watermark of t, 10 seconds has moved: it is no longer below the aggregation",
        ),
    ],
)
def test_a_changed_computation_is_refused_in_words(new: list[dict[str, Any]], words: str) -> None:
    verdict = compare_structures(structure({"bars": BARS}), structure({"bars": new}), "strict")
    assert verdict.fit is Compatibility.REFUSED
    assert verdict.changes == [f"output 'bars': {words}"]
    assert "policy='warn'" in verdict.hint
    assert "mixed" in verdict.hint


@pytest.mark.parametrize("comes", [True, False])
def test_a_watermark_that_comes_or_goes_hides_no_change_of_the_state(comes: bool) -> None:
    before, after = ([], BARS[1:]) if comes else (BARS[1:], [])
    old = {"bars": [*BARS, *before]}
    longer = {"bars": [*window(length="20 seconds"), *after]}
    verdict = compare_structures(structure(old), structure(longer), "strict")
    assert verdict.fit is Compatibility.REFUSED
    times = "1 → 2" if comes else "2 → 1"
    assert verdict.changes == [
        f"output 'bars': watermark of t, 10 seconds: declared {times} times",
        "output 'bars': window length 10 seconds → 20 seconds",
    ]
    other = {"bars": [*bars(state={"keys": "int", "values": "bigint"}), *after]}
    assert "the keys in the state of its aggregation are" in shape_change(old, other)


def test_a_watermark_may_come_again_beside_an_operator_and_not_move_past_it() -> None:
    mark = BARS[1]
    old, beside, past = ({"bars": b} for b in (BARS, [mark, *BARS, mark], [mark, BARS[0]]))
    (change,) = computed_changes(old, beside)
    assert change.text == "output 'bars': watermark of t, 10 seconds: declared 1 → 3 times"
    goes_on = compare_structures(structure(old), structure(beside), "strict")
    assert goes_on.fit is Compatibility.GOES_ON
    assert [change.text for change in computed_changes(past, old)] == [
        "output 'bars': watermark of t, 10 seconds has moved: it is now below the aggregation"
    ]


def below(*watermarks: str) -> dict[str, Any]:
    """The operator with what is recorded of the watermarks below it."""
    return {**BARS[0], "watermarks": list(watermarks)}


def test_parts_of_a_union_may_change_places_with_the_watermarks_that_are_theirs() -> None:
    mark, text = BARS[1], "of t, 10 seconds"
    unwatched, watched = [below()], [below(text), mark]
    one_order = {"bars": [*unwatched, *watched]}
    verdict = compare_structures(
        structure({"bars": [*unwatched, mark]}), structure({"bars": [mark, *unwatched]}), "strict"
    )
    assert verdict.fit is not Compatibility.REFUSED
    assert verdict.changes == []
    lost = computed_changes(one_order, {"bars": [below(), below(), mark]})
    assert [change.text for change in lost] == [
        f"output 'bars': watermark {text} has moved: it is no longer below the aggregation"
    ]


def test_a_watermark_beside_an_operator_is_not_one_below_it() -> None:
    mark, text = BARS[1], "of t, 10 seconds"
    (change,) = computed_changes({"bars": [below(text), mark]}, {"bars": [below(), mark]})
    assert "no longer below the aggregation" in change.text
    assert not change.is_only_told
    # what an earlier Seamark has recorded does not say it
    assert computed_changes({"bars": [BARS[0], mark]}, {"bars": [below(), mark]}) == []


def test_an_operator_that_forgets_by_another_column_than_before_is_refused() -> None:
    marked, unmarked = (
        {"bars": [{**BARS[0], "forgets by": what}, BARS[1]]} for what in ("key 1", "nothing")
    )
    verdict = compare_structures(structure(marked), structure(unmarked), "strict")
    assert verdict.fit is Compatibility.REFUSED
    assert verdict.changes == ["output 'bars': aggregation forgets by key 1 → nothing"]
    unrecorded = compare_structures(structure({"bars": BARS}), structure(marked), "strict")
    assert (unrecorded.fit, unrecorded.changes) == (Compatibility.GOES_ON, [])


def test_what_differs_in_a_watermark_beside_its_words_is_noticed_wherever_it_stands() -> None:
    mark = BARS[1]
    other = {**mark, "time zone": "UTC"}
    for new in ([below(), other], [other, below()]):
        old = [below(), {**mark, "time zone": "Europe/Paris"}]
        (change,) = computed_changes({"bars": old}, {"bars": new})
        assert "Europe/Paris → UTC" in change.text


def digested(*digests: str, **changed: Any) -> dict[str, list[dict[str, Any]]]:
    return {"bars": [{**BARS[0], "computation": " ".join(digests), **changed}, BARS[1]]}


def test_a_change_that_only_a_digest_notices_is_told_and_refuses_nothing() -> None:
    old, new = digested("4.3.0:aa", "4.3.0:bb"), digested("4.3.0:aa", "4.3.0:cc")
    for policy in ("strict", "warn"):
        verdict = compare_structures(structure(old), structure(new), policy)
        assert verdict.fit is Compatibility.GOES_ON
        (told,) = verdict.changes
        assert told.startswith("output 'bars': the expressions of the aggregation")
    assert compare_structures(structure(old), structure(old), "strict").changes == []


def test_digests_are_compared_within_one_version_of_spark_and_where_words_are_equal() -> None:
    old = digested("4.3.0:aa")
    assert computed_changes(old, digested("4.3.1:bb")) == []
    assert computed_changes(old, {"bars": BARS}) == computed_changes({"bars": BARS}, old) == []
    (change,) = computed_changes(old, digested("4.3.0:bb", keys=["v"]))
    assert change.text.startswith("output 'bars': keys of the aggregation")


def test_a_changed_join_is_told_by_its_type_and_condition() -> None:
    new = [{**JOIN[0], "type": "left outer", "condition": "(id = other)"}]
    assert [change.text for change in computed_changes({"paid": JOIN}, {"paid": new})] == [
        "output 'paid': stream-stream join condition (id = order) → (id = other)",
        "output 'paid': stream-stream join type inner → left outer",
    ]


def test_a_join_that_spark_plans_with_other_keys_is_told_where_its_words_are_equal() -> None:
    old = [{**JOIN[0], "planned": "inner by k = paid", "filter": "none"}]
    new = [{**JOIN[0], "planned": "inner by v = paid", "filter": "none"}]
    assert [change.text for change in computed_changes({"paid": old}, {"paid": new})] == [
        "output 'paid': stream-stream join planned inner by k = paid → inner by v = paid"
    ]
    filtered = [{**new[0], "filter": "(v = paid)"}]
    assert [change.part for change in computed_changes({"paid": old}, {"paid": filtered})] == [
        "filter"
    ]
    assert computed_changes({"paid": JOIN}, {"paid": new}) == []  # from before it was recorded


def test_sides_of_a_join_that_change_places_are_told_and_other_rows_of_a_side_are_not() -> None:
    def join(*sides: Any) -> dict[str, list[dict[str, Any]]]:
        return {"paid": [{**JOIN[0], "sides": list(sides)}]}

    calls, puts, others = "filter (k = 1)", "filter (k = 2)", "filter (k = 3)"
    [change] = computed_changes(join(calls, puts), join(puts, calls))
    assert change.text == (
        "output 'paid': stream-stream join sides filter (k = 1) | filter (k = 2) → "
        "filter (k = 2) | filter (k = 1)"
    )
    assert not change.is_harmless
    assert computed_changes(join(calls, puts), join(calls, others)) == []
    assert computed_changes(join(calls, puts), {"paid": JOIN}) == []
    assert computed_changes(join({"a": 1}, 2), join(calls, puts)) == []


def test_warn_goes_on_with_other_computations_that_fit_the_state() -> None:
    verdict = compare_structures(
        structure({"bars": BARS}), structure({"bars": bars(1, delay="1 minute")}), "warn"
    )
    assert verdict.fit is Compatibility.GOES_ON
    assert verdict.changes == ["output 'bars': watermark delay 10 seconds → 1 minute"]


@pytest.mark.parametrize(
    ("part", "types"), [("values", "bigint, bigint, int"), ("keys", "string, int")]
)
def test_state_of_another_shape_is_refused_also_by_warn(part: str, types: str) -> None:
    new = bars(functions=["count(1)", "sum(v)", "max(v)"], state={**BARS[0]["state"], part: types})
    assert types in shape_change({"bars": BARS}, {"bars": new})
    for policy in ("strict", "warn"):
        verdict = compare_structures(structure({"bars": BARS}), structure({"bars": new}), policy)
        assert verdict.fit is Compatibility.REFUSED
        assert "Spark cannot load state of another shape" in verdict.hint
        assert f"output 'bars': the {part} in the state" in verdict.hint
        assert "auto_reset" in verdict.hint
    reset = compare_structures(structure({"bars": BARS}), structure({"bars": new}), "auto_reset")
    assert reset.fit is Compatibility.RESET


def test_another_spark_may_word_an_expression_anew_but_not_change_a_number() -> None:
    old = structure({"bars": BARS})
    reworded = structure({"bars": bars(functions=["count(1)", "sum(CAST(v AS BIGINT))"])})
    verdict = compare_structures(old, reworded, "strict", same_spark=False)
    assert verdict.fit is Compatibility.GOES_ON
    assert verdict.changes == ["output 'bars': sum(v) → sum(CAST(v AS BIGINT))"]
    longer = structure({"bars": window(length="20 seconds", slide="20 seconds")})
    assert compare_structures(old, longer, "strict", same_spark=False).fit is Compatibility.REFUSED


def test_a_checkpoint_from_before_computations_were_recorded_goes_on_with_a_word_about_it() -> None:
    old = structure(None, form=None)
    new = structure({"bars": BARS}, may_lose={"failOnDataLoss": "false"})
    verdict = compare_structures(old, new, "strict")
    assert verdict.fit is Compatibility.GOES_ON
    assert len(verdict.changes) == 1
    assert "does not say what its operators compute" in verdict.changes[0]
    stateless = structure({}, operators=[])
    assert (
        compare_structures(structure(None, form=None, operators=[]), stateless, "strict").changes
        == []
    )


@pytest.mark.parametrize("odd", [None, [], {"bars": {}}, {"bars": [1]}, {"bars": [{}]}])
def test_computations_of_another_form_do_not_stop_the_comparison(odd: Any) -> None:
    old = structure(odd, form=FORM + 1)
    assert compare_structures(old, structure({"bars": BARS}), "strict").fit is Compatibility.GOES_ON


def test_another_sink_may_bring_computations_of_its_own_without_state() -> None:
    sinks = structure({})["sinks"]
    new = structure({"bars": BARS, "late": [BARS[1]]}, sinks={**sinks, "late": sinks["bars"]})
    assert compare_structures(structure({"bars": BARS}), new, "strict").fit is Compatibility.GOES_ON


# options that may lose rows


def test_an_option_that_may_lose_rows_is_refused_when_it_is_added() -> None:
    old, new = structure({}), structure({}, may_lose={"failOnDataLoss": "false"})
    verdict = compare_structures(old, new, "strict")
    assert verdict.fit is Compatibility.REFUSED
    assert verdict.changes == [
        "source 'trades' may lose rows by failOnDataLoss=false: rows that the source has deleted "
        "are skipped"
    ]
    assert compare_structures(old, new, "warn").fit is Compatibility.GOES_ON


def test_an_option_that_may_lose_rows_may_be_taken_away() -> None:
    old, new = structure({}, may_lose={"failOnDataLoss": "false"}), structure({})
    verdict = compare_structures(old, new, "strict")
    assert verdict.fit is Compatibility.GOES_ON
    assert verdict.changes == ["source 'trades': failOnDataLoss is no longer false"]
    assert compare_structures(old, old, "strict").fit is Compatibility.SAME


def test_spark_4_0_and_newer_name_the_same_operator() -> None:
    old = structure({}, operators=["bars: transformWithStateInPandas"])
    assert compare_structures(
        old, structure({}, operators=["bars: transformWithState"]), "strict"
    ).fit is (Compatibility.GOES_ON)


def test_an_operator_is_told_in_one_line() -> None:
    words = operator_text(BARS[0])
    assert words == (" · by window(t, length 10 seconds, slide 10 seconds), k · count(1), sum(v)")
    assert operator_text({"operator": "limit", "rows": "10"}) == " · rows 10"


def test_an_output_that_moves_to_another_shared_state_is_told_and_refused() -> None:
    sinks = {name: {"kind": "files", "target": name} for name in ("a", "b", "c")}
    computes = {"a": bars(), "b": bars(1)}
    operators = ["a: aggregation", "b: aggregation"]

    def sharing(shares: Any) -> dict[str, Any]:
        return structure(computes, sinks=sinks, operators=operators, shares=shares)

    moved = compare_structures(sharing({"c": "a"}), sharing({"c": "b"}), "strict")
    assert moved.fit is Compatibility.REFUSED
    assert moved.changes == ["output 'c': the state of 'a' → the state of 'b'"]
    assert (
        compare_structures(sharing({"c": "a"}), sharing({"c": "b"}), "warn").fit
        is Compatibility.GOES_ON
    )
    left = compare_structures(sharing({"c": "a"}), sharing({}), "strict", same_spark=False)
    assert left.changes == ["output 'c': the state of 'a' → no shared state"]
    assert left.fit is Compatibility.REFUSED

    before = sharing({})
    del before["shares"]  # as it was before that was recorded
    for shares in ({}, {"c": "a"}):
        assert compare_structures(before, sharing(shares), "strict") == CompatibilityCheck(
            Compatibility.SAME
        )
    added = sharing({"c": "a", "d": "b"}) | {"sinks": sinks | {"d": {}}}
    assert compare_structures(sharing({"c": "a"}), added, "strict").fit is Compatibility.GOES_ON


def test_inputs_are_compared_by_their_names() -> None:
    def told(**inputs: str) -> dict[str, Any]:
        return {"out": [{"operator": "transformWithState", "inputs": inputs}]}

    assert computed_changes(told(v="v"), told(v="v", more="more")) == []
    assert computed_changes(told(v="v", more="more"), told(v="v")) == []
    (change,) = computed_changes(told(v="v"), told(v="(v + 1)", more="more"))
    assert change.text == "output 'out': transformWithState inputs of v: v → (v + 1)"
    assert "inputs" not in operator_text(told(v="v")["out"][0])


def test_details_are_told_only_where_nothing_else_differs() -> None:
    def told(parameters: str, details: str) -> dict[str, Any]:
        described = {"parameters": parameters, "details": {"first(v)": details}}
        return {"out": [{"operator": "aggregation", **described}]}

    (change,) = computed_changes(told("a, b", "a | b"), told("a, b", "b | a"))
    assert change.text == "output 'out': aggregation details of first(v): a | b → b | a"
    (change,) = computed_changes(told("a, b", "a | b"), told("a, c", "c | a"))
    assert change.part == "parameters"
