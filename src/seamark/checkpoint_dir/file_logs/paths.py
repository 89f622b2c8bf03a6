"""The absolute paths inside the file source's and the file sink's logs.

Tests: ``tests/checkpoint_dir/test_source_log.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

_URI: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<host>[^/]*))?(?P<path>.*)")
# what java.net.URI leaves as it is in a path
_SAFE: Final = "/:@&=+$,;-_.!~*'()"


def moved(text: str, prefixes: Mapping[str, str]) -> str:
    """An entry of a source's or a sink's log with its paths under other folders.

    ``prefixes`` is old folder → new folder, each the way one gives a path to Spark: not escaped,
    with or without ``file:``. The longest one that fits wins; a line that none fits, or that
    names no path, stays as it is, byte for byte. Paths are escaped as Spark escapes them.
    """
    ordered = sorted(
        ((_split(escaped(old)), escaped(new)) for old, new in prefixes.items()),
        key=lambda pair: -len(pair[0][1]),
    )
    return "\n".join(_moved_line(line, ordered) for line in text.split("\n"))


def escaped(path: str) -> str:
    """A folder as it stands in Spark's logs, without a slash at the end.

    >>> escaped("/data/in put"), escaped("s3a://bucket/50%/")
    ('file:///data/in%20put', 's3a://bucket/50%25')
    """
    match = _URI.fullmatch(path)
    root = f"{match['scheme']}://{match['host'] or ''}" if match else "file://"
    inner = match["path"] if match else path
    return root + "".join(_escaped_char(char) for char in inner.rstrip("/"))


def _escaped_char(char: str) -> str:
    # Java leaves letters of all languages as they are, but no spaces and no control characters
    return char if ord(char) >= 0xA0 and char.isprintable() else quote(char, safe=_SAFE)


def _split(uri: str) -> tuple[str, str]:
    """(scheme and host, path): ``file:/x`` and ``file:///x`` are the same place."""
    match = _URI.fullmatch(uri)
    if match is None:
        return "file://", uri
    return f"{match['scheme']}://{match['host'] or ''}", match["path"]


def _moved_line(line: str, ordered: list[tuple[tuple[str, str], str]]) -> str:
    try:
        fields = json.loads(line)
        place, path = _split(fields["path"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return line  # the version, or what another kind of source has noted
    for (old_place, old_path), new in ordered:
        rest = path.removeprefix(old_path)
        if place == old_place and path.startswith(old_path) and rest[:1] in ("", "/"):
            return json.dumps(
                fields | {"path": new + rest}, separators=(",", ":"), ensure_ascii=False
            )
    return line
