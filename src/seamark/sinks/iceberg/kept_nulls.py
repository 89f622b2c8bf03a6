"""Lists and maps of structs that are null, and stay so in data files.

pyiceberg 0.12 puts each of them together anew when it writes or reads a file, from its offsets
alone: what was null is empty then.

Tests: ``tests/sinks/test_iceberg_data_files.py``.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

_KEEPS: Final = "_seamark_keeps_nulls"


def keep_nulls() -> None:
    """Have pyiceberg keep nulls in this process, from now on."""
    from pyiceberg.io.pyarrow import ArrowProjectionVisitor

    visitor: Any = ArrowProjectionVisitor
    for name in ("list", "map"):
        made_by = getattr(visitor, name)
        if not hasattr(made_by, _KEEPS):
            setattr(visitor, name, _keeping(made_by))


def _keeping(made_by: Any) -> Any:
    @wraps(made_by)
    def made(self: Any, kind: Any, given: pa.Array | None, *parts: Any) -> Any:
        return with_nulls_of(given, made_by(self, kind, given, *parts))

    setattr(made, _KEEPS, True)
    return made


def with_nulls_of(given: pa.Array | None, made: pa.Array | None) -> pa.Array | None:
    """What was made of an array, with null where that has null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if given is None or made is None or given.null_count == made.null_count:
        return made
    return pc.if_else(given.is_valid(), made, pa.scalar(None, made.type))
