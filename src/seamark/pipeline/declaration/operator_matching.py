"""Which operator of a checkpoint each operator of a changed pipeline goes on from. Pure.

An operator is known by its output, its kind and its place among those of the same kind in that
output. Its number in Spark's plan is only where its state lies. State goes on only with the
computation that has made it; nothing is guessed, and nothing begins empty in silence.

Tests: ``tests/pipeline/test_upgrade_plan.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from seamark.pipeline.declaration.aggregate_columns import FunctionsChange, functions_change
from seamark.pipeline.declaration.computed_changes import (
    WINDOW_PARTS,
    ComputedChange,
    moved_watermarks,
    operator_changes,
    sources_change,
)
from seamark.spark.plans.computation import COMPUTATION, WATERMARKS
from seamark.spark.plans.equal_operators import INPUT, TOLD_APART
from seamark.spark.plans.forgetting import FORGETS_BY
from seamark.spark.plans.function_order import FUNCTIONS, ORDER, STATE_COLUMNS
from seamark.spark.plans.planned_joins import CONDITIONS, PLANNED, SIDES

Structure = Mapping[str, Any]
What = Literal["pipeline", "source", "operator", "watermark", "sink"]


NOT_MATCHED: Final = frozenset({COMPUTATION, FORGETS_BY, SIDES, WATERMARKS})
"""Parts by which no operator is known: they are told, or compared by themselves."""


class Fate(StrEnum):
    """What becomes of one part of a pipeline."""

    CARRIED = "carried over"
    RESCALED = "rescaled"
    EMPTY = "begins empty"
    NEW = "new"
    DROPPED = "dropped"
    REFUSED = "refused"


@dataclass(frozen=True)
class UpgradeRow:
    """What becomes of one part, and why."""

    what: What
    name: str
    fate: Fate
    why: str = ""
    hint: str = ""
    """What to do instead, for a part that is refused."""

    @property
    def text(self) -> str:
        """In one line."""
        return f"{self.what} {self.name}: {self.fate}{f' ({self.why})' if self.why else ''}"


@dataclass(frozen=True)
class DescribedOperator:
    number: int
    branch: str
    kind: str
    place: int
    """Among those of its kind in the branch."""
    details: Mapping[str, Any]

    @property
    def name(self) -> str:
        """As ``begin_empty`` takes it."""
        return f"{self.branch}/{self.kind}" + (f" {self.place + 1}" if self.place else "")

    @property
    def function_names(self) -> list[str]:
        """Its functions, as ``begin_empty`` takes them."""
        return [f"{self.branch}/{text}" for text in self.details.get("functions") or ()]


class DescribedPipeline:
    """A structure, with its operators by branch."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.sinks: Mapping[str, Any] = structure.get("sinks", {})
        self.sources: Mapping[str, Any] = structure.get("sources", {})
        self.shares: Mapping[str, str] = structure.get("shares") or {}
        self.computes: Mapping[str, Sequence[Mapping[str, Any]]] = structure.get("computes") or {}
        self.reads: Mapping[str, Sequence[str]] = structure.get("reads") or {}
        self.operators = list(self._operators())
        self._of: dict[str, list[DescribedOperator]] = {}
        for operator in self.operators:
            self._of.setdefault(operator.branch, []).append(operator)
        self.branches = list(self._of)
        self._sharing: dict[str, set[str]] = {}
        for name, first in self.shares.items():
            self._sharing.setdefault(first, set()).add(name)

    def _operators(self) -> Iterator[DescribedOperator]:
        places: dict[tuple[str, str], int] = {}
        with_state = {
            branch: iter([one for one in operators if one["operator"] != "watermark"])
            for branch, operators in self.computes.items()
        }
        for number, text in enumerate(self.structure.get("operators", [])):
            branch, _, kind = str(text).partition(": ")
            kind = kind.replace("transformWithStateInPandas", "transformWithState")
            place = places.get((branch, kind), 0)
            places[branch, kind] = place + 1
            details = next(with_state.get(branch, iter(())), {})
            yield DescribedOperator(number, branch, kind, place, details)

    def outputs_of(self, branch: str) -> set[str]:
        """The outputs that take their rows from a branch."""
        return {branch, *self._sharing.get(branch, ())}

    def of(self, branch: str) -> list[DescribedOperator]:
        return self._of.get(branch, [])

    def delays(self, branch: str) -> list[str]:
        return [
            f"{o.get('of')}, {o.get('delay')}"
            for o in self.computes.get(branch, ())
            if o["operator"] == "watermark"
        ]


