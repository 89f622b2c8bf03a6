"""Names of Spark's types, as ``DataType.typeName()`` gives them.

Tests: ``tests/sinks/test_row_transfer.py``.
"""

from __future__ import annotations

from typing import Final

FIXED_SIZE: Final = frozenset(
    {
        "boolean",
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "decimal",
        "date",
        "timestamp",
        "timestamp_ntz",
    }
)
"""Types whose values take no more bytes the larger they are."""
