"""What becomes of every source, operator and sink when a changed pipeline goes on. Pure.

Tests: ``tests/pipeline/test_upgrade_plan.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamark._common.text import columns_text
from seamark.pipeline.declaration.aggregate_columns import FunctionsChange
from seamark.pipeline.declaration.operator_matching import (
    DescribedPipeline,
    Fate,
    OperatorMatching,
    Structure,
    UpgradeRow,
)
from seamark.pipeline.declaration.target_names import (
    has_same_target,
    kept_targets,
    sink_as_recorded,
)
from seamark.spark.plans.lossy_options import may_lose_of
from seamark.spark.plans.parsing_options import parsing_differences, parsing_in
from seamark.spark.plans.value_settings import SETTINGS, settings_changed


@dataclass(frozen=True)
class UpgradeOptions:
    """What the user says about a change."""

    renames: Mapping[str, str] = field(default_factory=dict)
    """From old names of outputs to new ones."""
    begin_empty: Collection[str] = ()
    """Operators, outputs with all of theirs, or functions of an aggregation, that begin without
    state although there is some."""


@dataclass(frozen=True, kw_only=True)
class UpgradePlan:
    """What becomes of every part of a pipeline."""

    rows: tuple[UpgradeRow, ...] = ()
    origins: Mapping[int, int] = field(default_factory=dict)
    """By the number of an operator in the new plan: its number in the checkpoint."""
    rewritten: Mapping[int, FunctionsChange] = field(default_factory=dict)
    """By the number of an aggregation that goes on with other functions: what they are."""
    empty: tuple[int, ...] = ()
    """The numbers of operators that begin without state."""
    sinks: Mapping[str, str] = field(default_factory=dict)
    """Sinks that go on at the target which they had, each with the name that its output had."""
    partitions: int | None = None
    """How many partitions the state has from now on; None when that stays as it is."""

    @property
    def refused(self) -> list[UpgradeRow]:
        """What stands in the way."""
        return [row for row in self.rows if row.fate is Fate.REFUSED]

    @property
    def changes(self) -> list[UpgradeRow]:
        """What does not simply go on."""
        return [row for row in self.rows if row.fate is not Fate.CARRIED or row.why]


def plan_upgrade(
    old: Structure,
    new: Structure,
    options: UpgradeOptions | None = None,
    *,
    same_spark: bool = True,
) -> UpgradePlan:
    """What becomes of a pipeline of structure ``old`` when it goes on as ``new``.

    When another Spark has described the old computations, the wording of an expression does not
    count.
    """
    options = options or UpgradeOptions()
    before, after = DescribedPipeline(old), DescribedPipeline(new)
    former = {new_name: old_name for old_name, new_name in options.renames.items()}
    matching = OperatorMatching(before, after, former, options.begin_empty, same_spark=same_spark)
    rows = [
        *_whole(before, after, options),
        *_sources(before, after),
        *matching.rows(),
        *_sinks(before, after, former),
    ]
    return UpgradePlan(
        rows=tuple(rows),
        origins=matching.origins,
        rewritten=matching.rewritten,
        empty=tuple(matching.empty),
        sinks=kept_targets(before.sinks, after.sinks, options.renames),
    )


def _whole(
    before: DescribedPipeline, after: DescribedPipeline, options: UpgradeOptions
) -> Iterator[UpgradeRow]:
    """What concerns the pipeline as a whole."""
    old, new = before.structure, after.structure
    if old.get("output_mode") != new.get("output_mode"):
        yield UpgradeRow(
            "pipeline",
            "output mode",
            Fate.REFUSED,
            f"{old.get('output_mode')} → {new.get('output_mode')}: the mode decides what the state "
            "holds and which rows were emitted",
            "Keep the mode, or give the changed pipeline a store of its own.",
        )
    if after.operators and old.get("form") != new.get("form") and before.operators:
        yield UpgradeRow(
            "pipeline",
            "computations",
            Fate.REFUSED,
            "the checkpoint does not say what its operators compute: another Seamark made it",
            "Run one epoch of the unchanged pipeline with this Seamark first.",
        )
    for old_name, new_name in sorted(options.renames.items()):
        if old_name not in before.sinks:
            yield UpgradeRow(
                "sink",
                old_name,
                Fate.REFUSED,
                "renames= names it, and the checkpoint has no such output",
                f"It has: {', '.join(sorted(before.sinks))}. Once an output has its new name, "
                "take it out of renames=.",
            )
        elif old_name in after.sinks and old_name not in options.renames.values():
            yield UpgradeRow(
                "sink",
                old_name,
                Fate.REFUSED,
                f"renames= says that it has become {new_name}, and there is a new output of its "
                "name: both would go on from one state",
                "Give the new output a name that no output has had.",
            )
        if list(options.renames.values()).count(new_name) > 1:
            yield UpgradeRow(
                "sink", new_name, Fate.REFUSED, "renames= says that several outputs have become it"
            )
        if new_name not in after.sinks:
            yield UpgradeRow(
                "sink",
                new_name,
                Fate.REFUSED,
                f"renames= says that {old_name} has become it, and the pipeline has no such output",
                f"It has: {', '.join(sorted(after.sinks))}.",
            )
    if settings := settings_changed(old.get(SETTINGS), new.get(SETTINGS)):
        yield UpgradeRow("pipeline", SETTINGS, Fate.CARRIED, "; ".join(settings))
    names = {operator.name for operator in after.operators} | set(after.sinks)
    names |= {name for operator in after.operators for name in operator.function_names}
    for wrong in sorted(name for name in options.begin_empty if name not in names):
        there = ", ".join(sorted(operator.name for operator in after.operators)) or "none"
        yield UpgradeRow(
            "operator",
            wrong,
            Fate.REFUSED,
            "begin_empty= names it, and there is no such operator",
            f"There are: {there}.",
        )
    for name in sorted(name for name in options.begin_empty if name in after.shares):
        first = after.shares[name]
        yield UpgradeRow(
            "operator",
            name,
            Fate.REFUSED,
            f"begin_empty= names it, and its state is that of the output {first}",
            f"begin_empty=[{first!r}] begins both empty.",
        )


# sources and sinks


def joined_with_itself(source: str) -> UpgradeRow:
    """Refuses a source that has more than one position."""
    return UpgradeRow(
        "source",
        source,
        Fate.REFUSED,
        "it is joined with itself, and Spark keeps a position for each time that it is read",
        "Undo the change, or give the changed pipeline a store of its own.",
    )


def _sources(before: DescribedPipeline, after: DescribedPipeline) -> Iterator[UpgradeRow]:
    for name, source in after.sources.items():
        old = before.sources.get(name)
        if old is None:
            yield UpgradeRow("source", name, Fate.NEW, "it begins where its options say")
        elif old.get("format") != source.get("format"):
            yield UpgradeRow(
                "source",
                name,
                Fate.REFUSED,
                f"{old.get('format')} → {source.get('format')}: a position of one means nothing to "
                "the other",
                "Give the new source another name; then it begins where its options say.",
            )
        else:
            changed = _changed_options(old.get("options", {}), source.get("options", {}))
            lossy = _changed_options(may_lose_of(old), may_lose_of(source))
            changed += parsing_differences(parsing_in(old), parsing_in(source))
            why = "; ".join([*changed, *(f"{text}, which may lose rows" for text in lossy)])
            yield UpgradeRow("source", name, Fate.CARRIED, why)
    for name in before.sources.keys() - after.sources.keys():
        yield UpgradeRow("source", name, Fate.DROPPED, "its position is forgotten")


def _changed_options(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [
        f"{key} {old.get(key, 'none')} → {new.get(key, 'none')}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _sinks(
    before: DescribedPipeline, after: DescribedPipeline, former: Mapping[str, str]
) -> Iterator[UpgradeRow]:
    kept = set()
    for name, sink in after.sinks.items():
        old_name = former.get(name, name)
        old = before.sinks.get(old_name)
        if old is None:
            yield UpgradeRow("sink", name, Fate.NEW, "it begins with the next epoch")
            continue
        kept.add(old_name)
        texts = [f"it was {old_name}"] if old_name != name else []
        if old_name != name and has_same_target(old, sink):
            texts.append("its target goes on under that name")
        texts += _changed_options(
            {key: old.get(key) for key in ("kind", "target")},
            {key: sink.get(key) for key in ("kind", "target")},
        )
        recorded = sink_as_recorded(sink, old)
        texts += _changed_options(old.get("options", {}), recorded.get("options", {}))
        texts += _changed_columns(old.get("columns", []), sink.get("columns", []))
        yield UpgradeRow("sink", name, Fate.CARRIED, "; ".join(texts))
    for name in before.sinks:
        if name not in kept:
            yield UpgradeRow("sink", name, Fate.DROPPED, "what it shows stays")


def _changed_columns(old: Sequence[Any], new: Sequence[Any]) -> list[str]:
    had, has = {str(n): str(t) for n, t in old}, {str(n): str(t) for n, t in new}
    return [f"column {text}" for text in _changed_options(had, has)]


def upgrade_table(plan: UpgradePlan) -> str:
    """What becomes of each part, one line each, for people."""
    rows = [("", "NAME", "BECOMES", "WHY")]
    rows += [(row.what, row.name, row.fate.value, row.why) for row in plan.rows]
    hints = dict.fromkeys(row.hint for row in plan.refused if row.hint)
    return "\n".join([columns_text(rows), *hints])
