"""Files whose rows depend on the columns that are read of them.

Spark parses only the columns that a query needs. With ``mode=DROPMALFORMED`` it drops a row that is
malformed in one of them, and with ``ignoreCorruptFiles`` a file. So a query that reads one column
more may have fewer rows.

Tests: ``tests/spark/test_columns_read.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from seamark.spark.plans.plan import given_options, reads_files
from seamark.spark.plans.trees import class_name, each

_TEXT: Final = ("csv", "json", "xml")
"""Formats of which Spark parses the columns that it needs."""
_CORRUPT: Final = "spark.sql.files.ignoreCorruptFiles"
_COLUMN: Final = "spark.sql.columnNameOfCorruptRecord"
_PARTIAL: Final = "spark.sql.json.enablePartialResults"
_ROW_BY_ROW: Final = frozenset({"Project", "Filter"})

Settings = Mapping[str, str]


def settings_of(conf: Any) -> Settings:
    """What the session says about files that are malformed."""
    defaults = {_CORRUPT: "false", _COLUMN: "_corrupt_record", _PARTIAL: "true"}
    return {name: str(conf.get(name, value)) for name, value in defaults.items()}


def columns_that_count(plan: Any, settings: Settings) -> tuple[tuple[str, ...], ...]:
    """For each leaf of such files in an optimized plan: what is read of it."""
    return tuple(_found(plan, [], settings))


def _found(node: Any, above: list[Any], settings: Settings) -> Iterator[tuple[str, ...]]:
    children = list(each(node.children()))
    if not children:
        known = _format_and_options(node)
        if known is not None:
            names = [str(column.name()) for column in each(node.output())]
            skips = _skips_files(known[1], settings)
            if skips or rows_depend_on_columns(*known, names, settings):
                yield tuple(sorted(_read(node, above, exactly=skips)))
    for child in children:
        below = [*above, node] if class_name(node) in _ROW_BY_ROW else []
        yield from _found(child, below, settings)


def _format_and_options(leaf: Any) -> tuple[str, dict[str, str]] | None:
    """Of files that are read by one of Spark's file formats; None for other leaves."""
    if reads_files(leaf):
        return given_options(leaf)
    if class_name(leaf) == "LogicalRelation" and class_name(leaf.relation()) == "HadoopFsRelation":
        files = leaf.relation()
        pairs = each(files.options().toSeq())
        return class_name(files.fileFormat()), {str(p._1()): str(p._2()) for p in pairs}
    return None


def _skips_files(options: Mapping[str, str], settings: Settings) -> bool:
    given = {name.lower(): value for name, value in options.items()}
    return given.get("ignorecorruptfiles", settings[_CORRUPT]).strip().lower() == "true"


def rows_depend_on_columns(
    file_format: str, options: Mapping[str, str], columns: Iterable[str], settings: Settings
) -> bool:
    """Whether a format's rows, or values of theirs, depend on which others are read. Pure."""
    name = file_format.rpartition(".")[2].lower()
    given = {name.lower(): value for name, value in options.items()}
    if not name.startswith(_TEXT):
        return False
    if name.startswith("xml") or given.get("mode", "permissive").strip().lower() != "permissive":
        return True
    told = given.get("columnnameofcorruptrecord", settings[_COLUMN]).lower()
    if told in {column.lower() for column in columns}:
        return True
    return name.startswith("json") and settings[_PARTIAL].lower() == "false"


def _read(leaf: Any, above: list[Any], *, exactly: bool) -> set[str]:
    """The columns that the nodes right above need; ``exactly`` with the fields of structs."""
    columns = leaf.outputSet()
    if not any(class_name(node) == "Project" for node in above):
        return {str(column.name()) for column in each(leaf.output())}
    read = set[str]()
    for node in above:
        for expression in each(node.expressions()):
            for column in each(expression.references().toSeq()):
                if columns.contains(column):
                    nested = exactly and not _is_plain(column.dataType())
                    read.add(str(expression.sql() if nested else column.name()))
    return read


def _is_plain(data_type: Any) -> bool:
    return class_name(data_type) not in ("StructType", "ArrayType", "MapType")
