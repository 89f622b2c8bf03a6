"""Whatever happens to a table of PostgreSQL, an audit finds it, by epoch if rows tell theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark.sinks import PostgresSink
from tests.audit.support.pipelines import (
    ROWS,
    audited,
    damage_found,
    pipeline,
    ten_epochs,
    write_input,
)
from tests.sinks.support.postgres import run
from tests.support.databases import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TABLE = (
    'CREATE TABLE trades (n bigint, name text, price double precision, "at" timestamptz, '
    "at_epoch bigint)"
)
LOSE = "DELETE FROM trades WHERE n = 25"
DOUBLE = "INSERT INTO trades SELECT * FROM trades WHERE n = 25"
EDIT = "UPDATE trades SET price = price + 1e-9 WHERE n = 25"
EXCHANGE = "UPDATE trades SET at_epoch = 5 - at_epoch WHERE at_epoch IN (2, 3)"


@pytest.fixture
def dsn(postgres: PostgresServer) -> str:
    database = postgres.new_database()
    run(database, TABLE)
    return database


@pytest.mark.sampled(2)
@pytest.mark.parametrize("epoch_column", ["at_epoch", None])
def test_rows_that_are_lost_doubled_edited_or_exchanged_are_found(
    spark: SparkSession, tmp_path: Path, dsn: str, epoch_column: str | None
) -> None:
    store = ten_epochs(spark, tmp_path, PostgresSink(dsn, "trades", epoch_column=epoch_column))
    assert not audited(spark, store, trades=dsn).is_damaged
    run(dsn, "CREATE TABLE kept AS SELECT * FROM trades")
    epochs = "2" if epoch_column else "1 to 10"
    for statement, result in ((LOSE, "lost"), (DOUBLE, "doubled"), (EDIT, "edited")):
        run(dsn, statement)
        assert damage_found(audited(spark, store, trades=dsn)) == [("trades", epochs, result)]
        run(dsn, "TRUNCATE trades", "INSERT INTO trades SELECT * FROM kept")
    if epoch_column:
        run(dsn, EXCHANGE)
        assert damage_found(audited(spark, store, trades=dsn)) == [
            ("trades", "2", "exchanged"),
            ("trades", "3", "exchanged"),
        ]


def test_without_an_address_nobody_is_connected_to(
    spark: SparkSession, tmp_path: Path, dsn: str
) -> None:
    write_input(tmp_path / "input", 1)
    pipeline(spark, tmp_path, PostgresSink(dsn, "trades")).run(available_now=True)
    (verdict,) = audited(spark, tmp_path / "store").sinks[0].verdicts
    assert (verdict.result.value, verdict.text) == (
        "not compared",
        "say where its database is: --target trades=postgresql://…",
    )


def test_columns_that_do_not_give_back_what_was_written_are_counted(
    spark: SparkSession, tmp_path: Path, dsn: str
) -> None:
    run(dsn, "ALTER TABLE trades ALTER name TYPE char(20)")
    write_input(tmp_path / "input", 2)
    sink = PostgresSink(dsn, "trades", epoch_column="at_epoch")
    pipeline(spark, tmp_path, sink).run(available_now=True)
    first, second = audited(spark, tmp_path / "store", trades=dsn).sinks[0].verdicts
    assert {first.found_rows, second.found_rows} == {ROWS}
    assert first.result.value == "ok"
    assert first.text.startswith("only counted: column 'name' is bpchar")
    run(dsn, LOSE)
    assert damage_found(audited(spark, tmp_path / "store", trades=dsn)) == [("trades", "2", "lost")]
