"""Folders that sources read: where they are, and whether each is the one that it was.

Spark knows files by their paths. In a folder that was deleted and made again, a new file with the
name of an old one is never read, without an error.

Tests: ``tests/spark/test_source_folders.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from seamark.spark.plans.plan import PlanSources, SourceInfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATTERN: Final = frozenset("*?[]{}")
_PATTERN_NAME: Final = re.compile(r"/[^/]*[*?\[\]{}\\].*", re.DOTALL)


def folder_ids(sources: Mapping[str, SourceInfo]) -> dict[str, dict[str, str]]:
    """By source: the id of the local folder that it reads; nothing for other sources."""
    found = {}
    for name, info in sources.items():
        path = info.options.get("path", "")
        if info.reads_files and (known := folder_id(path)) is not None:
            found[name] = {path: known}
    return found


def input_folders(spark: SparkSession, sources: PlanSources) -> dict[str, str]:
    """By file source: the URI of the folder that all of its files are below, not encoded."""
    paths = {
        name: path
        for name, info in sources.info.items()
        if info.reads_files and (path := sources.options_of(name).get("path"))
    }
    return {name: fixed_folder(_qualified(spark, path)) for name, path in paths.items()}


def fixed_folder(path: str) -> str:
    """The part of a path before the first name that is a pattern. Pure."""
    return _PATTERN_NAME.sub("", path)


def _qualified(spark: SparkSession, path: str) -> str:
    """A path with its file system, as Spark itself completes it."""
    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    plain = jvm.org.apache.hadoop.fs.Path(path)
    system = plain.getFileSystem(session.sessionState().newHadoopConf())
    return str(system.makeQualified(plain).toString())


def folder_id(path: str) -> str | None:
    """What tells a folder of this machine from another one at the same path; None if unknown."""
    uri = urlsplit(path)
    if uri.scheme not in ("", "file") or _PATTERN.intersection(path):
        return None
    local = path if not uri.scheme else unquote(uri.path)
    try:
        found = os.stat(local)
    except OSError:
        return None  # Spark will say so
    return f"inode-{found.st_ino}"


def other_folders(before: Mapping[str, Any], now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Folders that are others than in a checkpoint, in words. Pure."""
    return [
        f"source {source!r} reads another folder {path!r} than before: it was made again, moved or "
        "copied. A file there is read only if its path is new"
        for source, ids in now.items()
        for path, known in ids.items()
        if isinstance(before.get(source), dict) and before[source].get(path, known) != known
    ]
