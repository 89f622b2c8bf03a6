"""Functions and operators that another user of the database has made are not run by the sink."""

from __future__ import annotations

import msgspec
import psycopg
import pytest

from seamark.sinks.contract import identity_in
from seamark.sinks.postgres.publishing import Prepared, moving
from seamark.testing.conformance.sink_examples import epoch
from tests.sinks.support.postgres import ROWS, numbers, opened, rows_of, run, show, stage

PLANTED = (
    ("starts_with", "name, text", "boolean", "$1::text LIKE $2 || '%'"),
    ("unnest", "text[]", "SETOF text", "SELECT * FROM pg_catalog.unnest($1)"),
    ("col_description", "oid, smallint", "text", "SELECT NULL::text"),
    ("obj_description", "oid, text", "text", "SELECT pg_catalog.obj_description($1, $2::name)"),
)


@pytest.fixture
def dsn(empty_database: str) -> str:
    run(empty_database, ROWS, "CREATE TABLE caught (what text, who text)")
    return empty_database


def plant(dsn: str) -> None:
    """Overload functions of PostgreSQL with arguments that fit our calls better, as any user can
    who may create functions in a schema of the search path."""
    for name, arguments, returns, body in PLANTED:
        query = body if body.startswith("SELECT") else f"SELECT {body}"
        run(
            dsn,
            f"CREATE FUNCTION public.{name}({arguments}) RETURNS {returns} LANGUAGE sql AS $body$"
            f" INSERT INTO public.caught VALUES ('{name}', current_user); {query} $body$",
        )
    run(
        dsn,
        "CREATE FUNCTION public.same(oid, regclass) RETURNS boolean LANGUAGE sql AS $body$"
        " INSERT INTO public.caught VALUES ('=', current_user); SELECT $1 = $2::oid $body$",
        "CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = public.same)",
    )


def test_no_function_of_another_user_is_run(dsn: str) -> None:
    plant(dsn)
    sink = opened(dsn, epoch_column="at_epoch")
    show(sink, [1], 1)
    stage(sink, [2], epoch(2), "a-2")
    assert opened(dsn, epoch_column="at_epoch").leftovers() == ["a-2"]
    sink.abort("a-2")
    show(sink, [3], 2)
    assert sink.newest() is not None
    assert sink.unpublish_after(1) == [2]
    assert rows_of(dsn, "SELECT DISTINCT what FROM caught ORDER BY 1") == []
    assert numbers(dsn) == [1]


def test_triggers_and_checks_of_the_table_run_with_the_search_path_of_the_user(dsn: str) -> None:
    run(
        dsn,
        "CREATE TABLE allowed (n bigint)",
        "INSERT INTO allowed VALUES (1), (2)",
        "CREATE TABLE seen (n bigint)",
        "CREATE FUNCTION fits(bigint) RETURNS boolean LANGUAGE plpgsql AS"
        " $$ BEGIN RETURN EXISTS (SELECT 1 FROM allowed WHERE n = $1); END $$",
        "ALTER TABLE rows ADD CHECK (fits(n))",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO seen VALUES (coalesce(NEW.n, -OLD.n)); RETURN NULL; END $$",
        "CREATE TRIGGER note AFTER INSERT OR DELETE ON rows FOR EACH ROW EXECUTE FUNCTION note()",
    )
    sink = opened(dsn, epoch_column="at_epoch")
    show(sink, [1], 1)
    show(sink, [2], 2)
    assert sink.unpublish_after(1) == [2]
    assert rows_of(dsn, "SELECT n FROM seen ORDER BY n") == [(-2,), (1,), (2,)]


def test_no_operator_of_another_user_compares_keys(empty_database: str) -> None:
    dsn = empty_database
    run(
        dsn,
        "CREATE TABLE caught (what text)",
        "CREATE TABLE rows (n bigint, word varchar(9) PRIMARY KEY)",
        "CREATE FUNCTION same(varchar, varchar) RETURNS boolean LANGUAGE sql AS $body$"
        " INSERT INTO public.caught VALUES ('='); SELECT $1::text = $2::text $body$",
        "CREATE OPERATOR = (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = same, HASHES)",
        "CREATE FUNCTION pg_column_size(varchar) RETURNS int LANGUAGE sql AS $body$"
        " INSERT INTO public.caught VALUES ('size'); SELECT 1 $body$",
        "CREATE FUNCTION step(bigint, text) RETURNS bigint LANGUAGE sql AS $body$"
        " INSERT INTO public.caught VALUES ('count'); SELECT $1 + 1 $body$",
        "CREATE AGGREGATE count(text) (SFUNC = step, STYPE = bigint, INITCOND = '0')",
    )
    sink = opened(dsn, mode="upsert", keys="word")
    show(sink, [1, 1], 1, word="same")
    removing = msgspec.structs.replace(
        identity_in(stage(sink, [2], epoch(2), "a-2"), Prepared), has_removals=True
    )
    (delete, *_) = moving(sink._staging, removing, sink._table)
    assert 't."word" OPERATOR(pg_catalog.=) s."word"' in delete.as_string()
    assert rows_of(dsn, "SELECT DISTINCT what FROM caught ORDER BY 1") == []
    assert numbers(dsn) == [1]


def test_citext_is_compared_by_its_own_operator(empty_database: str) -> None:
    try:
        run(empty_database, "CREATE EXTENSION citext")
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("the extension citext is not installed (Debian: postgresql-contrib)")
    run(empty_database, "CREATE TABLE rows (n bigint, word citext PRIMARY KEY)")
    sink = opened(empty_database, mode="upsert", keys="word")
    show(sink, [1], 1, word="Same")
    removing = msgspec.structs.replace(
        identity_in(stage(sink, [2], epoch(2), "a-2"), Prepared), has_removals=True
    )
    (delete, *_) = moving(sink._staging, removing, sink._table)
    assert 't."word" = s."word"' in delete.as_string()
    show(sink, [2], 2, word="SAME")
    assert numbers(empty_database) == [2]
