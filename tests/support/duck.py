"""DuckDB with its extensions from the package index: nothing is fetched while a test runs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import duckdb


def duckdb_with(*extensions: str) -> duckdb.DuckDBPyConnection:
    """A database in memory that has loaded these extensions."""
    database = duckdb.connect(
        config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    )
    for name in extensions:
        database.execute(f"LOAD '{_file_of(name)}'")
    return database


def _file_of(extension: str) -> Path:
    spec = find_spec(f"duckdb_extension_{extension}")
    assert spec is not None, f"duckdb-extension-{extension} is among the packages for development"
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}"
    return folder / f"{extension}.duckdb_extension"
