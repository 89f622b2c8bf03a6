"""What Spark wrote down about the stateful operators, and what unfinished work has left behind."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Mapping
from typing import Final

from seamark.spark.checkpoint_files import schema_paths
from seamark.spark.native.inspect.findings import Code, Finding, damage, info, warning
from seamark.spark.native.inspect.logs import Logs
from seamark.spark.native.inspect.seen import Seen

_PLACE: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(.*)")
_OLD_TEMPORARY: Final = 3600.0

# the settings that came with a version of Spark, newest first; each writes all that it knows
_SIGNS: Final = (
    ("4.3 or newer", "spark.sql.dropDuplicates.deterministicKeyOrder.enabled"),
    ("4.2", "spark.sql.streaming.stateStore.rowChecksum.enabled"),
    ("4.0 or 4.1", "spark.sql.streaming.stateStore.encodingFormat"),
    ("3.3 to 3.5", "spark.sql.streaming.statefulOperator.useStrictDistribution"),
)


def spark_version(conf: Mapping[str, str]) -> str | None:
    """Which Spark wrote the newest offsets, by the settings that it pins."""
    return next((version for version, sign in _SIGNS if sign in conf), None)


def operator_findings(seen: Seen, logs: Logs) -> Iterator[Finding]:
    """Operators whose description is missing or leads somewhere else."""
    newest = logs.newest
    since_4 = newest is not None and (spark_version(newest.conf) or "").startswith("4")
    for number in seen.operator_numbers():
        yield from _description(seen, number, since_4)
        yield from _schemas(seen, number)


def _description(seen: Seen, number: int, since_4: bool) -> Iterator[Finding]:
    found = seen.described(number)
    if not isinstance(found, str):
        return
    folder = f"state/{number}/_metadata"
    versions = seen.batches(f"{folder}/v2")
    path = f"{folder}/v2/{versions[-1]}" if versions else f"{folder}/metadata"
    if path in seen.entries:
        advice = "Put the file back from a copy of the directory."
        error = "STDS_FAILED_TO_READ_OPERATOR_METADATA"
        yield damage(Code.OPERATOR_METADATA_UNREADABLE, path, found, advice, error)
    elif seen.has_folder(f"state/{number}/_stateSchema"):
        yield damage(
            Code.OPERATOR_METADATA_MISSING,
            f"{folder}/v2",
            f"nothing says what stateful operator {number} is",
            "Put the file back from a copy of the directory.",
            "STDS_FAILED_TO_READ_OPERATOR_METADATA",
        )
    elif since_4:  # before, Spark wrote none
        yield warning(
            Code.OPERATOR_METADATA_MISSING,
            path,
            f"nothing says what stateful operator {number} is",
            "Spark writes it anew at the next start; until then the number of partitions is a "
            "guess from the folders.",
        )


def _schemas(seen: Seen, number: int) -> Iterator[Finding]:
    """Files that the newest description names by absolute paths."""
    folder = f"state/{number}/_metadata/v2"
    versions = seen.batches(folder)
    if not versions:
        return
    path = f"{folder}/{versions[-1]}"
    text = seen.read_text(path) or ""
    for root, below in dict.fromkeys(schema_paths(text)):
        file = below.removeprefix("/")
        if not seen.is_there(file):
            what = f"{path} names {file}, which is not there"
            error = "an error that the schema file does not exist"
            advice = "Put the file back from the directory that this one was copied from."
            yield damage(Code.SCHEMA_MISSING, file, what, advice, error)
        if not _is_same_place(root, seen.uri, seen.is_local):
            yield warning(
                Code.SCHEMA_ELSEWHERE,
                path,
                f"the schema is named by a path into another directory, {root}: the query reads "
                "it there, and fails when that one goes",
                "Make copies by seamark spark snapshot and restore: they rewrite such paths.",
            )
            return


def _is_same_place(a: str, b: str, local: bool) -> bool:
    scheme_a, host_a, path_a = _place(a)
    scheme_b, host_b, path_b = _place(b)
    if local:
        same_scheme = scheme_a in ("", "file")
        return same_scheme and os.path.realpath(path_a) == os.path.realpath(path_b)
    same_host = host_a == host_b or not host_a or not host_b
    return scheme_a[:2] == scheme_b[:2] and same_host and path_a == path_b


def _place(uri: str) -> tuple[str, str, str]:
    found = _PLACE.fullmatch(uri.replace("\n", ""))
    if found is None:
        return "", "", uri
    return found[1] or "", found[2] or "", "/" + found[3].strip("/").replace("\0", "")


def repartition_findings(seen: Seen, logs: Logs) -> Iterator[Finding]:
    """A planned batch with another number of partitions: Spark's offline runner was cut short."""
    planned = logs.planned
    if planned is None or planned == logs.committed or not seen.operator_numbers():
        return
    new, old = logs.entries.get(planned), logs.entries.get(planned - 1)
    if new is None or old is None:
        return
    before, after = old.state_partitions, new.state_partitions
    if before and after and before != after:
        yield damage(
            Code.REPARTITION_UNFINISHED,
            f"offsets/{planned}",
            f"batch {planned} was to change {before} partitions into {after} and was not finished",
            f"Run it again: seamark spark repartition PATH {after}; or go back: "
            f"seamark spark rollback PATH --to-batch {planned - 1}",
            "STREAMING_UNFINISHED_REPARTITION_DETECTED",
        )


def temporary_findings(seen: Seen) -> Iterator[Finding]:
    """Temporary files that no running write can be at any more."""
    newest = max((entry.modified for entry in seen.entries.values()), default=0.0)
    old = sorted(
        path
        for path, entry in seen.entries.items()
        if path.endswith(".tmp")
        and path.rsplit("/", 1)[-1].startswith(".")
        and newest - entry.modified > _OLD_TEMPORARY
    )
    if old:
        what = f"{len(old)} temporary files of writes that were never finished"
        if len(old) == 1:
            what = "a temporary file of a write that was never finished"
        yield info(Code.TEMPORARY_FILES, old[0], what, "They may be removed.")
