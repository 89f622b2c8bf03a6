"""Public names that are loaded from their modules on first use, so that importing costs nothing.

Tests: ``tests/test_import.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str], namespace: dict[str, Any]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package: ``homes`` has the names in each module."""
    home = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> object:
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

    return load, lambda: sorted({*namespace, *home})
