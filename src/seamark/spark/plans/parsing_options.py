"""How the files of a source are made rows of: another separator gives other rows of the same file.

Tests: ``tests/spark/test_parsing_options.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from seamark._redaction import redacted

PARSING: Final = "parsing"
"""The member of a recorded source that holds it."""
_OPTIONS: Final = frozenset(
    {
        "allowbackslashescapinganycharacter", "allowcomments", "allownonnumericnumbers",
        "allownumericleadingzeros", "allowsinglequotes", "allowunquotedcontrolchars",
        "allowunquotedfieldnames", "attributeprefix", "charset", "chartoescapequoteescaping",
        "columnnameofcorruptrecord", "comment", "dateformat", "datetimerebasemode", "delimiter",
        "emptyvalue", "encoding", "enforceschema", "escape", "excludeattribute",
        "ignoreleadingwhitespace", "ignoresurroundingspaces", "ignoretrailingwhitespace",
        "int96rebasemode", "linesep", "locale", "nanvalue", "negativeinf", "nullvalue",
        "positiveinf", "prefersdecimal", "primitivesasstring", "quote", "rowtag", "sep",
        "timestampformat", "timestampntzformat", "timezone", "unescapedquotehandling", "valuetag",
        "wholetext",
    }
)  # fmt: skip
_BY_PLACE: Final = "csv"
"""The format whose columns are known by their places."""


def parsing_of(file_format: str, options: Mapping[str, str], columns: Sequence[str]) -> Any:
    """What decides which rows a file has, as a structure records it. Pure."""
    given = {name.lower(): value for name, value in options.items()}
    found: dict[str, Any] = {
        "options": {name: redacted(given[name]) for name in sorted(_OPTIONS & given.keys())}
    }
    if file_format.lower().startswith(_BY_PLACE):
        found["columns"] = list(columns)
    return found


def parsing_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """By source, what was recorded of both: in words, what makes other rows of the same file."""
    return [
        f"source {name!r}: {what}"
        for name, parsing in new.items()
        for what in parsing_differences(old.get(name), parsing)
    ]


def parsing_differences(old: Any, new: Any) -> list[str]:
    """The same for one source; none where one of them was not recorded by an older Seamark."""
    are_recorded = isinstance(old, dict) and isinstance(new, dict)
    return list(_changes(old, new)) if are_recorded else []


def parsing_in(source: Any) -> Any:
    """What a recorded source says about it; None when that is nothing."""
    return source.get(PARSING) if isinstance(source, dict) else None


def recorded_as(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Sources without what a Seamark that did not know of it has not recorded of them."""

    def as_before(name: str, source: Any) -> Any:
        before = old.get(name)
        if not isinstance(before, dict) or PARSING in before:
            return source
        return {key: value for key, value in source.items() if key != PARSING}

    return {name: as_before(name, source) for name, source in new.items()}


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before, after = _options_in(old), _options_in(new)
    for option in sorted(before.keys() | after.keys()):
        was, now = before.get(option), after.get(option)
        if was != now:
            yield f"option {option} {_words(was)} → {_words(now)}"
    then, later = _columns_in(old), _columns_in(new)
    for name, place in later.items():
        if name in then and then[name] != place:
            yield f"column {name!r} is column {place} of its files, and was column {then[name]}"


def _options_in(parsing: Mapping[str, Any]) -> Mapping[str, Any]:
    options = parsing.get("options")
    return options if isinstance(options, dict) else {}


def _columns_in(parsing: Mapping[str, Any]) -> dict[str, int]:
    columns = parsing.get("columns")
    listed = columns if isinstance(columns, list) else []
    return {str(name): place for place, name in enumerate(listed, start=1)}


def _words(value: Any) -> str:
    return "none" if value is None else repr(value)
