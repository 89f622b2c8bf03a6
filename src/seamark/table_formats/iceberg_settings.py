"""Properties of an Iceberg table that would overrule what the user has set for its catalog.

pyiceberg reads the files of a table with ``{**catalog.properties, **table.properties}``. So whoever
can write the metadata of a table could have the user's keys sent to another server
(``s3.endpoint``), or a module imported and called (``py-io-impl``). Such a table is refused before
pyiceberg makes anything of these properties.

Tests: ``tests/sinks/test_iceberg_settings.py``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from seamark._redaction import without_user
from seamark.errors import RefusedError
from seamark.table_formats.limited_metadata import check_hint, limited_metadata
from seamark.table_formats.services import is_path_or_bucket

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import StaticTable

_PREFIXES: Final = (
    "adls.", "auth.", "client.", "gcs.", "gs.", "hdfs.", "header.", "hf.", "oauth2.", "oss.",
    "rest.", "s3.", "s3a.", "ssl.",
)  # fmt: skip
"""How files are reached, and with whose keys."""
_HOME: Final = "PYICEBERG_HOME"
_CATALOGS: Final = ".pyiceberg.yaml"
_NAMES: Final = frozenset(
    [
        "auth",
        "botocore_session",
        "credential",
        "default_netloc",
        "default_scheme",
        "oauth2-server-uri",
        "py-catalog-impl",
        "py-io-impl",
        "token",
        "uri",
        "write.py-location-provider.impl",
    ]
)


def overruling(properties: Mapping[str, str], catalog: Mapping[str, Any]) -> list[str]:
    """Names of a table's properties that would overrule those of its catalog. Pure.

    What the catalog says as well is the user's own choice.
    """
    return sorted(
        name
        for name, value in properties.items()
        if (name.lower() in _NAMES or name.lower().startswith(_PREFIXES))
        and catalog.get(name) != value
    )


def refuse_overruling(properties: Mapping[str, str], catalog: Catalog, where: str) -> None:
    """:class:`RefusedError` when a table chooses how, where or with whose keys files are read."""
    if names := overruling(properties, catalog.properties):
        shown = ", ".join(name[:100] for name in names[:5])
        raise RefusedError(
            f"the Iceberg table has properties that overrule those of its catalog: {shown}",
            where=where,
            hint="They could send your keys to another server, or run code. Remove them from the "
            "table (ALTER TABLE … UNSET TBLPROPERTIES), or if you mean them, give the catalog the "
            "same ones.",
        )


def refuse_catalogs_of_this_folder() -> None:
    """:class:`RefusedError` when pyiceberg has its catalogs from a file of the current folder.

    A command may be run inside a folder of unknown origin. Whoever made it would choose the server
    that a login is sent to, and code that is run.
    """
    named = [os.environ.get(_HOME), os.path.expanduser("~")]
    own = [os.path.join(folder, _CATALOGS) for folder in named if folder]
    here = os.path.join(os.getcwd(), _CATALOGS)
    # pyiceberg takes the first of them that says anything
    if _says_something(here) and not any(map(_says_something, own)):
        raise RefusedError(
            f"the Iceberg catalogs would be those of {_CATALOGS} in the current folder",
            where=here,
            hint="They could send your keys to another server, or run code. If the file is yours, "
            f"say so: {_HOME}=. before the command.",
        )


def _says_something(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return any(line.strip() and not line.lstrip().startswith(b"#") for line in file)
    except OSError:
        return False


def guard(catalog: Catalog, where: str) -> None:
    """Have a catalog look at a table's properties before it makes a file system of them.

    Whoever loads a table calls :func:`refuse_overruling` as well: not every catalog asks here.
    """
    made: Any = catalog
    if hasattr(made, "_response_to_table"):  # REST: its server adds settings that it vouches for
        to_table = made._response_to_table

        @wraps(to_table)
        def checked_table(identifier: tuple[str, ...], response: Any) -> Any:
            refuse_overruling(response.metadata.properties, catalog, where)
            return to_table(identifier, response)

        made._response_to_table = checked_table
    elif hasattr(made, "_load_file_io"):
        load_file_io = made._load_file_io

        @wraps(load_file_io)
        def checked_io(properties: Mapping[str, str] | None = None, *args: Any, **more: Any) -> Any:
            refuse_overruling(properties or {}, catalog, where)
            return load_file_io(properties or {}, *args, **more)

        made._load_file_io = checked_io


def static_table(location: str, settings: Mapping[str, str], *, is_named: bool) -> StaticTable:
    """The table of a metadata file, or of the folder that has one, without a catalog.

    Its own properties have no say in how its files are reached: ``StaticTable.from_metadata`` would
    let them overrule the settings. Unless the user has named the table (``is_named``), no file of
    it is read that is neither at a path nor in a bucket, and no metadata file that is larger than
    one of unknown origin may be: :class:`RefusedError`.
    """
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.io import load_file_io
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import StaticTable

    if not location.endswith(".metadata.json"):
        if not is_named:
            check_hint(load_file_io(dict(settings), location=location), location)
        location = StaticTable._metadata_location_from_version_hint(location, dict(settings))
    io = load_file_io(dict(settings), location=location)
    if is_named:
        metadata = FromInputFile.table_metadata(io.new_input(location))
    else:
        _keep_to_buckets(io)
        metadata = limited_metadata(io, location)
    return StaticTable(
        identifier=("static-table", location),
        metadata_location=location,
        metadata=metadata,
        io=io,
        catalog=NoopCatalog("static-table"),
    )


def _keep_to_buckets(io: FileIO) -> None:
    made: Any = io
    new_input = made.new_input

    @wraps(new_input)
    def checked(location: str) -> Any:
        if not is_path_or_bucket(location):
            raise RefusedError(
                "the Iceberg table has a file that is neither at a path nor in a bucket",
                where=without_user(location),
                hint="A server that only a checkpoint leads to is not asked. If you trust the "
                "table, say so: --target SINK=….metadata.json of the audit, is_trusted=True of "
                "iceberg_table()",
            )
        return new_input(location)

    made.new_input = checked
