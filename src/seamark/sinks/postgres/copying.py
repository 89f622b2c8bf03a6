"""Copying rows into a staging table, by the tasks of a Spark job.

Each try of a task copies its rows in one transaction under a token of its own, and reports the
token once that is committed. A try that is lost, repeated or run twice leaves rows under a token
that nobody was told: they are never read.

Tests: ``tests/sinks/test_postgres_columns.py``.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from seamark.errors import RefusedError
from seamark.sinks.postgres.connections import connected, first_line, in_own_path
from seamark.sinks.postgres.values import UnstorableTextError, as_csv
from seamark.sinks.tables.row_transfer import mapped_in_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg import Error
    from pyspark.sql import DataFrame

_REPORT: Final = "token string, rows long, problem string"
_COLUMN: Final = re.compile(r"^COPY .*, line \d+, column (.*?)(?:: |$)", re.MULTILINE)


@dataclass(frozen=True)
class Copied:
    """What the tasks have copied."""

    tokens: list[str]
    rows: int


def copy_rows(
    df: DataFrame, dsn: str, statement: str, where: str, lengths: Mapping[str, int] | None = None
) -> Copied:
    """Run ``COPY … FROM STDIN (FORMAT csv)`` in every task.

    The columns of the statement are those of ``df``, then the token; ``lengths`` says of some how
    many characters they may have. :class:`RefusedError` when PostgreSQL does not accept a row.
    """
    task = _task(dsn, statement, dict(lengths or {}))
    reports = mapped_in_arrow(df, task, _REPORT).collect()
    for report in reports:
        if report.problem is not None:
            raise RefusedError(report.problem, where=where)
    return Copied(sorted(report.token for report in reports), sum(r.rows for r in reports))


def _task(
    dsn: str, statement: str, lengths: dict[str, int]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import psycopg
        import pyarrow as pa

        waiting = iter(batches)
        first = next((batch for batch in waiting if batch.num_rows), None)
        if first is None:
            return
        token, rows, problem = str(uuid.uuid4()), 0, None
        try:
            with (
                connected(dsn) as connection,
                in_own_path(connection),
                connection.cursor().copy(statement.encode()) as copying,
            ):
                for batch in chain((first,), waiting):
                    rows += batch.num_rows
                    copying.write(as_csv(batch, token, lengths))
        except UnstorableTextError as error:
            problem = str(error)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            # not worth another try of the task, unlike a connection that is lost
            problem = _refusal(error)
        report = {"token": [token], "rows": [rows], "problem": pa.array([problem], pa.string())}
        yield pa.RecordBatch.from_pydict(report)

    return copy


def _refusal(error: Error) -> str:
    """What PostgreSQL says against a row, with the name of the column where it tells."""
    column = _COLUMN.search(error.diag.context or "")
    about = f" (column {column[1]!r})" if column else ""
    said = error.diag.message_primary or first_line(error)
    return f"PostgreSQL does not accept a row: {said}{about}"
