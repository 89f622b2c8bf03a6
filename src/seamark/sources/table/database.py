"""A connection to a database by any DB-API 2 driver, opened when it is needed.

Tests: ``tests/sources/test_table_sqlite.py``.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from seamark._redaction import HIDDEN
from seamark.errors import InvalidInputError, SeamarkError
from seamark.sources.table.dialects import bound, dialect_of

Values = tuple[Any, ...]

_SHORTEST: Final = 4


class Database:
    """Runs one query at a time, each in a transaction of its own that is over when it returns.

    So no snapshot grows old, and nothing is held back on the server between two polls.
    """

    def __init__(self, options: Mapping[str, str], name: str) -> None:
        self._name = name
        self._driver = _required(options, "driver")
        self._dsn, self._dsn_env = options.get("dsn"), options.get("dsn_env")
        self._keywords = options.get("connect")
        self.dialect = dialect_of(self._driver)
        self._module: Any = None
        self._connection: Any = None
        given = [
            option for option in (self._dsn, self._dsn_env, self._keywords) if option is not None
        ]
        if not given or (self._dsn is not None and self._dsn_env is not None):
            raise InvalidInputError(
                "a table needs one of the options dsn, dsn_env and connect to be reached",
                hint="dsn_env names an environment variable that holds the DSN, so that no "
                "password is in the options. connect is a JSON object of arguments.",
            )
        if self._keywords is not None:
            _keywords(self._keywords, "the option connect")

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Values]:
        """All rows of a query with a mark for each value; :class:`SeamarkError` when it fails."""
        old = self._connection is not None
        try:
            return self._run(sql, values)
        except self._driver_errors() as error:
            self.close()
            if not old:
                self._fail("refused a query", error)
        try:
            return self._run(sql, values)  # an old connection may have been cut while it was idle
        except self._driver_errors() as error:
            self.close()
            self._fail("refused a query", error)

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # it may be broken, which is why it is closed
                connection.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None, "_module": None}

    def _run(self, sql: str, values: Sequence[Any]) -> list[Values]:
        if self._connection is None:
            self._connection = self._connect()
        cursor = self._connection.cursor()
        try:
            if values:
                # pg8000 alone leaves a % in a quoted name as it is
                doubled = not self._driver.startswith("pg8000")
                cursor.execute(*bound(sql, values, self._loaded().paramstyle, doubled=doubled))
            else:
                cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]
        finally:
            cursor.close()
            self._connection.rollback()

    def _connect(self) -> Any:
        arguments: list[str] = []
        keywords: dict[str, Any] = {}
        dsn = self._address()
        if dsn is not None and dsn.lstrip().startswith("{"):
            keywords.update(_keywords(dsn, f"${self._dsn_env}" if self._dsn_env else "dsn"))
        elif dsn is not None:
            arguments.append(dsn)
        if self._keywords is not None:
            keywords.update(_keywords(self._keywords, "the option connect"))
        try:
            return self._loaded().connect(*arguments, **keywords)
        except Exception as error:  # noqa: BLE001 - a driver's own, or a TypeError for an argument
            self._fail("cannot be reached", error)

    def _address(self) -> str | None:
        if self._dsn_env is None:
            return self._dsn
        dsn = os.environ.get(self._dsn_env)
        if dsn is None:
            raise InvalidInputError(
                f"the environment variable {self._dsn_env!r} is not set",
                hint="Set it before the Spark session starts: its Python processes inherit what "
                "the JVM was started with.",
            )
        return dsn

    def _loaded(self) -> Any:
        if self._module is None:
            try:
                module = importlib.import_module(self._driver)
            except ImportError as error:
                raise InvalidInputError(
                    f"the driver {self._driver!r} cannot be loaded: {error}",
                    hint="Install it where Spark's driver runs.",
                ) from None
            if not hasattr(module, "paramstyle"):
                raise InvalidInputError(f"the module {self._driver!r} is not a DB-API 2 driver")
            self._module = module
        return self._module

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        return self._loaded().Error, OSError  # some drivers let a broken socket through

    def _fail(self, what: str, error: Exception) -> NoReturn:
        # no cause: a driver may show the DSN in its words, and Spark shows all causes
        raise SeamarkError(
            f"the database of source {self._name!r} {what}",
            where=f"{type(error).__name__}: {self._without_secrets(str(error))}",
            hint="Nothing is lost. Fix the cause and start again.",
        ) from None

    def _without_secrets(self, text: str) -> str:
        """Every longer word of the address is hidden: no one knows which of them is the secret."""
        address = " ".join(filter(None, (self._address(), self._keywords)))
        parts = {part for part in re.split(r"[\s:;,&=@/?'\"{}]+", address) if part}
        for part in sorted(parts, key=len, reverse=True):
            if len(part) >= _SHORTEST and part not in _HARMLESS:
                text = text.replace(part, HIDDEN)
        return text


def _keywords(text: str, where: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise InvalidInputError(f"{where} must be a JSON object of arguments for connect()")
    return arguments


def _required(options: Mapping[str, str], name: str) -> str:
    value = options.get(name)
    if not value:
        raise InvalidInputError(f"a table needs the option {name!r}")
    return value


_HARMLESS: Final = frozenset(
    {"host", "port", "user", "password", "dbname", "database", "connect_timeout", "options"}
    | {"application_name", "sslmode", "postgresql", "postgres", "localhost", "timeout", "true"}
)
