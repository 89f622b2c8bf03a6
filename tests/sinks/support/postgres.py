"""Tables of PostgreSQL under a sink, with and without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import conninfo
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from seamark.sinks import Committable, Epoch, PostgresSink
from seamark.sinks.postgres.copying import Copied, _task
from seamark.testing.conformance.sink_examples import epoch, through_json
from tests.sinks.support.starting import started

ROWS = "CREATE TABLE rows (n bigint, word text, at_epoch bigint)"
KEYED = "CREATE TABLE rows (n bigint PRIMARY KEY, word text)"
STATEMENTS = r"^Connection\.(connect|execute|commit|close)$"
"""The calls of a sink that the server answers."""


def run(dsn: str, *statements: str) -> None:
    """Run statements, each on its own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def empty(dsn: str) -> None:
    """Remove everything from a database."""
    schemas = "SELECT quote_ident(nspname) FROM pg_namespace WHERE nspname !~ '^(pg_|information)'"
    for (schema,) in rows_of(dsn, schemas):
        run(dsn, f"DROP SCHEMA {schema} CASCADE")
    run(dsn, "CREATE SCHEMA public", "GRANT USAGE ON SCHEMA public TO PUBLIC")


def rows_of(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query.encode()).fetchall()


def numbers(dsn: str) -> list[int]:
    """What readers see."""
    return sorted(n for (n,) in rows_of(dsn, "SELECT n FROM rows"))


def with_options(dsn: str, **options: Any) -> str:
    """The same address with other options."""
    return conninfo.make_conninfo(dsn, **options)


def schema_of(**columns: DataType) -> StructType:
    """The schema of an output, without a Spark."""
    return StructType([StructField(name, kind) for name, kind in columns.items()])


NUMBERS = schema_of(n=LongType(), word=StringType())


def opened(dsn: str, table: str | tuple[str, str] = "rows", **options: Any) -> PostgresSink:
    """A sink as a process that has just started would use it."""
    return started(PostgresSink(dsn, table, **options), NUMBERS)


def batches_of(values: Sequence[int], word: str = "") -> Iterable[pa.RecordBatch]:
    """Rows as a task of Spark gets them."""
    words = [word or str(value) for value in values]
    yield pa.RecordBatch.from_pydict({"n": pa.array(values, pa.int64()), "word": words})


def batches_from(df: Any) -> Iterable[pa.RecordBatch]:
    """The same for rows of a frame, one after the other: reading them may fail on the way."""
    for row in df.toLocalIterator():
        yield from batches_of([row.n], row.word)


def copy(sink: PostgresSink, attempt: str, batches: Iterable[pa.RecordBatch]) -> Copied:
    """Copy rows as one task of Spark would."""
    statement = sink._staging.copy_statement(attempt, ["n", "word"])
    reports = [
        row for b in _task(sink._address.dsn, statement, {})(batches) for row in b.to_pylist()
    ]
    assert all(report["problem"] is None for report in reports)
    return Copied([r["token"] for r in reports], sum(r["rows"] for r in reports))


def stage(
    sink: PostgresSink, values: Sequence[int], about: Epoch, attempt: str, word: str = ""
) -> Committable:
    """Stage and prepare rows without a Spark; the committable as a checkpoint keeps it."""
    sink._begin(about, attempt)
    copied = copy(sink, attempt, batches_of(values, word))
    sink._staged = sink._prepared(about, attempt, copied)
    return through_json(sink.prepare())


def show(sink: PostgresSink, values: Sequence[int], number: int, word: str = "") -> Committable:
    """Take rows through all steps without a Spark."""
    committable = stage(sink, values, epoch(number), f"a-{uuid.uuid4().hex}", word)
    sink.commit(committable)
    return committable
