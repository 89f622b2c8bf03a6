"""What a plan tells before it runs: its sources, watermarks, stateful operators and tables.

Tests: ``tests/spark/test_computation.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from seamark._redaction import redacted
from seamark.errors import InvalidInputError, RefusedError
from seamark.manifest import ConnectorCheckpoint
from seamark.spark.plans.lossy_options import lossy_options
from seamark.spark.plans.parsing_options import parsing_of
from seamark.spark.plans.static_tables import identity_of, static_parts, table_versions
from seamark.spark.plans.trees import each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SECRET_FREE: Final = frozenset(
    {
        "path",
        "subscribe",
        "subscribepattern",
        "assign",
        "topic",
        "rowspersecond",
        "rowsperbatch",
        "numpartitions",
        "header",
        "multiline",
        "recursivefilelookup",
        "pathglobfilter",
        "latestfirst",
        "filenameonly",
        "dbtable",
        "table",
    }
)
"""Options that say what is read. All others may hold secrets, or say only how fast it is read."""

_SECRET_FREE_IN: Final = {"seamark_table": frozenset({"key", "columns"})}
"""Names that say what is read in one format, and might be anything in another."""

_FILE_SOURCE: Final = "FileSource["
"""How the name begins that Spark gives to a stream of files."""

_STATEFUL: Final = {
    "GlobalLimit": "limit",
    "Aggregate": "aggregation",
    "Deduplicate": "deduplication",
    "DeduplicateWithinWatermark": "deduplication within the watermark",
    "Distinct": "deduplication",
    "Except": "aggregation for except",  # what Spark makes of it; an intersect it refuses
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPandas": "transformWithState",  # its name in Spark 4.0
    "TransformWithStateInPySpark": "transformWithState",
    "Join": "stream-stream join",
}
_KEEPS_ORDER: Final = frozenset(
    {"CollectMetrics", "Filter", "Project", "ResolvedHint", "SubqueryAlias", "View"}
)


@dataclass(frozen=True)
class SourceInfo:
    """What is read, without secrets."""

    format: str
    options: dict[str, str]
    may_lose: dict[str, str] = field(default_factory=dict)
    """Options that let rows be skipped without an error."""
    begins: str = ""
    """Where the first start begins, when that is not with the first row."""
    reads_files: bool = False
    """Whether Spark lists the files of a path and notes them in a log, in whatever format."""
    parsing: Any = None
    """How its files are made rows of; see :mod:`seamark.spark.plans.parsing_options`."""


@dataclass(frozen=True)
class WatermarkInfo:
    """One ``withWatermark`` of a plan."""

    node_id: str
    column: str
    delay_ms: int
    sources: tuple[str, ...]
    rows: frozenset[int] = frozenset()
    """Numbers that stand for the rows that it counts, as ``watermark_rows`` gives them."""

    @property
    def counts(self) -> tuple[frozenset[int], int]:
        """Equal for two that are at the same time at every moment."""
        return self.rows, self.delay_ms


class NamedTable(NamedTuple):
    """A reference table that was declared."""

    places: tuple[tuple[str, ...], ...]
    """Where each part is whose version is known."""
    version: ConnectorCheckpoint | None


class PlanSources:
    """The declared sources of a pipeline, recognised by identity wherever they appear."""

    def __init__(self) -> None:
        self._names: Any = None
        self._table_names: Any = None
        self._leaves: dict[str, Any] = {}
        self.info: dict[str, SourceInfo] = {}
        self.tables: dict[str, NamedTable] = {}
        """Declared reference tables."""

    def add(self, name: str, df: DataFrame) -> None:
        """Remember what a DataFrame reads as ``name``."""
        streams = [leaf for leaf in leaves(df) if leaf.isStreaming()]
        if len(streams) != 1:
            what = "reads no stream" if not streams else f"reads {len(streams)} streams"
            raise InvalidInputError(
                f"source {name!r} {what}",
                hint="Give each result of spark.readStream…load() to source() by itself.",
            )
        if self._names is None:
            self._names = _identity_map(df)
        key = _identity(streams[0])
        known = self._names.get(key)
        if known is not None:
            raise InvalidInputError(f"source {name!r} is the same stream as {known!r}")
        self._names.put(key, name)
        self._leaves[name] = streams[0]
        self.info[name] = _describe(streams[0])

    def add_table(self, name: str, df: DataFrame, version: ConnectorCheckpoint | None) -> None:
        """Remember a reference table as ``name``, with its version where that is known."""
        if df.isStreaming:
            raise InvalidInputError(
                f"table {name!r} is a stream", hint="Give streams to p.source, tables to p.table."
            )
        places = tuple(part.place for part in static_parts(analyzed(df)))
        self.tables[name] = NamedTable(places, version)
        if self._table_names is None:
            self._table_names = _identity_map(df)
        for number, leaf in enumerate(leaves(df)):
            if (key := identity_of(leaf)) is not None:
                self._table_names.putIfAbsent(key, f"{name}+{number}" if number else name)

    def table_of(self, leaf: Any) -> str:
        """The name of the declared table that a leaf is; the empty text for anything else."""
        key = None if self._table_names is None else identity_of(leaf)
        return "" if key is None else str(self._table_names.get(key) or "")

    def versions(self, plan: Any) -> dict[str, ConnectorCheckpoint]:
        """The version of each reference table below a plan, the declared ones by their names."""
        names = {
            place: name if number == 0 else f"{name}+{number}"
            for name, table in self.tables.items()
            for number, place in enumerate(table.places)
        }
        given = {name: t.version for name, t in self.tables.items() if t.version is not None}
        # one without rows has no files, and is not in the plan
        return {**table_versions(plan, names), **given}

    def options_of(self, name: str) -> dict[str, str]:
        """All options of a source, its secrets among them, by their names in lower case."""
        return {key.lower(): value for key, value in given_options(self._leaves[name])[1].items()}

    def name_of(self, leaf: Any) -> str:
        """The name of the stream that a leaf of a plan is; ``table`` for anything else."""
        if self._names is None or not leaf.isStreaming():
            return "table"
        return str(self._names.get(_identity(leaf)) or "table")

    def of(self, plan: Any) -> list[str]:
        """Names of the streams below a plan, leaf by leaf, as the offset log lists them."""
        described = []
        for leaf in each(plan.collectLeaves()):
            if not leaf.isStreaming():
                continue
            name = self._names.get(_identity(leaf)) if self._names is not None else None
            if name is None:
                raise RefusedError(
                    f"an output reads a stream ({_describe(leaf).format}) that is not a source of "
                    "the pipeline",
                    hint="Pass each result of spark.readStream…load() through "
                    'p.source("name", df) and build on what that returns.',
                )
            described.append(str(name))
        return described

    def read_apart(self, plan: Any) -> tuple[str, ...]:
        """Sources that Spark reads several times, each time with a position and a log of its own.

        A source that is joined with itself is; one that several outputs read is not.
        """
        names = Counter(self.name_of(leaf) for _, leaf in _readings(plan))
        return tuple(name for name, times in names.items() if times > 1)

    def watermarks(self, plan: Any) -> list[WatermarkInfo]:
        """Every ``withWatermark`` below a plan and the sources under it."""
        by_source: dict[str, WatermarkInfo] = {}
        for node in nodes(plan):
            if node.getClass().getSimpleName() == "EventTimeWatermark":
                node_id = str(node.nodeId().toString())
                column = str(node.eventTime().name())
                sources = tuple(dict.fromkeys(self.of(node)))
                by_source[node_id] = WatermarkInfo(node_id, column, delay_ms(node), sources)
        return list(by_source.values())


def first_lines(plan: Any) -> tuple[int, ...]:
    """For each folder that Spark keeps below ``sources/``: its first line of the offset log.

    There is a line for each leaf that is a stream, and a folder for each that differs.
    """
    return tuple(line for line, _ in _readings(plan))


def _readings(plan: Any) -> list[tuple[int, Any]]:
    """Streams that Spark reads apart, each with the first line of the offset log that it has."""
    readings: list[tuple[int, Any]] = []
    streams = (leaf for leaf in each(plan.collectLeaves()) if leaf.isStreaming())
    for line, leaf in enumerate(streams):
        if not any(leaf.equals(known) for _, known in readings):
            readings.append((line, leaf))
    return readings


def analyzed(df: DataFrame) -> Any:
    """The analysed logical plan of a DataFrame."""
    jdf: Any = df._jdf
    return jdf.queryExecution().analyzed()


def leaves(df: DataFrame) -> Iterator[Any]:
    """The leaves of a DataFrame's plan, from left to right."""
    yield from each(analyzed(df).collectLeaves())


