"""Many outputs, one streaming query: so that one offset log, one watermark and one state version
cover every sink of a pipeline.

The query has a branch for each output, or for several that share a stateful or random plan. Each
branch is packed into a struct column of its own next to a tag, all are united, and inside the batch
each sink gets its rows back by the tag. A single branch runs as it is.

Tests: ``tests/pipeline/test_shared_state.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from seamark._common.logs import logger_named
from seamark._common.text import backquoted
from seamark.errors import InvalidInputError
from seamark.manifest import ConnectorCheckpoint
from seamark.pipeline.declaration.computed_changes import not_told_apart
from seamark.pipeline.declaration.watermarks import (
    delay_warnings,
    require_same_watermark,
    require_shared_sources,
)
from seamark.sinks.contract import Sink
from seamark.spark.output_modes import require_supported_output, require_supported_query
from seamark.spark.plans.computation import Operator, operators_of, python_functions
from seamark.spark.plans.determinism import drawn_apart
from seamark.spark.plans.executed_plan import (
    EXCLUDED_RULES,
    REGEX_NAMES,
    TOTAL,
    PlanOperator,
    has_totals,
    operators_to_run,
    optimized,
    removable_nodes,
    settings_for,
)
from seamark.spark.plans.function_order import Places, function_places, join_columns
from seamark.spark.plans.plan import (
    PlanSources,
    WatermarkInfo,
    analyzed,
    first_lines,
    is_sorted,
    stateful_operators,
)
from seamark.spark.plans.planned_joins import planned_joins
from seamark.spark.plans.shared_plan import SharedPlan, of_equal_rows, shared_plans
from seamark.spark.plans.trees import room_for_deep_plans
from seamark.spark.plans.watermark_rows import watermark_rows
from seamark.spark.session import session_settings, watermark_policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logger_named("seamark.pipeline")

_TAG: Final = "_seamark_output"


@dataclass(frozen=True)
class Output:
    """One declared output: a name, what is computed, and where it goes."""

    name: str
    df: DataFrame
    sink: Sink


@dataclass(frozen=True)
class Branch:
    """What the query computes for one output, or for several at once."""

    df: DataFrame
    outputs: tuple[int, ...]
    """By their numbers."""
    shared: SharedPlan | None = None

    def rows_of(self, rows: DataFrame, output: int) -> DataFrame:
        """The rows of one output out of those of the branch."""
        return rows if self.shared is None else self.shared.rows_of(rows, output)


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """The one query of a pipeline, and what is known about it before it runs."""

    df: DataFrame
    outputs: tuple[Output, ...]
    branches: tuple[Branch, ...]
    leaves: tuple[str, ...]
    """The source of each line of the offset log."""
    first_lines: tuple[int, ...] = ()
    """For each folder of Spark's below ``sources/``: its first line of the offset log."""
    watermarks: tuple[WatermarkInfo, ...] = ()
    watermark_policy: str = "min"
    """What the session says about several watermarks."""
    operators: tuple[str, ...] = ()
    tables: dict[str, ConnectorCheckpoint] = field(default_factory=dict)
    """What each reference table that is made of files consists of."""
    sources_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Which sources each output reads."""
    read_apart: tuple[str, ...] = ()
    """Sources that Spark reads several times, each time with a position of its own."""
    warnings: tuple[str, ...] = ()
    computes: dict[str, list[Operator]] = field(default_factory=dict)
    """What the operators and watermarks of each branch compute, by its first output."""
    python_functions: tuple[str, ...] = ()
    """Functions in Python, of which only the names are known."""
    is_sorted: bool = False
    """Whether the order of some rows counts, as of a complete result that is sorted."""

    @property
    def shares(self) -> dict[str, str]:
        """Each output that takes its rows from the state of an earlier one, and which that is."""
        return {
            self.outputs[number].name: self.outputs[branch.outputs[0]].name
            for branch in self.branches
            if branch.shared is not None and branch.shared.keeps_state
            for number in branch.outputs[1:]
        }

    @property
    def stateful_branches(self) -> list[str]:
        """The first output of each branch that keeps state."""
        return list(dict.fromkeys(operator.partition(": ")[0] for operator in self.operators))

    @property
    def is_stateful(self) -> bool:
        """Whether anything keeps state."""
        return bool(self.operators)

    def operators_to_run(self, output_mode: str) -> tuple[list[PlanOperator], dict[str, str]]:
        """The stateful operators that every plan of the query must have, and Spark's settings for
        that."""
        spark = self.df.sparkSession
        excluded = spark.conf.get(EXCLUDED_RULES, "") or ""
        totals = {TOTAL} if has_totals(analyzed(self.df)) else set()
        unmerged = settings_for((), totals, excluded)
        with session_settings(spark, unmerged) if totals else nullcontext():
            plans = self._optimized_branches()
        operators = _operators_of(plans, output_mode)
        removable = {name for plan in plans for name in removable_nodes(plan)}
        settings = settings_for(operators, sorted(removable | totals), excluded)
        if EXCLUDED_RULES in settings:  # without these rules, a limit of a limit is two operators
            with session_settings(spark, settings):
                operators = _operators_of(self._optimized_branches(), output_mode)
        return operators, settings

    def _optimized_branches(self) -> list[Any]:
        return [optimized(branch.df) for branch in self.branches]

    def reads_every_row(self, number: int) -> bool:
        """Whether reading one output in full is reading the batch in full."""
        _, branch = self._branch_of(number)
        return branch.shared is None or branch.shared.reads_every_row(number)

    def rows_of(self, batch: DataFrame, number: int) -> DataFrame:
        """The rows of one output out of the rows of all."""
        where, branch = self._branch_of(number)
        if len(self.branches) > 1:
            batch = batch.where(f"{_TAG} = {where}").select(f"o{where}.*")
        return branch.rows_of(batch, number)

    def _branch_of(self, number: int) -> tuple[int, Branch]:
        return next(pair for pair in enumerate(self.branches) if number in pair[1].outputs)


def _operators_of(plans: Iterable[Any], output_mode: str) -> list[PlanOperator]:
    return [operator for plan in plans for operator in operators_to_run(plan, output_mode)]


@room_for_deep_plans()
def compile_outputs(
    outputs: Sequence[Output],
    sources: PlanSources,
    *,
    output_mode: str,
    share_state: bool = True,
) -> Compiled:
    """Unite the outputs; :class:`RefusedError` for what one query cannot carry, and for an output
    that Spark would not run alone in this mode.

    With ``share_state`` outputs that are built on one stateful DataFrame share its state. Those
    that are built on a random one share its rows in any case.
    """
    if not outputs:
        raise InvalidInputError(
            "the pipeline has no sink", hint='Declare one: p.sink("name", df, FileSink(path)).'
        )
    for output in outputs:
        _check_output(output)
        require_supported_output(output.name, output.df, output_mode)
    plans = {output.name: analyzed(output.df) for output in outputs}
    leaves = {name: tuple(sources.of(plan)) for name, plan in plans.items()}
    branches = _branches([output.df for output in outputs], share_state=share_state)
    computed: dict[str, Any] = {}
    places: dict[str, tuple[Places | None, frozenset[int] | None, list[dict[str, Any]]]] = {}
    for branch in branches:
        if branch.shared is not None and not branch.shared.keeps_state:
            computed |= {outputs[n].name: plans[outputs[n].name] for n in branch.outputs}
        else:  # named after the first output, so that another one may join it later
            first = outputs[branch.outputs[0]].name
            computed[first] = analyzed(branch.df)
            if stateful_operators(computed[first]):
                of_spark = optimized(branch.df)
                places[first] = (
                    function_places(computed[first], of_spark),
                    join_columns(of_spark),
                    planned_joins(computed[first], of_spark, sources.name_of),
                )
    with session_settings(outputs[0].df.sparkSession, {REGEX_NAMES: "false"}):
        united = _united([branch.df for branch in branches])
    require_supported_query(united, output_mode)
    plan = analyzed(united)
    rows = watermark_rows([branch.df for branch in branches])
    marks = {
        name: [replace(mark, rows=rows[mark.node_id]) for mark in sources.watermarks(of_output)]
        for name, of_output in plans.items()
    }
    watermarks = tuple({m.node_id: m for of_output in marks.values() for m in of_output}.values())
    policy = watermark_policy(united.sparkSession)
    warnings = require_shared_sources(
        {name: set(read) for name, read in leaves.items()}, has_watermark=bool(watermarks)
    )
    require_same_watermark(marks)
    warnings += delay_warnings(watermarks, policy)
    warnings += _chance_warnings(
        {outputs[branch.outputs[0]].name: analyzed(branch.df) for branch in branches}
    )
    computes = {
        name: operators
        for name, plan_of_branch in computed.items()
        if (
            operators := operators_of(
                plan_of_branch,
                sources.name_of,
                sources.table_of,
                *places.get(name, (None, None, [])),
            )
        )
    }
    warnings += not_told_apart(computes)
    for text in warnings:
        log.warning(text)
    return Compiled(
        df=united,
        outputs=tuple(outputs),
        branches=branches,
        leaves=tuple(sources.of(plan)),
        first_lines=first_lines(plan),
        watermarks=watermarks,
        watermark_policy=policy,
        operators=tuple(
            f"{name}: {kind}"
            for name, plan_of_branch in computed.items()
            for kind in stateful_operators(plan_of_branch)
        ),
        tables=sources.versions(plan),
        sources_of={name: tuple(dict.fromkeys(read)) for name, read in leaves.items()},
        read_apart=sources.read_apart(plan),
        warnings=tuple(warnings),
        computes=computes,
        python_functions=tuple(python_functions(plan, united.sparkSession.sparkContext._jvm)),
        is_sorted=any(is_sorted(analyzed(branch.df)) for branch in branches),
    )


def _check_output(output: Output) -> None:
    if not output.df.isStreaming:
        raise InvalidInputError(
            f"output {output.name!r} is not a stream",
            hint="Build it on what p.source() returns.",
        )
    names = [name.lower() for name in output.df.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(
            f"output {output.name!r} has two columns named {twice[0]!r}",
            hint="Rename one of them with withColumnRenamed() or alias().",
        )


def _branches(outputs: Sequence[DataFrame], *, share_state: bool) -> tuple[Branch, ...]:
    """The branches of the query, in the order of their first outputs."""
    groups = [
        part
        for group in (shared_plans(outputs, share_state=share_state) if len(outputs) > 1 else ())
        for part in of_equal_rows(outputs, group)
    ]
    sharing = {number for group in groups for number in group}
    branches = [Branch(df, (n,)) for n, df in enumerate(outputs) if n not in sharing]
    for group in groups:
        shared = SharedPlan(outputs[0].sparkSession, group)
        branches.append(Branch(shared.df, tuple(group), shared))
    return tuple(sorted(branches, key=lambda branch: branch.outputs[0]))


def _chance_warnings(branches: Mapping[str, Any]) -> list[str]:
    return [
        f"outputs {', '.join(names)} are made of the same random values, and each draws its own: "
        "of two halves of the rows, a row may be in both or in none. They share what is drawn when "
        "all that follows it looks at single rows (select, where, withColumn) and needs no Python "
        "function and no hidden column of the source, and above state only with share_state=True."
        for names in drawn_apart(branches)
    ]


def _united(outputs: list[DataFrame]) -> DataFrame:
    if len(outputs) == 1:
        return outputs[0]
    from pyspark.sql import functions as f

    schemas = [output.schema for output in outputs]
    packed = [
        output.select(
            f.lit(number).alias(_TAG),
            *(
                (
                    f.struct(*(output[backquoted(name)] for name in output.columns))
                    if other == number
                    else f.lit(None).cast(schema)
                ).alias(f"o{other}")
                for other, schema in enumerate(schemas)
            ),
        )
        for number, output in enumerate(outputs)
    ]
    return reduce(lambda left, right: left.union(right), packed)
