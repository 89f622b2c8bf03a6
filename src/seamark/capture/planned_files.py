"""Files that a batch was planned to read: which of them are gone, or others than they were.

A file source notes the path of each file and when it was modified. Spark opens what is noted: of a
source whose path has a pattern it does not ask whether the pattern leads there.

Tests: ``tests/capture/test_planned_files.py``.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from seamark._common.json_documents import UNREADABLE, decode_unambiguous
from seamark.errors import DamageError, RefusedError
from seamark.spark.batch_log import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_LOOKED_AT: Final = 1000
"""Each file that is not on a local disk costs a request."""
_MOST_NAMED: Final = 3
_LONGEST_SHOWN: Final = 1000
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)?", re.DOTALL)
_LOG_ENTRY: Final = re.compile(r"sources/([0-9]{1,9})/.+")
_VERSION_LINE: Final = re.compile(r"v[0-9]+")
_ODD: Final = re.compile(r"[\x00-\x20\x7f]")

Modified = Callable[[str], int | None]
"""When a file was modified, in ms; None when it is gone."""


class PlannedFile(NamedTuple):
    """One file, as the source has noted it."""

    uri: str
    modified_ms: int | None


class DeclaredInput(NamedTuple):
    """What a file source is declared to read."""

    source: str
    folder: str
    """The URI of the folder that all of its files are below, not encoded."""


def planned_files(plan: Plan) -> Iterator[PlannedFile]:
    """The files that the entries of file sources name; other sources' entries name none."""
    for entry in plan.sources.values():
        for line in entry.split("\n")[1:]:
            try:
                fields = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(fields, dict) and isinstance(fields.get("path"), str):
                at = fields.get("timestamp")
                yield PlannedFile(fields["path"], at if isinstance(at, int) else None)


def require_declared_files(plan: Plan, inputs: Sequence[DeclaredInput | None]) -> None:
    """:class:`RefusedError` when a plan names a file that its source is not declared to read.

    ``inputs`` are in the order of the folders below ``sources/``, None for what is not known.
    :class:`DamageError` for an entry that Spark may read in another way.
    """
    for path, entry in plan.sources.items():
        match = _LOG_ENTRY.fullmatch(path)
        number = int(match[1]) if match else len(inputs)
        declared = inputs[number] if number < len(inputs) else None
        if declared is None:
            continue
        folder = _place(declared.folder)
        for uri in _named_in(path, entry):
            if not _is_below(uri, folder):
                raise RefusedError(
                    f"source {declared.source!r} was planned to read a file that is not in its "
                    "folder",
                    where=f"{uri[:_LONGEST_SHOWN]} is not below {declared.folder}",
                    hint="Spark would read it wherever it is. If you trust the store, declare the "
                    "path that the epoch was planned with.",
                )


def _named_in(path: str, entry: str) -> Iterator[str]:
    """The files that an entry of a file source's log names, each line as Spark reads it."""
    head, *lines = entry.split("\n")
    try:
        if not _VERSION_LINE.fullmatch(head):
            raise ValueError("it does not begin with a version")
        for line in filter(None, lines):
            named = decode_unambiguous(line)["path"]
            if not isinstance(named, str):
                raise TypeError("a path is no text")
            yield named
    except (*UNREADABLE, LookupError, TypeError) as error:
        raise DamageError(f"{path} does not list files: {error!r}") from None


def _is_below(uri: str, folder: tuple[str, str, str]) -> bool:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    if _ODD.search(uri) or parts.query or parts.fragment:
        return False  # Spark encodes these
    scheme, host, path = _place(f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}")
    root = folder[2].rstrip("/") + "/"
    return (scheme, host) == folder[:2] and f"{path}/".startswith(root)


def _place(uri: str) -> tuple[str, str, str]:
    """Scheme, server and path of a URI that is not encoded, each in one form."""
    match = _URI.fullmatch(uri)
    if match is None:
        return "", "", uri
    path = posixpath.normpath("/" + (match[3] or "").lstrip("/"))
    return match[1].lower(), (match[2] or "").lower(), path


def changed_files(plan: Plan, modified: Modified) -> list[str]:
    """What has become of the files of a plan, in words; nothing when all are as they were."""
    gone: list[str] = []
    edited: list[str] = []
    for number, file in enumerate(planned_files(plan)):
        if number == _MOST_LOOKED_AT:
            break
        now = modified(file.uri)
        if now is None:
            gone.append(file.uri)
        elif file.modified_ms is not None and now != file.modified_ms:
            edited.append(file.uri)
    texts = []
    if gone:
        texts.append(f"{_named(gone)} gone, which Spark takes for a file without rows")
    if edited:
        texts.append(f"{_named(edited)} modified since")
    return texts


def _named(uris: list[str]) -> str:
    more = f" and {len(uris) - _MOST_NAMED} more" if uris[_MOST_NAMED:] else ""
    named = f"({', '.join(uris[:_MOST_NAMED])}{more})"
    if len(uris) == 1:
        return f"a file that it read {named} is"
    return f"{len(uris)} files that it read {named} are"


def modified_by(spark: SparkSession) -> Modified:
    """Looks at local files itself, and at others by Spark's file systems."""

    def modified(uri: str) -> int | None:
        parts = urlsplit(uri)
        if parts.scheme in ("", "file"):
            try:
                return os.stat(unquote(parts.path)).st_mtime_ns // 1_000_000
            except OSError:
                return None
        return _modified_by_hadoop(spark, uri)

    return modified


def _modified_by_hadoop(spark: SparkSession, uri: str) -> int | None:
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(uri))
    try:
        found = path.getFileSystem(session.sessionState().newHadoopConf()).getFileStatus(path)
    except Py4JJavaError as error:
        if "FileNotFoundException" in str(error.java_exception.getClass().getName()):
            return None
        raise
    return int(found.getModificationTime())