def nodes(plan: Any) -> Iterator[Any]:
    """A plan and everything below it, parents first."""
    yield plan
    for child in each(plan.children()):
        yield from nodes(child)


def stateful_operators(plan: Any) -> list[str]:
    """What keeps state below a plan, in words, in the order of the plan."""
    return [kind for node in nodes(plan) if (kind := stateful_kind(node)) is not None]


def stateful_kind(node: Any) -> str | None:
    """What a node keeps state for, in words, or None when it keeps none."""
    kind = _STATEFUL.get(node.getClass().getSimpleName())
    if kind is None or not node.isStreaming():
        return None
    if kind == "stream-stream join" and not all(c.isStreaming() for c in each(node.children())):
        return None  # a join with a table keeps nothing
    return kind


def is_sorted(plan: Any) -> bool:
    """Whether the rows of a plan come in an order that was asked for."""
    while plan.getClass().getSimpleName() in _KEEPS_ORDER:
        plan = plan.children().head()
    return bool(plan.getClass().getSimpleName() == "Sort")


def _identity_map(df: DataFrame) -> Any:
    jvm: Any = df.sparkSession.sparkContext._jvm
    return jvm.java.util.IdentityHashMap()


def _identity(leaf: Any) -> Any:
    """The object that stays the same when Spark copies a leaf (a self-join renews its columns)."""
    kind = leaf.getClass().getSimpleName()
    if kind == "StreamingRelation":
        return leaf.dataSource()
    if kind == "StreamingRelationV2":
        return leaf.table()
    if kind == "CTERelationRef":
        raise RefusedError(
            "an output uses a query with a name (WITH) several times, each with other rows",
            hint="Spark computes it once for all of them only if it is deterministic. Leave out "
            "rand(), uuid() and the like, or write the query as a DataFrame for each use.",
        )
    raise RefusedError(
        f"a pipeline cannot read a stream of the kind {kind}",
        hint="Known are streams made by spark.readStream…load().",
    )


