"""Files that a batch was planned to read: which of them are gone, or others than they were.

A file source notes the path of each file and when it was modified.

Tests: ``tests/capture/test_planned_files.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from seamark._common.json_documents import decode_foreign
from seamark._common.text import shortened
from seamark.errors import DamageError
from seamark.limits import LONGEST_REASON
from seamark.spark.batch_log import Plan, require_few_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_LOOKED_AT: Final = 1000
"""Each file that is not on a local disk costs a request."""
_MOST_NAMED: Final = 3
IF_IT_CANNOT_BE: Final = (
    "If it cannot be, roll back to the newest checkpoint, or take a new store when there is none: "
    "epochs are planned again then; bring the targets of functions back to that epoch first."
)

Modified = Callable[[str], int | None]
"""When a file was modified, in ms; None when it is gone."""


class PlannedFile(NamedTuple):
    """One file, as the source has noted it."""

    uri: str
    modified_ms: int | None


def planned_files(plan: Plan) -> Iterator[PlannedFile]:
    """The files that the entries of file sources name; other sources' entries name none.

    :class:`DamageError` for a path that is none to anybody.
    """
    for where, entry in plan.sources.items():
        require_few_lines(entry)
        for line in entry.split("\n")[1:]:
            try:
                fields = decode_foreign(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(fields, dict) and isinstance(fields.get("path"), str):
                at = fields.get("timestamp")
                _require_uri(fields["path"], where)
                yield PlannedFile(fields["path"], at if isinstance(at, int) else None)


def _require_uri(path: str, where: str) -> None:
    try:
        is_one = "\x00" not in unquote(urlsplit(path).path)
    except ValueError:
        is_one = False
    if not is_one:
        shown = shortened(path, LONGEST_REASON)
        raise DamageError(f"{where} names a file by what is no URI: {shown!r}")


def is_same_time(file: PlannedFile, now: int) -> bool:
    """Whether a file has the time that is in the plan, as far as its place can tell.

    A source takes the time from a listing. Some object stores tell milliseconds there, and whole
    seconds when they are asked for one file.
    """
    was = file.modified_ms
    if was is None or now == was:
        return True
    is_local = urlsplit(file.uri).scheme in ("", "file")
    return not is_local and now // 1000 == was // 1000 and (now % 1000 == 0 or was % 1000 == 0)


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
        elif not is_same_time(file, now):
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
    try:
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(uri))
        found = path.getFileSystem(session.sessionState().newHadoopConf()).getFileStatus(path)
    except Py4JJavaError as error:
        kind = str(error.java_exception.getClass().getName())
        if "FileNotFoundException" in kind:
            return None
        if "URISyntaxException" in kind:
            raise DamageError(
                f"a batch was planned to read {uri[:200]!r}, which is no URI"
            ) from None
        raise
    return int(found.getModificationTime())
