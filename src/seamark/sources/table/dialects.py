"""What differs between databases and drivers in the little SQL that is needed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seamark.errors import InvalidInputError

MARK: Final = "\0"
"""Stands for a value in a statement; no name can contain it."""


@dataclass(frozen=True)
class Dialect:
    """How one kind of database wants names quoted and rows limited."""

    name: str
    quote: str = '"'
    limit: str = "LIMIT {}"
    qualifies: bool = False

    def quoted(self, name: str) -> str:
        """A name as an identifier, whatever it contains; :class:`InvalidInputError` for NUL."""
        if not name or MARK in name:
            raise InvalidInputError(f"{name!r} cannot be the name of a table or column")
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def path(self, names: Sequence[str]) -> str:
        """A table as ``schema.table``."""
        return ".".join(map(self.quoted, names))

    def column(self, table: str, name: str) -> str:
        """A column in a query of a table; one that is not there is an error, never a text."""
        column = self.quoted(name)
        return f"{self.quoted(table)}.{column}" if self.qualifies else column

    def limited(self, rows: int) -> str:
        """The clause that ends a query after so many rows."""
        return self.limit.format(int(rows))


# SQLite takes an unknown name in quotes for a text, unless it is qualified. In PostgreSQL it is the
# other way round: t.to_json without such a column is the function to_json(t)
SQLITE: Final = Dialect("SQLite", qualifies=True)
POSTGRES: Final = Dialect("PostgreSQL")
MYSQL: Final = Dialect("MySQL", quote="`")
STANDARD: Final = Dialect("standard SQL", limit="FETCH FIRST {} ROWS ONLY")

_BY_DRIVER: Final[Mapping[str, Dialect]] = {
    "sqlite3": SQLITE,
    "psycopg": POSTGRES,
    "psycopg2": POSTGRES,
    "pg8000": POSTGRES,
    "pymysql": MYSQL,
    "MySQLdb": MYSQL,
    "mysql": MYSQL,
    "mariadb": MYSQL,
}


def dialect_of(driver: str) -> Dialect:
    """The dialect of a driver by the name of its package."""
    return _BY_DRIVER.get(driver.partition(".")[0], STANDARD)


def bound(
    sql: str, values: Sequence[Any], paramstyle: str, *, doubled: bool = True
) -> tuple[str, Sequence[Any] | dict[str, Any]]:
    """A statement with a mark for each value, and the values, as a DB-API driver wants them.

    ``doubled`` writes a % as %%, for drivers that look for values by it.
    """
    parts = sql.split(MARK)
    if len(parts) != len(values) + 1:
        raise ValueError(f"{len(values)} values for {len(parts) - 1} places")
    marks: list[str] = []
    for number in range(1, len(values) + 1):
        try:
            marks.append(_MARKS[paramstyle].format(number))
        except KeyError:
            raise InvalidInputError(
                f"the driver's paramstyle {paramstyle!r} is none of DB-API 2"
            ) from None
    if doubled and paramstyle in ("format", "pyformat"):
        # a driver that looks for %s would take a % in a name for one
        parts = [part.replace("%", "%%") for part in parts]
    text = "".join(a + b for a, b in zip(parts, [*marks, ""], strict=True))
    if paramstyle in ("named", "pyformat"):
        return text, {f"v{number}": value for number, value in enumerate(values, 1)}
    return text, tuple(values)


_MARKS: Final[Mapping[str, str]] = {
    "qmark": "?",
    "numeric": ":{}",
    "named": ":v{}",
    "format": "%s",
    "pyformat": "%(v{})s",
}


def split_names(text: str, separator: str) -> list[str]:
    """Names between separators; one that contains the separator is written in double quotes."""
    names: list[str] = []
    rest = text
    while True:
        rest = rest.strip()
        if rest.startswith('"'):
            name, rest = _unquoted(rest, text)
        else:
            name, comma, rest = rest.partition(separator)
            name, rest = name.strip(), comma + rest
        names.append(name)
        if not name:
            raise InvalidInputError(f"{text!r} has an empty name in it")
        rest = rest.strip()
        if not rest:
            return names
        if not rest.startswith(separator):
            raise InvalidInputError(f"{text!r}: after {name!r} there should be {separator!r}")
        rest = rest[len(separator) :]


def _unquoted(rest: str, text: str) -> tuple[str, str]:
    at, name = 1, ""
    while at < len(rest):
        if rest[at] != '"':
            name += rest[at]
            at += 1
        elif rest[at + 1 : at + 2] == '"':
            name += '"'
            at += 2
        else:
            return name, rest[at + 1 :]
    raise InvalidInputError(f'{text!r} has a " that is not closed')
