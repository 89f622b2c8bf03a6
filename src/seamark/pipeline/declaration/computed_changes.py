"""What differs in the computations of two pipelines, as text. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from seamark.spark.plans.computation import COMPUTATION, WATERMARKS, watermark_text
from seamark.spark.plans.equal_operators import INPUT, OUTPUT, TOLD_APART
from seamark.spark.plans.expression_digests import differ
from seamark.spark.plans.forgetting import FORGETS_BY
from seamark.spark.plans.function_order import FUNCTIONS, ORDER, STATE_COLUMNS, kept_functions
from seamark.spark.plans.planned_joins import CONDITIONS, PLANNED, SIDES, are_exchanged
from seamark.spark.plans.time_windows import window_text

Operator = Mapping[str, Any]
Computes = Mapping[str, Sequence[Operator]]
"""By output: its operators and watermarks, as ``seamark.spark.plans.computation`` describes."""

_EXACT: Final = frozenset(
    {"delay", "gap", "grouping sets", "length", "mode", "offset", "rows", "slide", "time"}
    | {"time zone", "timeout", "type", "variables"}
)
"""Parts that are read from the plan as values. All others are text, worded by Spark."""
WINDOW_PARTS: Final = frozenset({"length", "slide", "offset", "gap"})
"""Parts of a window: each window in the state has its own start and end."""
DETAILS: Final = "details"
_BY_NAME: Final = frozenset({DETAILS, "inputs"})
"""Parts with a text for each of several names. One that is new or gone is not a change of it."""
_UNSHOWN: Final = (
    _BY_NAME
    | {"hidden texts", "returned types", "types", "united", "whole filter"}
    | {COMPUTATION, CONDITIONS, FORGETS_BY, ORDER, PLANNED, SIDES, STATE_COLUMNS, WATERMARKS}
)
"""Parts that follow from the declaration, and are of use only where they differ."""
_COMPARED_APART: Final = frozenset({"operator", "state", COMPUTATION, ORDER, SIDES, WATERMARKS})
"""Parts that are compared by themselves, or with those of other operators."""
_SINCE: Final = (
    frozenset(
        {"expanded", "fields", "filter", "function", "grouping sets", "hidden texts", "lookups"}
        | {"named queries", "parameters", "patterns", "queries", "reads", "returned types"}
        | {"SQL functions", "time zone", "types", "united", "variables", "whole filter"}
        | {CONDITIONS, FORGETS_BY, INPUT, OUTPUT, PLANNED, STATE_COLUMNS, TOLD_APART}
    )
    | _BY_NAME
)
"""Parts that an earlier Seamark has not recorded."""
_DECIDE_THE_PLAN: Final = frozenset({"condition", "filter", "type", "whole filter"})
"""Parts of a join that say as well why Spark plans it in another way."""
NAME_THEM: Final = (
    "Give each an output of its own, or a column that says which one it is "
    "(withColumn('part', lit('a'))); or name what differs: a table in memory by p.table('name', "
    "df), a Python function by its own name. With policy='warn' the pipeline goes on: they must "
    "never change places then."
)
"""What to do about :func:`not_told_apart`."""


@dataclass(frozen=True)
class ComputedChange:
    """One difference."""

    text: str
    is_certain: bool
    """Whether it stays a difference when the two were described by different Sparks."""
    part: str = ""
    """Which part of an operator it is of, where that has a name."""

    @property
    def is_harmless(self) -> bool:
        """Whether state of the old computation can be gone on with by the new one."""
        return self.part in WINDOW_PARTS or self.part in (FORGETS_BY, "rows") or self.is_only_told

    @property
    def is_only_told(self) -> bool:
        """Whether it refuses nothing: what is in the state stays what it is, or may well do so."""
        return self.part in (COMPUTATION, WATERMARKS)


def computed_changes(old: Computes, new: Computes) -> list[ComputedChange]:
    """Each difference of the outputs that both have."""
    changes: list[ComputedChange] = []
    for output in sorted(old.keys() | new.keys()):
        before, after = old.get(output, ()), new.get(output, ())
        parts: list[ComputedChange] = []
        pairs: Iterable[tuple[Operator, Operator]] = zip(before, after, strict=True)
        if _kinds(before) != _kinds(after) or Counter(_delays(before)) == Counter(_delays(after)):
            # another operator with state is reported where the topology is compared
            parts = [*_watermarks(before, after)]
            pairs = chain(_pairs_with_state(before, after), _pairs_of_watermarks(before, after))
        parts += [change for one, other in pairs for change in operator_changes(one, other)]
        changes += [replace(part, text=f"output {output!r}: {part.text}") for part in parts]
    return changes


def not_told_apart(computes: Computes) -> list[str]:
    """Outputs with operators that nothing distinguishes but their order, in words."""
    return [
        f"output {output!r}: nothing but their order distinguishes {times} operators of the kind "
        f"{kind}, and they are not the same"
        for output, operators in sorted(computes.items())
        for kind, times in Counter(
            str(one["operator"]) for one in operators if TOLD_APART in one
        ).items()
    ]


def undescribed(old: Computes, new: Computes) -> list[str]:
    """Outputs whose equal operators an earlier Seamark has not described, in words."""
    outputs = [
        output
        for output in sorted(old.keys() & new.keys())
        if any(
            INPUT in after and INPUT not in before
            for before, after in _pairs_with_state(old[output], new[output])
        )
    ]
    return [
        f"output {output!r}: the checkpoint does not say what distinguishes operators that compute "
        "the same of different rows: if they have changed places since, their states are "
        "exchanged; from the next epoch on it is recorded"
        for output in outputs
    ]


def shape_change(old: Computes, new: Computes) -> str:
    """Which state Spark cannot load any more, or the empty text."""
    for output in sorted(old.keys() & new.keys()):
        for one, other in _pairs_with_state(old[output], new[output]):
            before, after = one.get("state", {}), other.get("state", {})
            for part in ("keys", "values", "objects"):
                if part == "objects" and None in (before.get(part), after.get(part)):
                    continue  # an earlier Seamark has not recorded them
                if before.get(part) != after.get(part):
                    return (
                        f"output {output!r}: the {part} in the state of its {one['operator']} are "
                        f"({before.get(part, '')}) in the checkpoint and would be "
                        f"({after.get(part, '')})"
                    )
    return ""


def rewired(
    old: Mapping[str, Sequence[Any]], new: Mapping[str, Sequence[Any]]
) -> list[ComputedChange]:
    """Outputs whose state would go on with rows of other sources; given are the sources of each."""
    return [
        ComputedChange(f"output {name!r}: {sources_change(before, after)}", is_certain=True)
        for name, after in sorted(new.items())
        if (before := old.get(name)) is not None and before != after
    ]


def sources_change(old: Sequence[Any], new: Sequence[Any]) -> str:
    """Other sources than before, in words."""
    return f"reads {', '.join(map(str, old))} → {', '.join(map(str, new))}"


def operator_text(operator: Operator) -> str:
    """What an operator computes, to stand behind its kind: `` · keys k · sum(v)``."""
    parts = []
    for name, value in operator.items():
        if name == "keys":
            parts.append(f"by {', '.join(map(_shown, value))}" if value else "over all rows")
        elif name == "functions":
            parts.append(", ".join(map(_shown, value)))
        elif name not in ("operator", "state") and name not in _UNSHOWN:
            parts.append(f"{_named(name)} {value}")
    return "".join(f" · {part}" for part in parts if part)


def _kinds(operators: Sequence[Operator]) -> list[str]:
    return [str(operator.get("operator")) for operator in operators]


def _with_state(operators: Sequence[Operator]) -> list[Operator]:
    return [operator for operator in operators if operator.get("operator") != "watermark"]


def _pairs_with_state(
    old: Sequence[Operator], new: Sequence[Operator]
) -> Iterator[tuple[Operator, Operator]]:
    """The operators with state, each with the one that would go on from it; none if kinds differ.

    Watermarks may have come or gone between them.
    """
    before, after = _with_state(old), _with_state(new)
    if _kinds(before) == _kinds(after):
        yield from zip(before, after, strict=True)


def _watermarks(old: Sequence[Operator], new: Sequence[Operator]) -> Iterator[ComputedChange]:
    """Watermarks that came, went, or have moved past an operator."""
    before, after = Counter(_delays(old)), Counter(_delays(new))
    for delay in (delay for delay in before if delay not in after):
        yield ComputedChange(f"watermark {delay} was removed", is_certain=True)
    for delay in (delay for delay in after if delay not in before):
        yield ComputedChange(f"watermark {delay} was added", is_certain=True)
    for delay, kind, way in moved_watermarks(old, new):
        text = f"watermark {delay} has moved: it is {way} the {kind}"
        yield ComputedChange(text, is_certain=True)
    for delay in (delay for delay in before if before[delay] != after.get(delay, before[delay])):
        # of other rows that are read as well: what is late may be other rows, the state is the same
        text = f"watermark {delay}: declared {before[delay]} → {after[delay]} times"
        yield ComputedChange(text, is_certain=True, part=WATERMARKS)


def _pairs_of_watermarks(
    old: Sequence[Operator], new: Sequence[Operator]
) -> Iterator[tuple[Operator, Operator]]:
    """The watermarks that both have, in whatever order."""
    before, after = _marks_by_delay(old), _marks_by_delay(new)
    for delay in (delay for delay in before if delay in after):
        yield from zip(
            sorted(before[delay], key=repr), sorted(after[delay], key=repr), strict=False
        )


def _marks_by_delay(operators: Sequence[Operator]) -> dict[str, list[Operator]]:
    marks: dict[str, list[Operator]] = {}
    for mark in _marks(operators):
        marks.setdefault(watermark_text(mark), []).append(mark)
    return marks


def moved_watermarks(
    old: Sequence[Operator], new: Sequence[Operator]
) -> Iterator[tuple[str, str, str]]:
    """Watermarks that have changed places with an operator with state: which it is, and how now.

    An operator above a watermark drops late rows and forgets; another one does neither.
    """
    stayed = {*_delays(old)} & {*_delays(new)}
    pairs = list(_pairs_with_state(old, new))
    were, are = _delays_below(old, pairs, 0), _delays_below(new, pairs, 1)
    for (operator, _), before, after in zip(pairs, were, are, strict=True):
        kind = str(operator.get("operator"))
        for delay in sorted((before ^ after) & stayed):
            yield delay, kind, "now below" if delay in after else "no longer below"


def _delays_below(
    operators: Sequence[Operator], pairs: Sequence[tuple[Operator, Operator]], side: int
) -> list[set[str]]:
    """The watermarks below each operator with state.

    Where an earlier Seamark has not recorded them for one of both: all that come after it.
    """
    numbers = [n for n, one in enumerate(operators) if one.get("operator") != "watermark"]
    is_told = all(WATERMARKS in one and WATERMARKS in other for one, other in pairs)
    return [
        {*(pair[side][WATERMARKS] if is_told else _delays(operators[number:]))}
        for number, pair in zip(numbers, pairs, strict=False)
    ]


def _marks(operators: Sequence[Operator]) -> list[Operator]:
    return [operator for operator in operators if operator.get("operator") == "watermark"]


def _delays(operators: Sequence[Operator]) -> list[str]:
    return [watermark_text(mark) for mark in _marks(operators)]


def operator_changes(old: Operator, new: Operator) -> list[ComputedChange]:
    """Each difference in what two operators of one kind compute."""
    changes = list(_operator_changes(old, new))
    if any(change.part in _DECIDE_THE_PLAN for change in changes):
        changes = [change for change in changes if change.part not in (CONDITIONS, PLANNED)]
    if not changes and COMPUTATION in old and COMPUTATION in new:
        return _without_words(old, new)
    if any(change.part not in (DETAILS, FUNCTIONS) for change in changes):
        # details say in which order what is: they differ wherever that does
        return [change for change in changes if change.part != DETAILS]
    return changes


def _without_words(old: Operator, new: Operator) -> list[ComputedChange]:
    """What differs in an operator that reads the same in words, if anything does."""
    if not differ(str(old[COMPUTATION]), str(new[COMPUTATION])):
        return []
    text = (
        f"the expressions of the {old.get('operator')} have changed in a way that their SQL does "
        "not show: look for an option, or a setting of the session (such as "
        "spark.sql.ansi.enabled), that is not what it was"
    )
    return [ComputedChange(text, is_certain=False, part=COMPUTATION)]


def _operator_changes(old: Operator, new: Operator) -> Iterator[ComputedChange]:
    kind = str(new.get("operator"))  # of the pipeline: the old one is whatever a store says
    if are_exchanged(old.get(SIDES), new.get(SIDES)):
        text = f"{kind} sides {_sides(old)} → {_sides(new)}"
        yield ComputedChange(text, is_certain=True, part=SIDES)
    for part in sorted((old.keys() | new.keys()) - _COMPARED_APART):
        before, after = old.get(part), new.get(part)
        if part == FUNCTIONS and ORDER in old and ORDER in new:
            before, after = kept_functions(old), kept_functions(new)
        if before == after or (part in _SINCE and None in (before, after)):
            continue
        if part == "keys":
            yield from _keys(kind, before or [], after or [])
        elif part in _BY_NAME:
            yield from _named_changes(f"{kind} {part}", part, before or {}, after or {})
        elif part == FUNCTIONS:
            yield from _functions(before or [], after or [])
        else:
            text = f"{kind} {_named(part)} {before} → {after}"
            yield ComputedChange(text, part in _EXACT, part)


def _sides(operator: Operator) -> str:
    return " | ".join(map(str, operator[SIDES]))


def _named_changes(
    what: str, part: str, old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[ComputedChange]:
    for name in (name for name in old if name in new and new[name] != old[name]):
        text = f"{what} of {name}: {old[name]} → {new[name]}"
        yield ComputedChange(text, is_certain=False, part=part)


def _named(part: str) -> str:
    names = {"of": "column", "time zone": "time zone (spark.sql.session.timeZone)"}
    return names.get(part, part)


def _keys(kind: str, old: Sequence[Any], new: Sequence[Any]) -> Iterator[ComputedChange]:
    if len(old) != len(new):
        text = f"keys of the {kind} {_list(old)} → {_list(new)}"
        yield ComputedChange(text, is_certain=True)
        return
    for before, after in zip(old, new, strict=True):
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _windows(before, after)
        elif before != after:
            yield ComputedChange(f"key {_shown(before)} → {_shown(after)}", is_certain=False)


def _windows(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[ComputedChange]:
    kind = "session window" if old.get("window") == "session" else "window"
    if old.get("window") != new.get("window"):
        yield ComputedChange(f"key {_shown(old)} → {_shown(new)}", is_certain=True)
        return
    # a window that does not slide has its length twice
    tumbles = all(window.get("slide") == window.get("length") for window in (old, new))
    for part in sorted(old.keys() | new.keys()):
        before, after = old.get(part, "none"), new.get(part, "none")
        if before != after and not (part == "slide" and tumbles):
            text = f"{kind} {_named(part)} {before} → {after}"
            yield ComputedChange(text, part in _EXACT, part)


def _functions(old: Sequence[str], new: Sequence[str]) -> Iterator[ComputedChange]:
    gone = [text for text in old if text not in new]
    came = [text for text in new if text not in old]
    if len(gone) == len(came) and gone:
        for before, after in zip(gone, came, strict=True):
            yield ComputedChange(f"{before} → {after}", is_certain=False, part=FUNCTIONS)
        return
    for text in gone:
        yield ComputedChange(f"{text} was removed", is_certain=False, part=FUNCTIONS)
    for text in came:
        yield ComputedChange(f"{text} was added", is_certain=False, part=FUNCTIONS)
    if not gone and not came:
        text = f"functions {_list(old)} → {_list(new)}"
        yield ComputedChange(text, is_certain=False, part=FUNCTIONS)


def _list(values: Sequence[Any]) -> str:
    return f"({', '.join(map(_shown, values))})"


def _shown(value: Any) -> str:
    return window_text(value) if isinstance(value, dict) else str(value)