class OperatorMatching:
    """Which operator of the checkpoint each operator of the pipeline goes on from."""

    def __init__(
        self,
        before: DescribedPipeline,
        after: DescribedPipeline,
        former: Mapping[str, str],
        begin_empty: Collection[str],
        *,
        same_spark: bool,
    ) -> None:
        self._before = before
        self._after = after
        self._former = former
        self._begin_empty = begin_empty
        self._same_spark = same_spark
        self.origins: dict[int, int] = {}
        self.empty: list[int] = []
        self.rewritten: dict[int, FunctionsChange] = {}

    def rows(self) -> list[UpgradeRow]:
        """What becomes of each operator; the numbers are noted on the way."""
        rows: list[UpgradeRow] = []
        used: set[int] = set()
        for branch in self._after.branches:
            origin = self._origin_of(branch)
            pairs = _pairs(self._before.of(origin) if origin else [], self._after.of(branch))
            for old, new, is_certain in pairs:
                row = self._judged(old, new, is_new_output=origin is None)
                if row.fate is Fate.CARRIED and not is_certain:
                    row = self._unsure(old, new)
                if row.fate is not Fate.CARRIED:
                    self.rewritten.pop(new.number, None)
                if row.fate is Fate.CARRIED and old is not None:
                    if new.number not in self.rewritten:
                        self.origins[new.number] = old.number
                    used.add(old.number)
                elif row.fate is Fate.EMPTY:
                    self.empty.append(new.number)
                rows.append(row)
            if origin is not None:
                rows += self._watermarks(origin, branch)
        rows += [
            UpgradeRow("operator", old.name, Fate.DROPPED, "its state is not used any more")
            for old in self._before.operators
            if old.number not in used and not self._is_refused(rows, old)
        ]
        return rows

    def _is_refused(self, rows: Sequence[UpgradeRow], old: DescribedOperator) -> bool:
        return any(row.fate is Fate.REFUSED and row.name == old.name for row in rows)

    def _origin_of(self, branch: str) -> str | None:
        """The branch of the checkpoint whose outputs a branch has."""
        outputs = {self._former.get(name, name) for name in self._after.outputs_of(branch)}
        fitting = [b for b in self._before.branches if self._before.outputs_of(b) & outputs]
        own = self._former.get(branch, branch)
        return own if own in fitting else next(iter(fitting), None)

    def _judged(
        self, old: DescribedOperator | None, new: DescribedOperator, *, is_new_output: bool
    ) -> UpgradeRow:
        asked = new.name in self._begin_empty or new.branch in self._begin_empty
        if asked:
            return UpgradeRow("operator", new.name, Fate.EMPTY, "as begin_empty= says")
        if old is None and is_new_output:
            return UpgradeRow("operator", new.name, Fate.EMPTY, "its output is new")
        if old is None:
            return UpgradeRow(
                "operator",
                new.name,
                Fate.REFUSED,
                "the output had no such operator, so there is no state for it",
                f"begin_empty=[{new.name!r}] begins it empty: rows that came before are not known "
                "to it.",
            )
        differences = operator_changes(old.details, new.details)
        change = functions_change(old.number, old.details, new.details)
        if change is not None and self._same_spark:
            if lacking := self._not_asked_for(change, new):
                return lacking
            self.rewritten[new.number] = change
            differences = [each for each in differences if each.part != FUNCTIONS]
        elif shape := _shape(old.details, new.details, "values"):
            return self._refused(new, shape)
        if shape := _shape(old.details, new.details, "keys"):
            return self._refused(new, shape)
        serious = [
            change
            for change in differences
            if not change.is_harmless and (self._same_spark or change.is_certain)
        ]
        if serious:
            return self._refused(new, "; ".join(change.text for change in serious))
        had, has = self._before.reads.get(old.branch), self._after.reads.get(new.branch)
        rewired = "" if had is None or has is None or had == has else sources_change(had, has)
        if (
            rewired
            and not set(had or ()) & set(has or ())
            and set(has or ()) <= set(self._before.sources)
        ):
            return self._refused(new, rewired)
        rewritten = change.text if change is not None and self._same_spark else ""
        effects = [text for text in (rewritten, rewired, _effects(differences)) if text]
        return UpgradeRow("operator", new.name, Fate.CARRIED, "; ".join(effects))

    def _not_asked_for(self, change: FunctionsChange, new: DescribedOperator) -> UpgradeRow | None:
        """The refusal of functions of which nobody has said that they begin empty."""
        names = {text: f"{new.branch}/{text}" for text in change.new}
        lacking = [text for text, name in names.items() if name not in self._begin_empty]
        if not lacking:
            return None
        return UpgradeRow(
            "operator",
            new.name,
            Fate.REFUSED,
            f"nothing is known of {', '.join(lacking)} for the rows that came before",
            f"begin_empty={[names[text] for text in lacking]} begins it empty, as of the next "
            f"epoch, and the rest of the state goes on; begin_empty=[{new.name!r}] begins all of "
            "it empty; or give the changed output a new name, next to the old one, until it has "
            "caught up.",
        )

    def _refused(self, new: DescribedOperator, why: str) -> UpgradeRow:
        return UpgradeRow(
            "operator",
            new.name,
            Fate.REFUSED,
            f"{why}: its state was made by another computation",
            f"begin_empty=[{new.name!r}] begins it empty; or give the changed output a new name, "
            "next to the old one, until it has caught up.",
        )

    def _unsure(self, old: DescribedOperator | None, new: DescribedOperator) -> UpgradeRow:
        if old is not None and INPUT in new.details and INPUT not in old.details:
            return UpgradeRow(
                "operator",
                new.name,
                Fate.REFUSED,
                "others of its output compute the same of other rows, and the checkpoint does not "
                "say which state is whose: another Seamark made it",
                "Run one epoch of the unchanged pipeline with this Seamark first; or "
                f"begin_empty=[{new.name!r}] begins it empty.",
            )
        return UpgradeRow(
            "operator",
            new.name,
            Fate.REFUSED,
            "several operators of this kind in its output have changed at once, and which of them "
            "goes on from which state is not known",
            f"Change one of them at a time; or begin_empty=[{new.name!r}] begins it empty.",
        )

    def _watermarks(self, old: str, new: str) -> Iterator[UpgradeRow]:
        had, has = self._before.delays(old), self._after.delays(new)
        if had != has:
            yield UpgradeRow(
                "watermark",
                new,
                Fate.CARRIED,
                f"{'; '.join(had) or 'none'} → {'; '.join(has) or 'none'}: it never moves back, "
                "and rows later than it are dropped as before until it has caught up",
            )
        before, after = (
            d.computes.get(b, ()) for d, b in ((self._before, old), (self._after, new))
        )
        for delay, kind, way in moved_watermarks(before, after):
            why = f"{delay} is {way} the {kind}, whose state goes on as it is"
            yield UpgradeRow("watermark", new, Fate.CARRIED, why)