def given_options(leaf: Any) -> tuple[str, dict[str, str]]:
    """The format of a stream, and its options."""
    kind = leaf.getClass().getSimpleName()
    options: dict[str, str] = {}
    if kind == "StreamingRelation":
        for pair in each(leaf.dataSource().options().toSeq()):
            options[str(pair._1())] = str(pair._2())
        return str(leaf.dataSource().className()), options
    if kind == "StreamingRelationV2":
        pairs = leaf.extraOptions().asCaseSensitiveMap()
        return str(leaf.sourceName()), {str(k): str(pairs.get(k)) for k in pairs.keySet().toArray()}
    return kind, options


def _describe(leaf: Any) -> SourceInfo:
    name, options = given_options(leaf)
    name = name.rsplit(".", 1)[-1]
    harmless = _SECRET_FREE | _SECRET_FREE_IN.get(name, frozenset())
    allowed = {
        key.lower(): redacted(value) for key, value in options.items() if key.lower() in harmless
    }
    is_of_files = reads_files(leaf)
    columns = list(leaf.schema().fieldNames()) if is_of_files else []
    return SourceInfo(
        name,
        dict(sorted(allowed.items())),
        lossy_options(options),
        _beginning(name, options),
        is_of_files,
        parsing_of(name, options, columns) if is_of_files else None,
    )


def reads_files(leaf: Any) -> bool:
    """By what Spark calls the stream: formats go by several names, and anybody may add some."""
    is_old = leaf.getClass().getSimpleName() == "StreamingRelation"
    return is_old and str(leaf.sourceName()).startswith(_FILE_SOURCE)


def _beginning(format_name: str, options: dict[str, str]) -> str:
    """Kafka's default for a stream is to begin with what arrives after the first start."""
    given = {key.lower(): value for key, value in options.items()}
    start = given.get("startingoffsets", "latest")
    by_time = {"startingtimestamp", "startingoffsetsbytimestamp"} & given.keys()
    if format_name != "kafka" or start != "latest" or by_time:
        return ""
    return "begins with what arrives after the first start (startingOffsets=latest)"


def delay_ms(node: Any) -> int:
    """The delay of a watermark."""
    delay = node.delay()
    period = delay.extractAsPeriod()
    # Spark counts a month as 31 days here too
    days = int(period.toTotalMonths()) * 31 + int(period.getDays())
    return days * 86_400_000 + int(delay.extractAsDuration().toMillis())
