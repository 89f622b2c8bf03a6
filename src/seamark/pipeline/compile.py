"""Many outputs, one streaming query: so that one offset log, one watermark and one state version
cover every sink of a pipeline.

Each output is packed into a struct column of its own beside a tag, all are united, and inside the
batch each sink gets its rows back by the tag. A pipeline with one output runs it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Final

from seamark._logs import logger_named
from seamark.errors import InvalidInputError, RefusedError
from seamark.manifest import ConnectorCheckpoint
from seamark.sinks.contract import Sink
from seamark.spark.computation import Operator, operators_of, python_functions
from seamark.spark.plan import Sources, WatermarkInfo, analyzed, stateful_operators
from seamark.spark.tables import table_versions

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
class Compiled:
    """The one query of a pipeline, and what is known about it before it runs."""

    df: DataFrame
    outputs: tuple[Output, ...]
    leaves: tuple[str, ...]
    """The source of each line of the offset log."""
    watermarks: tuple[WatermarkInfo, ...]
    operators: tuple[str, ...]
    tables: dict[str, ConnectorCheckpoint]
    """What each reference table that is made of files consists of."""
    sources_of: dict[str, tuple[str, ...]]
    """Which sources each output reads."""
    warnings: tuple[str, ...]
    computes: dict[str, list[Operator]] = field(default_factory=dict)
    """What the operators and watermarks of each output compute."""
    python_functions: tuple[str, ...] = ()
    """Functions in Python, of which only the names are known."""

    @property
    def is_stateful(self) -> bool:
        """Whether anything keeps state."""
        return bool(self.operators)

    def rows_of(self, batch: DataFrame, number: int) -> DataFrame:
        """The rows of one output out of the rows of all."""
        if len(self.outputs) == 1:
            return batch
        return batch.where(f"{_TAG} = {number}").select(f"o{number}.*")


def compile_outputs(outputs: Sequence[Output], sources: Sources) -> Compiled:
    """Unite the outputs; :class:`RefusedError` for what one query cannot carry."""
    if not outputs:
        raise InvalidInputError(
            "the pipeline has no sink", hint='Declare one: p.sink("name", df, FileSink(path)).'
        )
    for output in outputs:
        _check_output(output)
    plans = {output.name: analyzed(output.df) for output in outputs}
    leaves = {name: tuple(sources.of(plan)) for name, plan in plans.items()}
    united = _united([output.df for output in outputs])
    plan = analyzed(united)
    watermarks = tuple(sources.watermarks(plan))
    warnings = _shared_watermark({n: set(found) for n, found in leaves.items()}, watermarks)
    for text in warnings:
        log.warning(text)
    return Compiled(
        united,
        tuple(outputs),
        tuple(sources.of(plan)),
        watermarks,
        tuple(
            f"{output.name}: {kind}"
            for output in outputs
            for kind in stateful_operators(plans[output.name])
        ),
        table_versions(plan),
        {name: tuple(dict.fromkeys(found)) for name, found in leaves.items()},
        tuple(warnings),
        {
            name: found
            for name, each in plans.items()
            if (found := operators_of(each, sources.name_of))
        },
        tuple(python_functions(plan, united.sparkSession.sparkContext._jvm)),
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
                    f.struct(*(output[_quoted(name)] for name in output.columns))
                    if other == number
                    else f.lit(None).cast(schema)
                ).alias(f"o{other}")
                for other, schema in enumerate(schemas)
            ),
        )
        for number, output in enumerate(outputs)
    ]
    return reduce(lambda left, right: left.union(right), packed)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _shared_watermark(reads: dict[str, set[str]], watermarks: Sequence[WatermarkInfo]) -> list[str]:
    """Spark has one watermark a query: the slowest source would hold back outputs of others."""
    groups: list[tuple[set[str], set[str]]] = []
    for name, sources in reads.items():
        touching = [group for group in groups if group[1] & sources]
        merged = ({name}, set(sources))
        for names, read in touching:
            merged = (merged[0] | names, merged[1] | read)
        groups = [group for group in groups if group not in touching] + [merged]
    found = []
    if len(groups) > 1:
        apart = "; ".join(f"{', '.join(sorted(n))} read {', '.join(sorted(s))}" for n, s in groups)
        if watermarks:
            raise RefusedError(
                "outputs that share no source cannot share a watermark",
                where=f"{apart}. Spark keeps one watermark for the whole query, so a quiet source "
                "would hold back the outputs of the others.",
                hint="Make a pipeline with a store of its own for each group.",
            )
        found.append(
            f"outputs share no source ({apart}): they commit together, so the slower source sets "
            "the pace. Two pipelines would be independent."
        )
    delays = {mark.delay_ms for mark in watermarks}
    if len(delays) > 1:
        told = ", ".join(f"{mark.column} {mark.delay_ms / 1000:g} s" for mark in watermarks)
        found.append(f"watermarks have different delays ({told}); Spark takes the slowest for all")
    return found
