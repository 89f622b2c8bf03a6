"""Options of sources that let rows be skipped without an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple


class _Lossy(NamedTuple):
    name: str
    is_lossy: Callable[[str], bool]
    words: str


def _is_true(value: str) -> bool:
    return value.strip().lower() == "true"


def _is_false(value: str) -> bool:
    return value.strip().lower() == "false"


_MISSING: Final = "files that are gone are taken for files without rows"
_CORRUPT: Final = "files that cannot be read are skipped"

_OPTIONS: Final = {
    option.name.lower(): option
    for option in (
        _Lossy("failOnDataLoss", _is_false, "rows that the source has deleted are skipped"),
        _Lossy("ignoreMissingFiles", _is_true, _MISSING),
        _Lossy("ignoreCorruptFiles", _is_true, _CORRUPT),
        _Lossy("spark.sql.files.ignoreMissingFiles", _is_true, _MISSING),
        _Lossy("spark.sql.files.ignoreCorruptFiles", _is_true, _CORRUPT),
        _Lossy(
            "mode",
            lambda value: value.strip().upper() == "DROPMALFORMED",
            "rows that cannot be parsed are dropped",
        ),
        _Lossy(
            "cleanSource",
            lambda value: value.strip().lower() in ("delete", "archive"),
            "files are taken away once they were read, and cannot be read again after a rollback",
        ),
        _Lossy("maxFileAge", lambda value: True, "files older than this are never read"),
        _Lossy("ignoreDeletes", _is_true, "deletions are not seen"),
        _Lossy("ignoreChanges", _is_true, "updates and deletions are not seen as such"),
        _Lossy("skipChangeCommits", _is_true, "commits that change rows are skipped"),
        _Lossy("streaming-skip-delete-snapshots", _is_true, "deletions are not seen"),
        _Lossy("streaming-skip-overwrite-snapshots", _is_true, "overwritten rows are not seen"),
    )
}

SESSION_SETTINGS: Final = (
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.files.ignoreCorruptFiles",
)
"""Settings of the session that do the same to every source made of files."""

FILE_FORMATS: Final = frozenset(
    {"avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml"}
)


def lossy_options(options: Mapping[str, str]) -> dict[str, str]:
    """Those of the options that may lose rows, by the name that Spark documents."""
    lossy = {}
    for key, value in options.items():
        known = _OPTIONS.get(key.lower())
        if known is not None and known.is_lossy(value):
            lossy[known.name] = value
    return dict(sorted(lossy.items()))


def loss_text(source: str, option: str, value: str) -> str:
    """What an option means for the rows of a source."""
    known = _OPTIONS.get(option.lower())
    what = f": {known.words}" if known is not None else ""
    return f"source {source!r} may lose rows by {option}={value}{what}"


def recorded_losses(structure: Any) -> list[str]:
    """What the structure in a manifest says about options that may lose rows, in words."""
    sources = structure.get("sources") if isinstance(structure, dict) else None
    return [
        loss_text(str(name), str(option), str(value))
        for name, source in (sources.items() if isinstance(sources, dict) else ())
        for option, value in may_lose_of(source).items()
    ]


def may_lose_of(source: Any) -> dict[str, Any]:
    """The options of one recorded source that may lose rows."""
    may_lose = source.get("may_lose") if isinstance(source, dict) else None
    return may_lose if isinstance(may_lose, dict) else {}
