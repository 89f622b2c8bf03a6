"""Public names that are loaded from their modules on first use, so that importing costs nothing.

Tests: ``tests/test_import.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, home: Mapping[str, str], namespace: dict[str, Any]
) -> Callable[[str], object]:
    """A ``__getattr__`` for a package: ``home`` maps each public name to its module."""

    def load(name: str) -> object:
        """Load a public name from its module on first use."""
        module = home.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "pyspark":
                raise
            from seamark.errors import InvalidInputError

            raise InvalidInputError(
                f"{package}.{name} needs the package pyspark", hint="pip install 'seamark[spark]'"
            ) from error
        namespace[name] = value
        return value

    return load
