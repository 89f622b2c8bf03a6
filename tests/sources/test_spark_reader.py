"""What Spark sees: its offsets, its partitions, its limits, and errors as texts."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from seamark.errors import (
    InvalidInputError,
    PositionUnavailable,
    RefusedError,
    SeamarkError,
)
from seamark.sources import SequencedSource, spark_reader
from seamark.sources.offsets import BEGINNING, Position
from seamark.sources.sequence_reader import Placed
from seamark.sources.sequenced import MAX_ROWS
from seamark.sources.spark_reader import SparkReader
from seamark.spark.error_transport import CrossingError, arrived, crossing
from seamark.spark.failures import explained
from tests.sources.support.examples import Numbers, reader_of

SCHEMA = StructType().add("number", "long").add("value", "string")
needs_4_2 = pytest.mark.skipif(
    not spark_reader.HAS_ADMISSION_CONTROL, reason="Spark has it since 4.2"
)


class Counted(SequencedSource):
    """Numbers as a data source."""

    def schema(self) -> str:
        return "number long, value string"

    def read_from(self, position: Position | None, limit: int) -> Iterator[Placed]:
        return Numbers(["x"] * int(self.options["rows"])).read_from(position, limit)


def reader_for(**options: str) -> DataSourceStreamReader:
    source: Counted = pickle.loads(pickle.dumps(Counted({"rows": "25", **options})))
    return source.streamReader(SCHEMA)


def rows_of(
    reader: DataSourceStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[Any]:
    there = pickle.loads(pickle.dumps(reader))  # partitions are read in other processes
    parts = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    return [row for part in parts for row in there.read(part)]


@needs_4_2
def test_spark_reads_epochs_of_at_most_max_rows_per_epoch() -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    reader = reader_for(max_rows_per_epoch="10")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    start = reader.initialOffset()
    found: list[Any] = []
    while (end := reader.latestOffset(start, limit)) != start:
        found += rows_of(reader, start, end)
        start = end
    assert found == [(n, "x") for n in range(25)]
    assert start["sequence"] == 25


@needs_4_2
def test_spark_is_told_that_it_can_limit_and_end_the_stream() -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow

    reader = reader_for()
    assert inspect.signature(reader.latestOffset).parameters  # how Spark finds out
    assert isinstance(reader, SupportsTriggerAvailableNow)
    assert reader.getDefaultReadLimit() == ReadMaxRows(MAX_ROWS)


@needs_4_2
def test_the_trigger_once_gets_everything_and_other_limits_are_refused() -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

    reader = reader_for(max_rows_per_epoch="10")
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["sequence"] == 25
    with pytest.raises(CrossingError, match="cannot be read by ReadMaxFiles"):
        reader.latestOffset(reader.initialOffset(), ReadMaxFiles(1))


@needs_4_2
@pytest.mark.parametrize("start", [None, {}, {"sequence": 3}, "latest"])
def test_an_unknown_start_fails_instead_of_reading_from_the_beginning(start: Any) -> None:
    reader = reader_for()
    with pytest.raises(CrossingError, match="cannot continue from"):
        reader.latestOffset(start, reader.getDefaultReadLimit())
    with pytest.raises(CrossingError, match="cannot continue from"):
        reader.partitions(start, BEGINNING.as_json())


def test_an_old_spark_passes_no_start_and_the_reader_remembers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark_reader, "HAS_ADMISSION_CONTROL", False)
    reader: Any = reader_for(max_rows_per_epoch="10")
    first, second = reader.latestOffset(), reader.latestOffset()
    assert (first["sequence"], second["sequence"]) == (10, 20)
    # a restart: Spark asks for no rows at the newest offset, then for the epoch to run again
    again: Any = reader_for(max_rows_per_epoch="10")
    assert list(again.partitions(second, second)) == []
    assert rows_of(again, first, second) == [(n, "x") for n in range(10, 20)]
    assert again.latestOffset()["sequence"] == 25


def test_the_reader_that_executors_get_is_empty() -> None:
    packed = pickle.dumps(reader_for(secret="hunter2-is-a-secret"))
    assert b"hunter2" not in packed


def test_large_epochs_travel_in_pieces_that_spark_does_not_warn_of() -> None:
    source = Numbers([f"{n:04}" * 250 for n in range(3_000)])
    reader = SparkReader(reader_of(source, 5_000), 5_000)
    end = reader_of(source, 5_000).end_after(BEGINNING, 5_000).as_json()
    parts = reader.partitions(BEGINNING.as_json(), end)
    assert len(parts) > 1
    assert all(len(part.value) < 1_000 * 1024 for part in parts)
    assert [row[0] for part in parts for row in reader.read(part)] == list(range(3_000))


@pytest.mark.parametrize("count", ["0", "-1", "many", "1.5", ""])
def test_a_limit_that_is_no_number_of_rows_is_refused(count: str) -> None:
    with pytest.raises(InvalidInputError, match="max_rows_per_epoch"):
        reader_for(max_rows_per_epoch=count)


@pytest.mark.parametrize("pause", ["-1", "soon", "nan", "inf", ""])
def test_a_pause_that_is_no_number_of_seconds_is_refused(pause: str) -> None:
    with pytest.raises(InvalidInputError, match="poll_seconds"):
        reader_for(poll_seconds=pause)


# errors


def test_columns_that_a_source_cannot_give_are_told_across() -> None:
    class Narrow(Counted):
        def use_schema(self, schema: StructType) -> None:
            raise InvalidInputError("too many columns")

    with pytest.raises(CrossingError, match="too many columns"):
        Narrow({}).streamReader(SCHEMA)


def across(error: SeamarkError) -> str:
    """The text as which Spark hands an error on."""
    try:
        with crossing():
            raise error
    except CrossingError as sent:
        return (
            "[STREAM_FAILED] Query x terminated with exception: Failed when Python streaming data "
            "source perform latestOffset: Traceback…\n"
            f"seamark.spark.error_transport.CrossingError: {sent}"
            "\n SQLSTATE: 38000\n\tat org.apache.spark.sql.errors…{}"
        )


GONE = PositionUnavailable(
    'row "7" is\ngone: {…}',
    where="in t",
    hint="Bring it back.",
    source="t",
    requested=b"\x00\xff",
    earliest=b"9",
)


def test_position_unavailable_arrives_with_its_type_and_parts() -> None:
    found = explained(RuntimeError(across(GONE)))
    assert type(found) is PositionUnavailable
    assert vars(found) == vars(GONE)
    assert str(found) == str(GONE)
    assert isinstance(found.__cause__, RuntimeError)


def test_other_errors_arrive_with_their_type_too() -> None:
    class OfAnAuthor(RefusedError):
        pass

    for sent, wanted in ((RefusedError("no"), RefusedError), (OfAnAuthor("no"), RefusedError)):
        found = explained(RuntimeError(across(sent)))
        assert type(found) is wanted
        assert (found.what, found.where, found.hint) == ("no", None, None)


def test_no_secret_arrives() -> None:
    sent = RefusedError("at postgresql://me:hunter2@db/x", where="password=hunter2", hint="k")
    assert "hunter2" not in str(explained(RuntimeError(across(sent))))


@pytest.mark.parametrize(
    "garbled",
    [
        "seamark-error: {",
        "seamark-error: []",
        'seamark-error: {"type": "SystemExit", "what": "x", "where": null, "hint": null}',
        'seamark-error: {"type": "Final", "what": "x", "where": null, "hint": null}',
        'seamark-error: {"type": "PositionUnavailable", "what": "x"}',
        "no mark at all",
    ],
)
def test_a_text_that_carries_no_error_is_told_as_sparks_own(garbled: str) -> None:
    assert arrived(garbled, str) is None
    assert explained(RuntimeError(garbled)).what == "Spark stopped the query"


def test_an_authors_own_error_crosses_from_every_call() -> None:
    class Gone(Numbers):
        def read_from(self, position: Position | None, limit: int) -> Iterator[Placed]:
            raise GONE

        def stop_at_present(self) -> None:
            raise GONE

    reader: Any = SparkReader(reader_of(Gone([])), 10)
    end = reader_of(Numbers("abc")).end_after(BEGINNING, 10).as_json()
    asked = []
    if spark_reader.HAS_ADMISSION_CONTROL:
        asked = [BEGINNING.as_json(), reader.getDefaultReadLimit()]
    for call in (
        lambda: reader.latestOffset(*asked),
        lambda: reader.partitions(BEGINNING.as_json(), end),
        reader.prepareForTriggerAvailableNow,
    ):
        with pytest.raises(CrossingError) as sent:
            call()
        assert type(arrived(str(sent.value), str)) is PositionUnavailable
