"""A table in a catalog of Iceberg: how it is loaded, what it is called, how its errors read.

Tests: ``tests/sinks/test_iceberg_catalog.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from seamark._redaction import Redactor, without_user
from seamark.errors import (
    InvalidInputError,
    RefusedError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.table_formats.iceberg_settings import guard, refuse_overruling

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_NAMELESS: Final = "default"


class Place:
    """A table of a catalog. The catalog is opened when it is first needed."""

    def __init__(self, catalog: str | Mapping[str, str], table: str) -> None:
        require_pyiceberg("an IcebergSink")
        if not isinstance(table, str) or not all(table.split(".")) or "." not in table:
            raise InvalidInputError(
                f"{table!r} is not the name of a table", hint="It looks like 'namespace.table'."
            )
        self.is_configured = isinstance(catalog, str)
        """Whether its name is enough for others to open it."""
        if isinstance(catalog, str):
            self.catalog_name, properties = catalog, {}
        elif isinstance(catalog, Mapping):
            properties = {str(key): str(value) for key, value in catalog.items()}
            self.catalog_name = properties.pop("name", _NAMELESS)
        else:
            raise InvalidInputError(
                "a catalog is the name of one that pyiceberg is configured for, or a mapping of "
                f"its properties, not {type(catalog).__name__}"
            )
        self.table_name = table
        self._properties = properties
        self._clean: Callable[[str], str] = Redactor(properties)
        uri = properties.get("uri")
        server = f" at {self._clean(without_user(uri))}" if uri else ""
        self.described = f"{self.catalog_name}.{table}{server}"
        """Where it is, without anything secret."""
        self._catalog: Catalog | None = None

    def load(self) -> Table:
        """The table as it is now. :class:`RefusedError` when there is none."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        with self.translated("loading the table"):
            try:
                catalog = self._opened()
                table = catalog.load_table(self.table_name)
            except (NoSuchTableError, NoSuchNamespaceError):
                raise RefusedError(
                    f"there is no table {self.table_name} in catalog {self.catalog_name}",
                    where=self.described,
                    hint="Create it first: load_catalog(…).create_table('namespace.table', schema)",
                ) from None
            refuse_overruling(table.metadata.properties, catalog, self.described)
            return table

    def _opened(self) -> Catalog:
        if self._catalog is None:
            from pyiceberg.catalog import load_catalog

            try:
                self._catalog = load_catalog(self.catalog_name, **self._properties)
            except ValueError as error:
                raise InvalidInputError(
                    f"the catalog {self.catalog_name!r} cannot be opened: {self.said(error)}",
                    hint="Name one of ~/.pyiceberg.yaml, or give its properties: {'type': 'rest', "
                    "'uri': …}.",
                ) from None
            guard(self._catalog, self.described)
        return self._catalog

    def close(self) -> None:
        """Let go of connections; the next use opens the catalog again."""
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()

    def said(self, error: BaseException) -> str:
        """The first line of an error's text, without the values of secret properties."""
        line = next(iter(str(error).strip().splitlines()), "")
        kind = type(error).__name__
        return self._clean(f"{kind}: {line}" if line else kind)[:500]

    @contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        """Turn errors of pyiceberg and what it is built on into ours.

        Those of a commit that lost a race pass.
        """
        from pyiceberg import exceptions as theirs

        try:
            yield
        except (SeamarkError, theirs.CommitFailedException):
            raise
        except (theirs.UnauthorizedError, theirs.ForbiddenError) as error:
            raise RefusedError(
                f"{doing} is not allowed: {self.said(error)}", where=self.described
            ) from None
        except Exception as error:  # noqa: BLE001 - whatever a catalog or file system raises
            what = f"{doing} failed: {self.said(error)}"
            if is_passing(error):
                raise StoreUnavailableError(what, where=self.described) from None
            raise SeamarkError(what, where=self.described) from None


def is_passing(error: BaseException) -> bool:
    """Whether a later try may go well: nothing is proven about the table."""
    import requests
    from pyiceberg import exceptions as theirs

    if isinstance(error, OSError | requests.RequestException | theirs.RESTError | TimeoutError):
        return not isinstance(error, theirs.BadRequestError)
    # SQLAlchemy is only there for those who use an SQL catalog
    return any(cls.__module__.startswith("sqlalchemy.") for cls in type(error).__mro__)


def require_pyiceberg(who: str) -> None:
    """:class:`InvalidInputError` where pyiceberg is not installed."""
    try:
        import pyiceberg  # noqa: F401
    except ModuleNotFoundError:
        raise InvalidInputError(
            f"{who} needs pyiceberg", hint="pip install 'seamark[iceberg]'"
        ) from None
