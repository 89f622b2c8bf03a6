"""Cases of values through sinks: made by chance, run, and held against what Spark has computed."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seamark import Pipeline, open_store
from seamark.audit.auditing import audit
from seamark.errors import SeamarkError
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch, through_json
from tests.pipeline.support.plain_values import Row, rows_of
from tests.pipeline.support.random_values import (
    ID,
    ODD_NAMES,
    PLAIN,
    Case,
    Column,
    output_of,
    random_column,
    random_kind,
    source_schema,
    values_of,
    write_source,
)
from tests.pipeline.support.value_target import Services, Target
from tests.pipeline.support.value_targets import TARGETS, Files
from tests.pipeline.support.workloads import settings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS: Final = 12
_ZONES: Final = ("UTC", "America/New_York", "Europe/Berlin", "Asia/Kathmandu", "Pacific/Apia")
_MODES: Final = {
    "delta": ("append", "append", "upsert", "overwrite"),
    "iceberg": ("append", "append", "upsert", "overwrite"),
    "postgres": ("append", "upsert"),
    "view-rocksdb": ("upsert",),
    "view-redis": ("upsert",),
}
_KEYS: Final = {
    "delta": tuple(kind for kind in PLAIN if kind != "binary"),
    "iceberg": tuple(kind for kind in PLAIN if kind not in ("float", "double")),
}
_PARTITIONED: Final = ("files", "delta", "iceberg")
_SETTINGS: Final = {
    "spark.sql.session.timeZone": _ZONES,
    "spark.sql.legacy.timeParserPolicy": ("LEGACY",),
    "spark.sql.ansi.enabled": ("false",),
    "spark.sql.execution.arrow.maxRecordsPerBatch": ("2",),
    "spark.sql.execution.arrow.useLargeVarTypes": ("true",),
    "spark.sql.parquet.writeLegacyFormat": ("true",),
    "spark.sql.timestampType": ("TIMESTAMP_NTZ",),
    "spark.sql.caseSensitive": ("true",),
    "spark.sql.jsonGenerator.ignoreNullFields": ("false",),
    "spark.sql.parquet.outputTimestampType": ("INT96", "TIMESTAMP_MICROS"),
}
_HEADERS: Final = "array<struct<`key`:string,`value`:binary>>"
_QUICK: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""A few rows take a hundred times less than to compile what they are computed by."""
_SOURCE: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
}


def random_case(dice: random.Random, sink: str) -> Case:
    mode = dice.choice(_MODES.get(sink, ("append",)))
    columns = [Column(ID, "int", tuple(f"int({n})" for n in range(_ROWS)))]
    names = [each for each in dice.sample(ODD_NAMES, len(ODD_NAMES)) if fits_name(sink, each)]
    keys: list[str] = []
    for _ in range(dice.choice((1, 1, 2)) if mode == "upsert" else 0):
        kind = dice.choice(_KEYS.get(sink, PLAIN))
        columns.append(random_column(dice, names.pop(), kind, _ROWS, unique=True))
        keys.append(columns[-1].name)
    for _ in range(dice.choice((2, 3, 4))):
        kind = next(each for each in iter(lambda: random_kind(dice), "") if fits_kind(sink, each))
        columns.append(random_column(dice, names.pop(), kind, _ROWS))
    if sink == "kafka" and dice.random() < 0.5:
        columns.append(random_column(dice, names.pop(), _HEADERS, _ROWS))
    plain = [each.name for each in columns[1:] if "<" not in each.kind]
    by: tuple[str, ...] = ()
    if sink.startswith(_PARTITIONED) and plain and dice.random() < 0.5:
        by = tuple(dice.sample(plain, min(len(plain), dice.choice((1, 1, 2)))))
    settings = {
        name: dice.choice(values) for name, values in _SETTINGS.items() if dice.random() < 0.12
    }
    number = dice.randrange(10_000)
    is_piped = number % 12 == 0 and sink != "kafka"
    settings |= _QUICK if number % 8 else {}
    return Case(sink, tuple(columns), mode, tuple(keys), by, number, settings, is_piped)


def fits_name(sink: str, name: str) -> bool:
    """Whether a target takes the name of a column, as docs/ say."""
    return sink != "delta" or not re.search(r"[ ,;{}()\n\t=]", name)


def fits_kind(sink: str, kind: str) -> bool:
    """Whether a target takes a type, and can be read again, as docs/ say."""
    is_rare = kind.startswith(("interval", "variant"))
    if sink == "files-csv":
        return not re.search("<|binary|variant", kind)
    if sink == "files-json":
        return not re.search("map<(?!string)|variant", kind)
    if sink == "files-orc":
        return not re.search("collate|variant", kind)
    return sink.startswith(("files", "function")) or not is_rare


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    wrong: str = ""
    """Why it is a bug; empty when it is none."""
    refusal: str = ""
    """How it was refused; empty when all epochs were shown."""


def outcome(spark: SparkSession, root: Path, case: Case, services: Services) -> Outcome:
    """Write the case, in a pipeline or by the sink alone, and compare what its reader sees."""
    root.mkdir(parents=True)
    with settings_of(spark, case.settings):
        df = output_of(values_of(spark, case), case)
    wanted = rows_of(df)
    size = len(wanted) // case.epochs
    epochs = [wanted[first : first + size] for first in range(0, len(wanted), size)]
    target = TARGETS[case.sink](spark, case, df.schema, root, services)
    write = _piped if case.is_piped else _staged
    decided, refusal, wrong = write(spark, root, case, target)
    if target.unreadable():
        return Outcome("; ".join(wrong), refusal)
    with settings_of(spark, case.settings):
        frame = output_of(values_of(spark, case), case)
    wrong += _differences(target, epochs[:decided], frame)
    if decided < len(epochs) and not refusal:
        wrong.append(f"{decided} epochs")
    return Outcome("; ".join(wrong), refusal)