def _pairs(
    old: Sequence[DescribedOperator], new: Sequence[DescribedOperator]
) -> list[tuple[DescribedOperator | None, DescribedOperator, bool]]:
    """The operator that each new one goes on from, or None, and whether that is certain.

    Those that compute the same first, wherever they are. Of the others of a kind, one on each side
    is the same one; several go together by their order, which is a guess. So is the order of equal
    ones that are not the same.
    """
    found: dict[int, DescribedOperator] = {}
    guessed: set[int] = set()
    for kind in dict.fromkeys(operator.kind for operator in new):
        had = [operator for operator in old if operator.kind == kind]
        has = [operator for operator in new if operator.kind == kind]
        found |= _equal_pairs(had, has)
        used = {before.number for before in found.values()}
        changed = [before for before in had if before.number not in used]
        open_ones = [after for after in has if after.number not in found]
        if len(had) == len(has):
            found |= {
                after.number: before for before, after in zip(changed, open_ones, strict=True)
            }
            guessed |= {after.number for after in open_ones if len(open_ones) > 1}
        guessed |= {after.number for after in has if TOLD_APART in after.details}
    return [(found.get(op.number), op, op.number not in guessed) for op in new]


def _equal_pairs(
    had: Sequence[DescribedOperator], has: Sequence[DescribedOperator]
) -> dict[int, DescribedOperator]:
    """Operators of one kind that compute the same; of equal ones all or none, in their order."""
    found: dict[int, DescribedOperator] = {}
    for after in has:
        before = [operator for operator in had if _computes_same(operator, after)]
        equal = [operator for operator in has if _computes_same(operator, after)]
        if len(before) == len(equal):
            found[after.number] = before[equal.index(after)]
    return found


def _computes_same(old: DescribedOperator, new: DescribedOperator) -> bool:
    """Whether the descriptions are equal, apart from what one of them does not tell."""
    before, after = (
        {part: value for part, value in one.details.items() if part not in NOT_MATCHED}
        for one in (old, new)
    )
    for part in (CONDITIONS, ORDER, PLANNED, STATE_COLUMNS):
        if not (part in before and part in after):
            before.pop(part, None)
            after.pop(part, None)
    return before == after


def _shape(old: Mapping[str, Any], new: Mapping[str, Any], part: str) -> str:
    before, after = old.get("state", {}).get(part, ""), new.get("state", {}).get(part, "")
    return (
        "" if before == after else f"the {part} in its state are ({before}) and would be ({after})"
    )


def _effects(changes: Sequence[ComputedChange]) -> str:
    texts = [change.text for change in changes]
    if any(change.part in WINDOW_PARTS for change in changes):
        texts.append(
            "windows that are open close as they are; the first new ones lack the rows of before"
        )
    return "; ".join(texts)
