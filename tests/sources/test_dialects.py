"""Names are quoted whatever they contain, and values are bound as the driver wants them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.errors import InvalidInputError
from seamark.sources.table.dialects import (
    MARK,
    MYSQL,
    POSTGRES,
    STANDARD,
    bound,
    dialect_of,
    split_names,
)


@pytest.mark.parametrize(
    ("style", "sql", "values"),
    [
        ("qmark", "a > ? AND b < ?", (1, 2)),
        ("numeric", "a > :1 AND b < :2", (1, 2)),
        ("named", "a > :v1 AND b < :v2", {"v1": 1, "v2": 2}),
        ("format", "a > %s AND b < %s", (1, 2)),
        ("pyformat", "a > %(v1)s AND b < %(v2)s", {"v1": 1, "v2": 2}),
    ],
)
def test_values_are_bound_by_the_style_of_the_driver(style: str, sql: str, values: object) -> None:
    assert bound(f"a > {MARK} AND b < {MARK}", [1, 2], style) == (sql, values)


def test_a_per_cent_sign_in_a_name_is_not_taken_for_a_value() -> None:
    assert bound(f'"%s" > {MARK}', [1], "format")[0] == '"%%s" > %s'
    assert bound(f'"%s?" > {MARK}', [1], "qmark")[0] == '"%s?" > ?'


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="none of DB-API 2"):
        bound(MARK, [1], "dollar")


def test_drivers_are_known_by_their_package() -> None:
    assert dialect_of("pg8000.dbapi") == POSTGRES
    assert dialect_of("mysql.connector") == MYSQL
    assert dialect_of("oracledb") == STANDARD
    assert MYSQL.quoted("a`b") == "`a``b`"
    assert STANDARD.limited(3) == "FETCH FIRST 3 ROWS ONLY"


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_what_can_be_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be the name"):
        POSTGRES.quoted(name)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("orders", ["orders"]),
        (" shop . orders ", ["shop", "orders"]),
        ('shop."odd.name"', ["shop", "odd.name"]),
        ('"a ""b"" c"', ['a "b" c']),
        ("x; DROP TABLE x", ["x; DROP TABLE x"]),
    ],
)
def test_a_table_is_named_as_in_sql(text: str, names: list[str]) -> None:
    assert split_names(text, ".") == names


@pytest.mark.parametrize("text", ["", "a..b", ".a", "a.", '"a', '"a"b', '"".a'])
def test_names_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        split_names(text, ".")


@pytest.mark.slow
@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=4))
def test_any_names_survive_in_quotes(names: list[str]) -> None:
    text = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    assert split_names(text, ",") == names
