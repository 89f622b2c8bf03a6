"""A table of PostgreSQL that is no longer what the ledger speaks of is noticed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from seamark.errors import DamageError, LineageError, RefusedError
from seamark.sinks import PostgresSink
from seamark.sinks.postgres.copying import Copied
from seamark.sinks.postgres.ledger import receipt_in
from seamark.sinks.postgres.staging import TOKEN
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch, through_json
from tests.sinks.support.postgres import (
    KEYED,
    NUMBERS,
    ROWS,
    batches_of,
    copy,
    numbers,
    opened,
    rows_of,
    run,
    show,
    stage,
    with_options,
)
from tests.sinks.support.starting import started

BEFORE_OIDS = "ALTER TABLE seamark_ledger DROP COLUMN table_oid, DROP COLUMN epoch_column"


@pytest.fixture
def dsn(empty_database: str) -> str:
    run(empty_database, ROWS)
    return empty_database


# a table that is another one


def test_a_table_that_was_dropped_and_created_again_is_refused(dsn: str) -> None:
    show(opened(dsn), [1], 1)
    run(dsn, "DROP TABLE rows", ROWS)
    with pytest.raises(LineageError, match="dropped and created again"):
        opened(dsn)
    run(dsn, "DROP TABLE rows", ROWS.replace("rows", "fresh"))
    fresh = opened(dsn, "fresh")
    assert fresh.newest() is None, "a table of another name begins anew"


def test_a_table_that_is_replaced_while_an_epoch_is_staged_gets_no_rows(dsn: str) -> None:
    sink = opened(dsn)
    show(sink, [1], 1)
    committable = stage(sink, [2], epoch(2), "a2")
    run(dsn, "ALTER TABLE rows RENAME TO former", ROWS)
    with pytest.raises(LineageError, match="not the table of epoch 2"):
        sink.commit(committable)
    assert numbers(dsn) == []
    run(dsn, "DROP TABLE rows", "ALTER TABLE former RENAME TO rows")
    opened(dsn).commit(committable)
    assert numbers(dsn) == [1, 2]


def test_a_table_that_was_restored_from_a_dump_goes_on_once_the_user_says_so(dsn: str) -> None:
    pg_dump, psql = shutil.which("pg_dump"), shutil.which("psql")
    if pg_dump is None or psql is None:
        pytest.skip("pg_dump is not installed (Debian: postgresql-client)")
    show(opened(dsn), [1], 1)
    environment = {**os.environ, "PGOPTIONS": ""}
    dump = subprocess.run(
        [pg_dump, dsn, "--clean"], capture_output=True, check=True, env=environment
    )
    command = [psql, dsn, "--quiet", "--no-psqlrc", "-v", "ON_ERROR_STOP=1"]
    subprocess.run(command, input=dump.stdout, capture_output=True, check=True, env=environment)
    with pytest.raises(LineageError) as caught:
        opened(dsn)
    advice = re.search(r"UPDATE .* WHERE target = '\w+'", str(caught.value))
    assert advice is not None
    run(dsn, advice[0])
    show(opened(dsn), [2], 2)
    assert numbers(dsn) == [1, 2]
    run(dsn, "DROP TABLE rows", ROWS)
    with pytest.raises(LineageError):
        opened(dsn)


def test_a_table_that_was_rewritten_or_changed_is_the_same_one(dsn: str) -> None:
    show(opened(dsn), [1], 1)
    run(dsn, "VACUUM FULL rows", "ALTER TABLE rows ADD COLUMN more int", "REINDEX TABLE rows")
    show(opened(dsn), [2], 2)
    assert numbers(dsn) == [1, 2]


def test_a_ledger_that_does_not_know_its_table_learns_it_at_the_next_start(dsn: str) -> None:
    show(opened(dsn), [1], 1)
    run(dsn, BEFORE_OIDS)
    assert opened(dsn).committed("", 1) is not None
    run(dsn, "DROP TABLE rows", ROWS)
    with pytest.raises(LineageError, match="not the table of epoch 1"):
        opened(dsn)


def test_columns_that_only_the_owner_can_add_to_the_ledger_are_named(dsn: str) -> None:
    show(opened(dsn), [1], 1)
    run(
        dsn,
        BEFORE_OIDS,
        "DROP ROLE IF EXISTS writer",
        "CREATE ROLE writer LOGIN",
        "GRANT ALL ON SCHEMA public TO writer",
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO writer",
    )
    with pytest.raises(RefusedError) as caught:
        opened(with_options(dsn, user="writer"))
    advice = re.search(r"ALTER TABLE .*", str(caught.value))
    assert advice is not None
    run(dsn, advice[0])
    show(opened(with_options(dsn, user="writer")), [2], 2)
    assert numbers(dsn) == [1, 2]
    run(dsn, "DROP OWNED BY writer", "DROP ROLE writer")


# rows without the number of their epoch


def test_rows_of_before_there_was_a_column_for_the_epoch_are_not_taken_back(dsn: str) -> None:
    show(opened(dsn), [1], 1)
    sink = opened(dsn, epoch_column="at_epoch")
    show(sink, [2], 2)
    show(sink, [3], 3)
    for refused in (sink.require_unpublish_after, sink.unpublish_after):
        with pytest.raises(RefusedError, match=r"'at_epoch' \(epoch 1: 0 of 1\)"):
            refused(0)
    assert numbers(dsn) == [1, 2, 3]
    assert sink.unpublish_after(2) == [3]
    assert sink.unpublish_after(1) == [2]
    run(dsn, "UPDATE rows SET at_epoch = 1 WHERE n = 1")
    assert sink.unpublish_after(0) == [1]
    assert numbers(dsn) == []


def test_what_to_read_does_not_leave_out_rows_of_before_there_was_such_a_column(dsn: str) -> None:
    show(opened(dsn), [1], 1)
    sink = opened(dsn, epoch_column="at_epoch")
    committable = show(sink, [2], 2)
    point = sink.read_point(committable)
    assert point.only_newest
    assert "condition" not in point.at
    run(dsn, "UPDATE rows SET at_epoch = 1 WHERE n = 1")
    later = opened(dsn, epoch_column="at_epoch").read_point(committable)
    assert not later.only_newest
    query = f"SELECT n FROM rows WHERE {later.at['condition']} ORDER BY n"
    assert rows_of(dsn, query) == [(1,), (2,)]


def test_an_epoch_that_is_finished_by_a_run_with_another_column_is_not_promised(dsn: str) -> None:
    committable = stage(opened(dsn), [1], epoch(1), "a1")
    sink = opened(dsn, epoch_column="at_epoch")
    sink.commit(committable)
    assert sink.read_point(committable).only_newest
    with pytest.raises(RefusedError, match="epoch 1: 0 of 1"):
        sink.unpublish_after(0)


def test_rows_that_others_have_deleted_do_not_stop_a_rollback(dsn: str) -> None:
    sink = opened(dsn, epoch_column="at_epoch")
    show(sink, [1, 2], 1)
    run(dsn, "DELETE FROM rows WHERE n = 1")
    assert not opened(dsn, epoch_column="at_epoch").read_point(show(sink, [3], 2)).only_newest
    assert sink.unpublish_after(0) == [1, 2]


def test_a_ledger_of_before_learns_which_epochs_have_their_numbers(dsn: str) -> None:
    sink = opened(dsn, epoch_column="at_epoch")
    for number in (1, 2):
        show(sink, [number], number)
    run(dsn, BEFORE_OIDS)
    opened(dsn, epoch_column="at_epoch")
    known = "SELECT epoch, epoch_column FROM seamark_ledger ORDER BY epoch"
    assert rows_of(dsn, known) == [(1, "at_epoch"), (2, "at_epoch")]
    again = opened(dsn, epoch_column="at_epoch")
    again.open(PIPELINE, SINK, NUMBERS)
    assert again.unpublish_after(0) == [1, 2]


@pytest.mark.parametrize("plan", ["{", "[" * 100_000, '{"x":"\ud800"}', "[1]"])
def test_a_record_of_the_ledger_that_cannot_be_read_is_damage(plan: str) -> None:
    row = ("t1", 3, "f3", "a3", plan)
    with pytest.raises(DamageError, match="the record of epoch 3 in the ledger cannot be read"):
        receipt_in(PIPELINE, SINK, row, "here")


# a checkpoint that speaks of others


def test_a_checkpoint_shows_no_rows_of_another_output_of_the_table(dsn: str) -> None:
    theirs = opened(dsn)
    staged = stage(theirs, [1, 2], epoch(1), "a-1")
    mine = started(PostgresSink(dsn, "rows"), NUMBERS, "other", "mine")
    for forged in (staged, {**staged, "tokens": [], "rows": 0}):
        with pytest.raises(DamageError, match=f"its pipeline is '{PIPELINE}', and not 'other'"):
            mine.commit(forged)
    assert numbers(dsn) == []
    theirs.commit(staged)
    assert numbers(dsn) == [1, 2]


def test_a_checkpoint_does_not_choose_by_which_keys_rows_are_replaced(empty_database: str) -> None:
    run(empty_database, KEYED)
    sink = opened(empty_database, mode="upsert", keys="n")
    show(sink, [1], 1, word="same")
    staged = stage(sink, [1], epoch(2), "a-2", word="same")
    forgeries: list[dict[str, object]] = [{"keys": ["word"]}, {"keys": []}, {"has_removals": True}]
    for forged in forgeries:
        with pytest.raises(RefusedError, match="with other keys"):
            sink.commit({**staged, **forged})
    sink.commit(staged)


@pytest.mark.parametrize("forged", ["fewer rows", "no rows", "columns", "epoch_column", "plan"])
def test_a_checkpoint_shows_all_that_was_prepared_or_nothing(dsn: str, forged: str) -> None:
    sink = opened(dsn, epoch_column="at_epoch")
    sink._begin(epoch(1), "a-1")
    tasks = [copy(sink, "a-1", batches_of(values)) for values in ([1, 2], [3])]
    both = Copied([task.tokens[0] for task in tasks], 3)
    sink._staged = sink._prepared(epoch(1), "a-1", both)
    staged = through_json(sink.prepare())
    forgeries: dict[str, dict[str, object]] = {
        "fewer rows": {"tokens": tasks[0].tokens, "rows": 2},
        "no rows": {"tokens": [], "rows": 0},
        "columns": {"columns": ["n"]},
        "epoch_column": {"epoch_column": None},
        "plan": {"plan": None},
    }
    with pytest.raises(DamageError, match="does not say of epoch 1 what was prepared"):
        opened(dsn, epoch_column="at_epoch").commit({**staged, **forgeries[forged]})
    assert numbers(dsn) == []
    opened(dsn, epoch_column="at_epoch").commit(staged)
    assert rows_of(dsn, "SELECT * FROM rows ORDER BY n") == [
        (1, "1", 1),
        (2, "2", 1),
        (3, "3", 1),
    ]


def test_an_epoch_that_an_earlier_seamark_has_prepared_is_shown(dsn: str) -> None:
    sink = opened(dsn)
    staged = stage(sink, [1, 2], epoch(1), "a-1")
    run(dsn, f'COMMENT ON COLUMN "{sink._staging.name("a-1")}".{TOKEN} IS NULL')
    opened(dsn).commit(staged)
    assert numbers(dsn) == [1, 2]
