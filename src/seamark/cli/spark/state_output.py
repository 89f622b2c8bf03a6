"""Rows of state on the screen or in a file: a table, JSON, CSV or Parquet.

Tests: ``tests/cli/spark/test_state.py``.
"""

from __future__ import annotations

import csv
import glob
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TextIO

from seamark._common.text import size_text
from seamark.checkpoint_dir.places.directory import Directory
from seamark.cli.layout import plural, print_paragraph, print_rows
from seamark.cli.output import Document, print_hint, print_json
from seamark.errors import RefusedError
from seamark.native.state_choice import StateRequest, StateSelection, choose
from seamark.native.state_rows import plain_row
from seamark.reports.state_rows import flat_row, read_state, rows_document, settled
from seamark.spark.own_session import a_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMATS: Final = ("table", "json", "parquet", "csv")
_MOST_COLUMNS: Final = 5


@dataclass(frozen=True)
class RowOutput:
    """Where the rows go."""

    form: str
    output: str | None
    limit: int
    """0 is all."""


def require_new(path: str | None) -> None:
    """:class:`RefusedError` when the file is there already: nothing is overwritten."""
    if path is not None and os.path.lexists(path):
        raise RefusedError(
            "the file is there already, and nothing is overwritten",
            where=path,
            hint="Choose another name, or remove it first.",
        )


def write_rows(directory: Directory, asked: StateRequest, destination: RowOutput) -> None:
    """Have Spark read, and put the rows where they are wanted."""

    def write(frame: DataFrame, reading: StateSelection) -> None:
        if destination.form == "parquet":
            _write_parquet(frame, destination)
        elif destination.form == "csv":
            _write_csv(frame, destination)
        else:
            _write_document(rows_document(frame, reading, destination.limit), destination)

    settled(directory, partial(choose, asked=asked))  # what cannot be, before Spark starts
    spark = a_session()
    spark.sparkContext.setLogLevel("OFF")  # its errors are reported once, by us
    try:
        read_state(directory, asked, spark, write)
    finally:
        spark.sparkContext.setLogLevel("ERROR")


def _write_document(document: Document, destination: RowOutput) -> None:
    if destination.form == "table":
        _show(document)
    elif destination.output is None:
        print_json(document, is_data=True)
    else:
        with _new_file(destination.output) as file:
            json.dump(document, file, ensure_ascii=False)
            file.write("\n")
        _tell_written(destination.output, len(document["rows"]))


# a table


def _show(document: Document) -> None:
    rows = [flat_row(row) for row in document["rows"]]
    names = list(rows[0]) if rows else []
    if len(names) > _MOST_COLUMNS:
        rows, names = document["rows"], [column["name"] for column in document["columns"]]
    name = f"operator {document['operator']} ({document['name']})"
    if document["changes"]:
        first, last = document["changes"]
        print_paragraph(f"{name}, what batches {first} to {last} changed")
    else:
        print_paragraph(f"{name}, state after batch {document['batch']}")
    if not rows:
        print_paragraph("No rows.")
        return
    right = {n for n in names if all(_is_number(row.get(n)) for row in rows)}
    print_rows(
        [n.replace(" ", "_") for n in names],
        [[_cell(row.get(n)) for n in names] for row in rows],
        right=" ".join(n.replace(" ", "_") for n in right),
    )
    if document["truncated"]:
        print_hint(f"More than these {len(rows)} rows: --limit, or --format parquet --output FILE.")


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value.replace("\n", "\\n")
    return json.dumps(value, ensure_ascii=False)


# files


def _write_csv(frame: DataFrame, destination: RowOutput) -> None:
    names = [field.name for field in frame.schema.fields]
    limited = frame.limit(destination.limit) if destination.limit else frame
    plain_rows = (plain_row(row, frame.schema) for row in limited.toLocalIterator())
    first = next(plain_rows, None)  # Spark's errors come before anything is written
    rows = itertools.chain([] if first is None else [first], plain_rows)
    if destination.output is None:
        # all or nothing: when the query removes some of it meanwhile, a newer batch is read
        with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as whole:
            _put_csv(whole, names, rows)
            whole.seek(0)
            shutil.copyfileobj(whole, sys.stdout)
        return
    with _new_file(destination.output) as file:
        count = _put_csv(file, names, rows)
    _tell_written(destination.output, count)


def _put_csv(file: TextIO, names: list[str], rows: Iterator[Document]) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007 - the last number is how many there were
        writer.writerow(
            json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
            for value in map(row.get, names)
        )
    return count


def _write_parquet(frame: DataFrame, destination: RowOutput) -> None:
    """One file, written by one task of Spark's, so that it need not fit into memory."""
    assert destination.output is not None
    limited = frame.limit(destination.limit) if destination.limit else frame
    near = os.path.dirname(os.path.abspath(destination.output))
    scratch = tempfile.mkdtemp(prefix=".seamark-state-", dir=near)
    try:
        limited.coalesce(1).write.parquet(f"file://{scratch}/rows")
        parts = glob.glob(f"{glob.escape(scratch)}/rows/part-*.parquet")
        if len(parts) != 1:
            raise RefusedError(
                "Spark has not written the rows on this machine",
                hint="Its executors are elsewhere. Unset MASTER, so that a local Spark reads.",
            )
        with _new_file(destination.output):
            os.replace(parts[0], destination.output)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _tell_written(destination.output, None)


@contextmanager
def _new_file(path: str) -> Iterator[TextIO]:
    """A file that was not there before, and is not there when writing it fails."""
    try:
        file = open(path, "x", encoding="utf-8", newline="")  # noqa: SIM115 - closed below
    except FileExistsError:
        require_new(path)
        raise
    except OSError as error:
        raise RefusedError(f"the file cannot be written: {error.strerror}", where=path) from None
    try:
        with file:
            yield file
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


def _tell_written(path: str, count: int | None) -> None:
    rows = "" if count is None else f"{plural(count, 'row')}, "
    print_paragraph(f"{path}: {rows}{size_text(os.path.getsize(path))}")