def _staged(
    spark: SparkSession, root: Path, case: Case, target: Target
) -> tuple[int, str, list[str]]:
    """Take two epochs through the steps of a sink: how many were decided, and what stopped it."""
    decided = shown = 0
    try:
        sink = target.sink()
        sink.default_staging = str(root / "default")
        sink.open(PIPELINE, SINK, target.schema)
        sink.prepare_target()
        for number in range(case.epochs):
            with settings_of(spark, case.settings):
                df = output_of(values_of(spark, case, number), case)
                sink.stage(df, epoch(number + 1), f"a{number}")
            committable = through_json(sink.prepare())
            decided += 1
            sink.commit(committable)
            shown += 1
        sink.close()
    except Exception as error:  # noqa: BLE001 - what it is decides
        return decided, *_told(error, is_decided=decided > shown)
    return decided, "", []


def _piped(
    spark: SparkSession, root: Path, case: Case, target: Target
) -> tuple[int, str, list[str]]:
    """The same in a pipeline, with an audit of what it shows."""
    schema = source_schema(case)
    stopped: tuple[str, list[str]] = "", []
    with settings_of(spark, {**case.settings, **_SOURCE}):
        write_source(spark, case, root)
    with settings_of(spark, case.settings):
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        p = Pipeline("values", root / "store", progress=None)
        rows = p.source("rows", stream.parquet(str(root / "in")))
        try:
            p.sink("out", output_of(rows, case), target.sink())
            p.run()
        except Exception as error:  # noqa: BLE001 - what it is decides
            stopped = _told(error, is_decided=False)
    with open_store(root / "store") as store:
        decided = len([*store.list()])
        is_audited = decided and not case.sink.startswith(("view", "function"))
        report = audit(store, lambda: spark) if is_audited and not target.unreadable() else None
    if report is not None and report.is_damaged:
        verdicts = [(str(v.result), v.text) for each in report.sinks for v in each.verdicts]
        stopped[1].append(f"audit: {verdicts}")
    return decided, *stopped


def _told(error: Exception, *, is_decided: bool) -> tuple[str, list[str]]:
    refusal = f"{type(error).__name__}: {error}"
    if not isinstance(error, SeamarkError):
        refusal = f"not told in words: {refusal}"
    return refusal, [f"decided, and cannot be shown: {refusal[:500]}"] if is_decided else []


def _differences(target: Target, epochs: list[list[Row]], frame: DataFrame) -> list[str]:
    wanted = [
        {name: target.kept(name, value) for name, value in row.items()}
        for row in expected(target, epochs)
    ]
    try:
        found = target.rows()
    except Exception as error:  # noqa: BLE001 - a reader that fails is what is looked for
        return [f"the reader: {type(error).__name__}: {str(error)[:600]}"]
    problems = target.missed()
    here, there = ({row[ID]: row for row in rows} for rows in (found, wanted))
    counts = Counter(row[ID] for row in found)
    if twice := [key for key, count in counts.items() if count > 1]:
        problems.append(f"rows {twice} are there twice")
    if here.keys() != there.keys():
        problems.append(f"rows {sorted(here)} instead of {sorted(there)}")
    differing: list[tuple[Any, ...]] = [
        (key, name, here[key][name], there[key][name])
        for key in here.keys() & there.keys()
        for name in there[key]
        if here[key].get(name, "no column") != there[key][name]
    ]
    if differing and isinstance(target, Files):
        stock = _of_stock(target, frame)
        if isinstance(stock, str):
            return [*problems, f"{stock}, and {differing[:4]}"]
        differing = [
            (k, n, is_, was, stock.get(k, {}).get(n, "nothing"))
            for k, n, is_, was in differing
            if stock.get(k, {}).get(n, "nothing") != is_
        ]
    return [*problems, *(f"{each}"[:700] for each in differing[:6])]


def _of_stock(target: Target, frame: DataFrame) -> dict[Any, Row] | str:
    try:
        with settings_of(target.spark, target.case.settings):
            rows = target.stock(frame)
    except Exception as error:  # noqa: BLE001 - told beside the difference
        return f"stock Spark: {type(error).__name__}: {str(error)[:300]}"
    return {row[ID]: row for row in rows or ()}


def expected(target: Target, epochs: list[list[Row]]) -> list[Row]:
    """What has to be seen of these epochs."""
    case = target.case
    if case.mode == "overwrite":
        return epochs[-1] if epochs else []
    if case.mode != "upsert":
        return [row for rows in epochs for row in rows]
    newest: dict[Any, Row] = {}
    for rows in epochs:
        for row in rows:
            newest[tuple(target.same_key(row[name]) for name in case.keys)] = row
    return [*newest.values()]


def narrowed(case: Case, refusal: str) -> Case | None:
    """The case without the column that a refusal names; None when it names none."""
    for each in case.columns[1:]:
        if each.name in case.keys:
            continue
        names = (repr(each.name), f"'{each.name}'", f'"{each.name}"')
        if any(name in refusal for name in names):
            left = case.without(each.name)
            return left if len(left.columns) > 1 else None
    return None


def named(case: Case, refusal: str) -> bool:
    """Whether a refusal tells which column or type it is about."""
    texts = {each.name for each in case.columns[1:]} | {
        re.split(r"[<( ]", each.kind)[0] for each in case.columns[1:]
    }
    return any(text in refusal for text in texts)
