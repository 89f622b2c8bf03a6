"""Which columns go to a Delta table, and whether they fit it, before the first row is written.

A schema is what Spark and Delta both write as JSON: the same names for the same types.

Tests: ``tests/sinks/test_delta_schemas.py``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seamark.errors import RefusedError

Type = Any
"""A name, or a mapping for an array, a map or a struct."""

_PLAIN: Final = frozenset(
    (
        *("byte", "short", "integer", "long", "float", "double", "string", "boolean", "binary"),
        *("date", "timestamp", "timestamp_ntz"),
    )
)
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_NOT_IN_NAMES: Final = re.compile(r"[ ,;{}()\n\t=]")


@dataclass(frozen=True)
class Columns:
    """The columns of an output that go to the table."""

    types: dict[str, Type]
    keys: tuple[str, ...] = ()
    delete_where: str | None = None

    def as_table(self) -> dict[str, Any]:
        """The schema of a new table for them; any column may be null."""
        fields = [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in self.types.items()
        ]
        return {"type": "struct", "fields": fields}


def columns_of(
    schema: Mapping[str, Any],
    *,
    partition_by: Sequence[str],
    keys: Sequence[str],
    delete_where: str | None,
    where: str,
) -> Columns:
    """The columns that go to the table. Pure. :class:`RefusedError` names what cannot."""
    kinds = {field["name"]: field["type"] for field in schema["fields"]}
    names = [field["name"] for field in schema["fields"]]
    twice = [name for name, count in Counter(map(str.lower, names)).items() if count > 1]
    if twice:
        raise RefusedError(
            f"several columns have one name, capitals aside: {', '.join(sorted(twice))}",
            where=where,
            hint="Give each its own name with alias() or toDF().",
        )
    if delete_where is not None and kinds.pop(delete_where, None) != "boolean":
        raise RefusedError(
            f"delete_where names {delete_where!r}, which is not a boolean column", where=where
        )
    for name, kind in kinds.items():
        _check_column(name, kind, where)
    for role, wanted in (("partition by", partition_by), ("be a key", keys)):
        for name in wanted:
            _check_role(name, kinds, role, where)
    if partition_by and len(partition_by) >= len(kinds):
        raise RefusedError(
            "no column is left for the files when all are partitions",
            where=where,
            hint="Leave at least one column out of partition_by.",
        )
    return Columns({name: _bare(kind) for name, kind in kinds.items()}, (*keys,), delete_where)


def _check_role(name: str, kinds: Mapping[str, Type], role: str, where: str) -> None:
    if name not in kinds:
        raise RefusedError(
            f"there is no column {name!r} to {role}",
            where=where,
            hint=f"The columns are {', '.join(kinds)}.",
        )
    if not isinstance(kinds[name], str) or kinds[name] == "binary":
        raise RefusedError(
            f"the column {name!r} ({_text(kinds[name])}) cannot {role}",
            where=where,
            hint="Take a column of numbers, dates or texts.",
        )


def _check_column(name: str, kind: Type, where: str) -> None:
    if bad := _NOT_IN_NAMES.search(name):
        raise RefusedError(
            f"a Delta table without column mapping has no column with {bad[0]!r} in its name: "
            f"{name!r}",
            where=where,
            hint="Rename it with withColumnRenamed().",
        )
    if problem := _unknown(kind):
        raise RefusedError(
            f"Delta has no way to hold the column {name!r} ({problem})",
            where=where,
            hint="Cast it, or turn it into text first.",
        )


def _unknown(kind: Type) -> str | None:
    """The part of a type that Delta does not have, or None."""
    if isinstance(kind, str):
        return None if kind in _PLAIN or _DECIMAL.fullmatch(kind) else kind
    if kind.get("type") == "struct":
        parts = [field["type"] for field in kind["fields"]]
    elif kind.get("type") == "array":
        parts = [kind["elementType"]]
    elif kind.get("type") == "map":
        parts = [kind["keyType"], kind["valueType"]]
    else:
        return str(kind.get("type"))
    return next((unknown for part in parts if (unknown := _unknown(part))), None)


def _bare(kind: Type) -> Type:
    """A type with nothing but names and types in it: every part may be null."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = [
            {"name": f["name"], "type": _bare(f["type"]), "nullable": True, "metadata": {}}
            for f in kind["fields"]
        ]
        return {"type": "struct", "fields": fields}
    if kind["type"] == "array":
        return {"type": "array", "elementType": _bare(kind["elementType"]), "containsNull": True}
    return {
        "type": "map",
        "keyType": _bare(kind["keyType"]),
        "valueType": _bare(kind["valueType"]),
        "valueContainsNull": True,
    }


@dataclass(frozen=True)
class Fit:
    """How columns fit a table."""

    missing: tuple[str, ...]
    """Columns that the table lacks."""
    never_null: frozenset[str]
    """Columns that may not be null."""


def fit(types: Mapping[str, Type], fields: Sequence[Mapping[str, Any]], where: str) -> Fit:
    """How these columns fit a table. Pure. :class:`RefusedError` names what does not."""
    there = {field["name"]: field for field in fields}
    by_lower = {name.lower(): name for name in there}
    missing = []
    for name, kind in types.items():
        field = there.get(name)
        if field is None:
            if (other := by_lower.get(name.lower())) is not None:
                raise RefusedError(
                    f"the output has a column {name!r}, and the table has {other!r}",
                    where=where,
                    hint=f'Rename it: df.withColumnRenamed("{name}", "{other}").',
                )
            missing.append(name)
            continue
        if _bare(field["type"]) != _bare(kind):
            raise RefusedError(
                f"the column {name!r} is {_text(kind)}, and {_text(field['type'])} in the table",
                where=where,
                hint="Cast it to the type of the table.",
            )
        if _has_required(field["type"]):
            raise RefusedError(
                f"parts of the column {name!r} may not be null in the table, which is not checked",
                where=where,
                hint="Write to a table whose nested columns may be null.",
            )
    never_null = frozenset(name for name, field in there.items() if not field["nullable"])
    if absent := sorted(never_null - types.keys()):
        raise RefusedError(
            f"the table demands a value for {absent[0]!r}, and the output has no such column",
            where=where,
        )
    return Fit(tuple(missing), never_null)


def _has_required(kind: Type) -> bool:
    if isinstance(kind, str):
        return False
    if kind["type"] == "struct":
        return any(not f["nullable"] or _has_required(f["type"]) for f in kind["fields"])
    if kind["type"] == "array":
        return not kind["containsNull"] or _has_required(kind["elementType"])
    return not kind["valueContainsNull"] or _has_required(kind["valueType"])


def refuse_missing(fits: Fit, where: str) -> None:
    """:class:`RefusedError` when the table lacks a column."""
    if fits.missing:
        raise RefusedError(
            f"the table has no column {', '.join(map(repr, fits.missing))}",
            where=where,
            hint='Leave it out with drop(), or give the sink schema="merge" to add it.',
        )


def _text(kind: Type) -> str:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        inner = ",".join(f"{f['name']}:{_text(f['type'])}" for f in kind["fields"])
        return f"struct<{inner}>"
    if kind["type"] == "array":
        return f"array<{_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_text(kind['keyType'])},{_text(kind['valueType'])}>"
    return str(kind["type"])
