"""Ready-made calls for Spark, DuckDB and pandas, from what a checkpoint says is to be read.

A manifest may have been written by anybody, so every text becomes a literal of the language that
it ends up in, and nothing is taken over as code. A place is a path, a bucket or a folder of HDFS,
without settings for whoever reads it; a table of a catalog is named with catalog and namespace. No
call holds a password: where one is needed, it names a variable or an attached database.

Tests: ``tests/sinks/test_reader_calls.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from seamark.sinks.read_point import ReadPoint, needed_to_read
from seamark.table_formats.delta_addresses import is_known_address
from seamark.table_formats.services import is_path_or_bucket_alone

READERS: Final = ("spark", "duckdb", "pandas")
_SPARK_GLOB: Final = re.compile(r"[{}\[\]*?\\]")
_DUCKDB_GLOB: Final = re.compile(r"[\[*?]")
_S3: Final = re.compile(r"^s3://", re.IGNORECASE)
_HAS_SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")
_FOLDER: Final = re.compile(r"/.*|hdfs://[^?#]+", re.DOTALL | re.IGNORECASE)
_QUOTED_NAME: Final = r'"(?:[^"]|"")++"'
_TABLE: Final = re.compile(rf"{_QUOTED_NAME}(?:\.{_QUOTED_NAME}){{0,2}}")
_UP_TO_EPOCH: Final = re.compile(rf"{_QUOTED_NAME} <= [0-9]{{1,19}}")
_NAME_IN_CATALOG: Final = re.compile(r"[A-Za-z0-9_-]{1,255}")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LONGEST_TEXT: Final = 10_000
_TRUE: Final = ("true", "1", "yes")
_FORMATS: Final = ("parquet", "json", "csv", "orc")


def calls_for(point: ReadPoint) -> dict[str, str]:
    """What to type, by reader: Python for Spark and pandas, SQL for DuckDB.

    A reader that cannot read such a target is left out; so are all when the point is not one that
    Seamark has made.
    """
    make = _BY_KIND.get(point.kind)
    try:
        return make(point.target, point.at) if make is not None else {}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def summary_of(point: ReadPoint) -> str:
    """What selects the epochs, for people."""
    at = point.at
    try:
        if point.kind == "delta":
            return f"version {int(at['version'])}"
        if point.kind == "iceberg":
            return f"snapshot {int(at['snapshot_id'])}"
        if point.kind == "kafka":
            (ends,) = _ends_by_topic(at).values()
            return "before " + ", ".join(f"{part}:{end}" for part, end in ends.items())
        if point.kind == "kafka-topics":
            ends_of = _ends_by_topic(at).items()
            each = (f"{t}-{part}:{end}" for t, ends in ends_of for part, end in ends.items())
            return f"before {', '.join(each)}"
        if point.only_newest:
            return f"epoch {int(at['epoch'])}"
        return f"epoch <= {int(at['epoch'])}"
    except (KeyError, TypeError, ValueError, AttributeError):
        return json.dumps(at, ensure_ascii=False, sort_keys=True) if at else "–"


# literals


def python_literal(value: str | int) -> str:
    """A text or number as Python has it, without a character that cannot be seen."""
    return repr(value)


def sql_literal(text: str) -> str:
    """A text as SQL has it; a character that cannot be seen by its number.

    :class:`ValueError` for one that is longer than any path.
    """
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"a text of {len(text)} characters is nothing to type")
    pieces: list[str] = []
    for can_be_seen, group in groupby(text, str.isprintable):
        run = "".join(group)
        pieces += [_quoted(run)] if can_be_seen else [f"chr({ord(char)})" for char in run]
    return " || ".join(pieces) or "''"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# folders of files


def _files(target: str, at: Mapping[str, Any]) -> dict[str, str]:
    file_format, epoch = str(at["format"]), int(at["epoch"])
    # the name of a format may be one of a class, and a path without a slash the rest of a URL
    if file_format not in _FORMATS or _FOLDER.fullmatch(target) is None:
        return {}
    given = {str(k): str(v) for k, v in dict(at.get("options") or {}).items()}
    # a checkpoint that is not ours may hold others, and secrets
    options = needed_to_read(file_format, given)
    calls = {"spark": _spark_files(target, file_format, epoch, options)}
    is_local = _HAS_SCHEME.match(target) is None
    levels = ["upto=*"] if at.get("epochs_per_folder") else []
    levels += ["epoch=*", *("*=*" for _ in at.get("partition_by") or ()), "part-*"]
    # DuckDB takes a backslash for the end of a folder's name
    can_scan = is_local and "\\" not in target
    if can_scan and (scan := _duckdb_scan(file_format, options)) is not None:
        glob = _DUCKDB_GLOB.sub(r"[\g<0>]", target) + "/" + "/".join(levels)
        calls["duckdb"] = (
            f"SELECT * FROM {scan[0]}({sql_literal(glob)}, hive_types => {{'epoch': BIGINT}}"
            f"{''.join(f', {name} => {value}' for name, value in scan[1])}) WHERE epoch <= {epoch}"
        )
    if file_format == "parquet":
        calls["pandas"] = (
            f"pandas.read_parquet({python_literal(target)}, filters=[('epoch', '<=', {epoch})])"
        )
    elif is_local and file_format == "orc":
        # of text formats pyarrow takes the columns from the first file, whatever the others have
        calls["pandas"] = (
            f"pyarrow.dataset.dataset({python_literal(target)}, format='orc', partitioning='hive')"
            f".to_table(filter=pyarrow.dataset.field('epoch') <= {epoch}).to_pandas()"
        )
    return calls


def _spark_files(target: str, file_format: str, epoch: int, options: Mapping[str, str]) -> str:
    url = target if _HAS_SCHEME.match(target) else f"file://{target}"
    path = _SPARK_GLOB.sub(r"\\\g<0>", url)
    return (
        f"spark.read.format({python_literal(file_format)})"
        + _options(options.items())
        + f".load({python_literal(path)}).where('epoch <= {epoch}')"
    )


def _duckdb_scan(
    file_format: str, options: Mapping[str, str]
) -> tuple[str, list[tuple[str, str]]] | None:
    if file_format == "parquet":
        return "read_parquet", []
    if file_format == "json":
        return "read_json", [("format", "'newline_delimited'")]
    if file_format != "csv":
        return None
    given = {name.lower(): value for name, value in options.items()}
    return "read_csv", [
        ("header", "true" if _has_header(given) else "false"),
        ("delim", sql_literal(given.get("sep", given.get("delimiter", ",")))),
        ("quote", sql_literal(given.get("quote", '"'))),
        ("escape", sql_literal(given.get("escape", "\\"))),
    ]


def _has_header(options: Mapping[str, str]) -> bool:
    return options.get("header", "").lower() in _TRUE


def _options(options: Iterable[tuple[str, str | int]]) -> str:
    return "".join(
        f".option({python_literal(name)}, {python_literal(value)})" for name, value in options
    )


# tables


def _delta(target: str, at: Mapping[str, Any]) -> dict[str, str]:
    version = int(at["version"])
    if not is_known_address(target) or not is_path_or_bucket_alone(target):
        return {}
    # Hadoop calls it s3a, DuckDB wants to see that a path is one
    for_spark = _S3.sub("s3a://", target)
    for_duckdb = target if _HAS_SCHEME.match(target) else f"file://{target}"
    return {
        "spark": f"spark.read.format('delta').option('versionAsOf', {version})"
        f".load({python_literal(for_spark)})",
        "duckdb": f"SELECT * FROM delta_scan({sql_literal(for_duckdb)}, version => {version})",
        "pandas": f"deltalake.DeltaTable({python_literal(target)}, version={version}).to_pandas()",
    }


def _iceberg(target: str, at: Mapping[str, Any]) -> dict[str, str]:
    snapshot, table = int(at["snapshot_id"]), str(at.get("table") or target)
    catalog, metadata = at.get("catalog"), at.get("metadata_location")
    calls = {}
    is_in_catalog = bool(catalog) and _is_in_catalog(str(catalog), table)
    if is_in_catalog:
        in_spark = ".".join(f"`{part}`" for part in (str(catalog), *table.split(".")))
        read = f"spark.read.option('snapshot-id', {snapshot})"
        calls["spark"] = f"{read}.table({python_literal(in_spark)})"
    # pyiceberg itself would let the table's own properties choose the code that reads it
    if is_in_catalog and at.get("catalog_is_configured") is not False:
        opened = f"{python_literal(table)}, {python_literal(str(catalog))}"
        calls["pandas"] = _iceberg_rows(opened, snapshot)
    if metadata and is_path_or_bucket_alone(str(metadata)):
        if "pandas" not in calls:
            calls["pandas"] = _iceberg_rows(python_literal(str(metadata)), snapshot)
        scan = f"iceberg_scan({sql_literal(str(metadata))}, snapshot_from_id => {snapshot})"
        calls["duckdb"] = f"SELECT * FROM {scan}"
    return calls


def _is_in_catalog(catalog: str, table: str) -> bool:
    """Whether the names can be those of a catalog, of namespaces and of a table, and nothing else.

    Two parts alone may be a format and a path to Spark, which then reads any file or server.
    """
    parts = (catalog, *table.split("."))
    return "." in table and all(_NAME_IN_CATALOG.fullmatch(part) for part in parts)


def _iceberg_rows(opened: str, snapshot: int) -> str:
    return f"seamark.sinks.iceberg_table({opened}).scan(snapshot_id={snapshot}).to_pandas()"


def _postgres(_: str, at: Mapping[str, Any]) -> dict[str, str]:
    """Names are taken only if they are quoted all through, so that no name is code."""
    table, condition = at["table"], at.get("condition", "")
    is_condition = not condition or _UP_TO_EPOCH.fullmatch(condition)
    if not _TABLE.fullmatch(table) or not is_condition or not (table + condition).isprintable():
        return {}
    query = f"SELECT * FROM {table}" + (f" WHERE {condition}" if condition else "")
    return {
        "spark": "spark.read.format('jdbc').option('url', url)"
        f".option('query', {python_literal(query)}).load()",
        "duckdb": f"SELECT * FROM postgres_query('db', {sql_literal(query)})",
        "pandas": f"pandas.read_sql({python_literal(query)}, connection)",
    }


# what is no table


def _kafka(_: str, at: Mapping[str, Any]) -> dict[str, str]:
    ends = _ends_by_topic(at)
    if not ends or not all(_TOPIC.fullmatch(topic) for topic in ends):
        return {}  # in a list of topics a comma would be the end of a name
    options = [
        ("kafka.bootstrap.servers", str(at["bootstrap"])),
        ("kafka.isolation.level", "read_committed"),
        ("subscribe", ",".join(ends)),
        ("startingOffsets", "earliest"),
        ("endingOffsets", json.dumps(ends)),
    ]
    offsets = {topic: {int(part): end for part, end in its.items()} for topic, its in ends.items()}
    records = f"seamark.sinks.kafka_records({python_literal(str(at['bootstrap']))}, {offsets!r})"
    return {
        "spark": f"spark.read.format('kafka'){_options(options)}.load()",
        "pandas": f"pandas.DataFrame({records})",
    }


def _ends_by_topic(at: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    given = at["end_offsets"]
    by_topic = {at["topic"]: given} if "topic" in at else given
    return {
        str(topic): {str(int(part)): int(end) for part, end in sorted(ends.items(), key=_number)}
        for topic, ends in sorted(by_topic.items())
    }


def _number(item: tuple[str, Any]) -> int:
    return int(item[0])


def _key_value(target: str, at: Mapping[str, Any]) -> dict[str, str]:
    namespace = at.get("namespace")
    where = f", namespace={python_literal(str(namespace))}" if namespace else ""
    url = python_literal(target.partition("?")[0])  # what follows are settings of a client
    view = f"seamark.progress.open_progress({url}{where}, read_only=True)"
    # a view that nothing refers to is closed while it is read
    rows = "pandas.DataFrame([json.loads(row) for _, row in view.items('view')])"
    return {"pandas": f"view = {view}; rows = {rows}"}


_BY_KIND: Final[Mapping[str, Callable[[str, Mapping[str, Any]], dict[str, str]]]] = {
    "files": _files,
    "delta": _delta,
    "iceberg": _iceberg,
    "postgres": _postgres,
    "kafka": _kafka,
    "kafka-topics": _kafka,
    "key-value": _key_value,
}
