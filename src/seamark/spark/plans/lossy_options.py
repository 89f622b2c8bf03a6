"""Options of sources that let rows be skipped without an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from seamark._common.text import shortened
from seamark.limits import LONGEST_PREFIX

_MISSING: Final = "files that are gone are taken for files without rows"
_CORRUPT: Final = "files that cannot be read are skipped"
_UNPARTITIONED: Final = "files that lie beside the folders of partitions count as read, and are not"
_PASSED_OVER: Final = "files and folders with such names are never read"
_NULLS: Final = "rows without a value are passed over in the state of joins of streams"
_UNCHECKED: Final = "the state of a query that has changed is read as if it fitted"
_LATE: Final = "rows that one operator with state hands to the next too late are dropped"
_TRUE: Final = frozenset({"true"})
_FALSE: Final = frozenset({"false"})
_ANY: Final = frozenset[str]()

SKIPS_NULLS: Final = "spark.sql.streaming.stateStore.skipNullsForStreamStreamJoins.enabled"
CHECKS_OPERATORS: Final = "spark.sql.streaming.statefulOperator.checkCorrectness.enabled"
CHECKS_STATE: Final = "spark.sql.streaming.stateStore.stateSchemaCheck"

_OPTIONS: Final = {
    "failOnDataLoss": (_FALSE, "rows that the source has deleted are skipped"),
    "ignoreMissingFiles": (_TRUE, _MISSING),
    "ignoreCorruptFiles": (_TRUE, _CORRUPT),
    "spark.sql.files.ignoreMissingFiles": (_TRUE, _MISSING),
    "spark.sql.files.ignoreCorruptFiles": (_TRUE, _CORRUPT),
    "ignoreInvalidPartitionPaths": (_TRUE, _UNPARTITIONED),
    "spark.sql.files.ignoreInvalidPartitionPaths": (_TRUE, _UNPARTITIONED),
    "ignoredPathSegmentRegex": (_ANY, _PASSED_OVER),
    "spark.sql.files.ignoredPathSegmentRegex": (_ANY, _PASSED_OVER),
    "ignoreExtension": (_FALSE, "files without the extension .avro are skipped"),
    "mode": (frozenset({"dropmalformed"}), "rows that cannot be parsed are dropped"),
    "cleanSource": (
        frozenset({"delete", "archive"}),
        "files are taken away once they were read, and cannot be read again after a rollback",
    ),
    "fileNameOnly": (_TRUE, "a file counts as read when another one of its name was"),
    "maxFileAge": (_ANY, "files older than this are never read"),
    "excludeRegex": (_ANY, "files of a Delta table with such paths are never read"),
    "ignoreFileDeletion": (_TRUE, "updates and deletions are not seen as such"),
    "ignoreDeletes": (_TRUE, "deletions are not seen"),
    "ignoreChanges": (_TRUE, "updates and deletions are not seen as such"),
    "skipChangeCommits": (_TRUE, "commits that change rows are skipped"),
    "streaming-skip-delete-snapshots": (_TRUE, "deletions are not seen"),
    "streaming-skip-overwrite-snapshots": (_TRUE, "overwritten rows are not seen"),
    SKIPS_NULLS: (_TRUE, _NULLS),
    CHECKS_OPERATORS: (_FALSE, _LATE),
    CHECKS_STATE: (_FALSE, _UNCHECKED),
}
"""Name → the values that may lose rows, in lower case or none for all, and what is lost."""

_HARMLESS: Final = frozenset({"", "^[._]"})
"""Of a setting of which any value may lose rows: none, and Spark's own for the names it hides."""

_NAMES: Final = {name.lower(): name for name in _OPTIONS}

STATE_SETTINGS: Final = (SKIPS_NULLS, CHECKS_OPERATORS, CHECKS_STATE)
"""Settings of the session that concern operators with state, whatever their sources."""

SESSION_SETTINGS: Final = (
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreInvalidPartitionPaths",
    "spark.sql.files.ignoredPathSegmentRegex",
    *STATE_SETTINGS,
)
"""Settings of the session by which rows may get lost; the others concern sources made of files."""


def lossy_options(options: Mapping[str, str]) -> dict[str, str]:
    """Those of the options that may lose rows, by the name that Spark documents."""
    lossy = {}
    for key, value in options.items():
        name = _NAMES.get(key.lower(), "")
        values, _ = _OPTIONS.get(name, (None, ""))
        if values is None:
            continue
        if value.strip().lower() in values if values else value not in _HARMLESS:
            lossy[name] = value
    return dict(sorted(lossy.items()))


def loss_text(source: str, option: str, value: str) -> str:
    """What an option means for the rows of a source."""
    _, words = _OPTIONS.get(_NAMES.get(option.lower(), ""), (None, ""))
    what = f": {words}" if words else ""
    return f"source {source!r} may lose rows by {option}={value}{what}"


def losses_changed(
    old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]
) -> tuple[list[str], list[str]]:
    """Options that may lose rows, by source: those that came, and those that went."""
    came, went = [], []
    for name, options in new.items():
        before = old.get(name, {})
        came += [
            loss_text(name, option, value)
            for option, value in options.items()
            if before.get(option) != value
        ]
        went += [
            f"source {name!r}: {option} is no longer {value}"
            for option, value in before.items()
            if option not in options
        ]
    return came, went


def recorded_losses(structure: Any) -> list[str]:
    """What the structure in a manifest says about options that may lose rows, in words."""
    sources = structure.get("sources") if isinstance(structure, dict) else None
    return [
        loss_text(shortened(str(name), LONGEST_PREFIX), str(option), str(value))
        for name, source in (sources.items() if isinstance(sources, dict) else ())
        for option, value in may_lose_of(source).items()
    ]


def may_lose_of(source: Any) -> dict[str, Any]:
    """The options of one recorded source that may lose rows."""
    may_lose = source.get("may_lose") if isinstance(source, dict) else None
    return may_lose if isinstance(may_lose, dict) else {}
