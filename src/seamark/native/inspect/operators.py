"""The stateful operators: how large they are, what Spark wrote down about them, unfinished work.

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from seamark.checkpoint_dir.schema_paths import (
    ForeignSchemaError,
    SchemaPath,
    is_same_place,
    schema_paths,
)
from seamark.errors import DamageError
from seamark.native.inspect.cached_listing import CachedListing
from seamark.native.inspect.findings import Code, Finding, damage, info, shown, warning
from seamark.native.inspect.logs import Logs
from seamark.native.inspect.state import State, Store, stores_by_operator

_OLD_TEMPORARY: Final = 3600.0
_PUT_BACK: Final = "Put the file back from a copy of the directory."
_NO_DESCRIPTION: Final = "STDS_FAILED_TO_READ_OPERATOR_METADATA"

# the settings that came with a version of Spark, newest first; each writes all that it knows
_SIGNS: Final = (
    ("4.3 or newer", "spark.sql.dropDuplicates.deterministicKeyOrder.enabled"),
    ("4.2", "spark.sql.streaming.stateStore.rowChecksum.enabled"),
    ("4.0 or 4.1", "spark.sql.streaming.stateStore.encodingFormat"),
    ("3.3 to 3.5", "spark.sql.streaming.statefulOperator.useStrictDistribution"),
    ("3.2", "spark.sql.streaming.stateStore.rocksdb.formatVersion"),
    ("3.1", "spark.sql.streaming.stateStore.compression.codec"),
    ("3.0", "spark.sql.streaming.join.stateFormatVersion"),
    ("2.4", "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion"),
    ("2.3", "spark.sql.streaming.stateStore.providerClass"),
    ("2.2", "spark.sql.shuffle.partitions"),
)
HDFS: Final = "HDFS-backed"
ROCKSDB: Final = "RocksDB"
CHANGELOG: Final = "RocksDB changelog"
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"


def spark_version(listing: CachedListing, conf: Mapping[str, str]) -> str | None:
    """Which Spark wrote the newest offsets, by the settings that it pins; None for no settings.

    Operators are described from 4.0 on, also by builds before its release, which pin less.
    """
    pinned = next((version for version, sign in _SIGNS if sign in conf), None)
    is_described = any(
        listing.description_path(number) in listing.entries for number in listing.operator_numbers()
    )
    return "4.0" if is_described and not (pinned or "").startswith("4") else pinned


def operator_findings(listing: CachedListing, logs: Logs) -> Iterator[Finding]:
    """Operators whose description is missing or leads somewhere else."""
    newest = logs.newest
    since_4 = newest is not None and (spark_version(listing, newest.conf) or "").startswith("4")
    for number in listing.operator_numbers():
        findings = list(_description(listing, number, since_4))
        yield from findings
        if all(each.code != Code.OPERATOR_METADATA_UNREADABLE for each in findings):
            yield from _schemas(listing, number)


def _description(listing: CachedListing, number: int, since_4: bool) -> Iterator[Finding]:
    path = listing.description_path(number)
    try:
        is_there = listing.described_operator(number) is not None
    except DamageError as unreadable:
        # Spark itself reads only descriptions of the second version
        needed = "/v2/" in path
        advice = (
            _PUT_BACK
            if needed
            else "The query starts without it, but its state cannot be stored or looked into. "
            "Remove the file: Spark writes it again at the next start."
        )
        error = _NO_DESCRIPTION if needed else None
        yield damage(Code.OPERATOR_METADATA_UNREADABLE, path, unreadable.what, advice, error)
        return
    what = f"Spark's description of stateful operator {number} is not there"
    if not is_there and not listing.is_understood(number):
        path = f"state/{number}/_metadata/v2"
        yield damage(Code.OPERATOR_METADATA_MISSING, path, what, _PUT_BACK, _NO_DESCRIPTION)
    elif not is_there and since_4:  # before, Spark wrote none
        yield warning(
            Code.OPERATOR_METADATA_MISSING,
            path,
            what,
            "Spark writes it again at the next start. Until then the folders show which stores it "
            "has, and the offset log how many partitions.",
        )


def _schemas(listing: CachedListing, number: int) -> Iterator[Finding]:
    """Files that descriptions name by absolute paths; Spark reads the newest one."""
    folder = f"state/{number}/_metadata/v2"
    named: list[SchemaPath] = []
    path = folder
    for version in listing.batches(folder):
        path = f"{folder}/{version}"
        try:
            named = schema_paths(path, listing.data(path) or b"")
        except ForeignSchemaError as foreign:
            yield damage(Code.SCHEMA_ELSEWHERE, path, foreign.what, foreign.hint or _PUT_BACK)
            return
        except DamageError as unreadable:
            yield damage(Code.OPERATOR_METADATA_UNREADABLE, path, unreadable.what, _PUT_BACK)
            return
    for root, file in dict.fromkeys(named):
        if not listing.is_there(file):
            what = f"{path} names {file}, which is not there"
            error = "an error that the schema file does not exist"
            advice = "Put the file back from the directory that this one was copied from."
            yield damage(Code.SCHEMA_MISSING, file, what, advice, error)
        if not is_same_place(root, listing.uri):
            yield warning(
                Code.SCHEMA_ELSEWHERE,
                path,
                f"the schema is named by a path into another directory, {root}: the query reads "
                "it there, and fails when that one goes",
                "Make copies by seamark spark snapshot and restore: they rewrite such paths.",
            )
            return


def repartition_findings(listing: CachedListing, logs: Logs) -> Iterator[Finding]:
    """A planned batch with another number of partitions: Spark's offline runner was cut short."""
    planned = logs.planned
    if planned is None or planned == logs.committed or not listing.operator_numbers():
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


def temporary_findings(listing: CachedListing) -> Iterator[Finding]:
    """Temporary files that no running write can be at any more."""
    newest = max((entry.modified for entry in listing.entries.values()), default=0.0)
    old = sorted(
        path
        for path, entry in listing.entries.items()
        if path.endswith(".tmp")
        and path.rsplit("/", 1)[-1].startswith(".")
        and newest - entry.modified > _OLD_TEMPORARY
    )
    if old:
        what = f"{len(old)} temporary files of writes that were never finished"
        if len(old) == 1:
            what = "a temporary file of a write that was never finished"
        yield info(Code.TEMPORARY_FILES, old[0], what, "They may be removed.")


@dataclass(frozen=True, kw_only=True)
class OperatorSummary:
    """One stateful operator."""

    number: int
    name: str
    partitions: int
    stores: list[str]
    provider: str
    """``HDFS-backed``, ``RocksDB``, ``RocksDB changelog``, or what the settings name."""
    version: int
    """The state version that a restart loads; batch N writes version N+1."""
    is_complete: bool | None
    """Whether every store can be loaded at it; None when a running query has gone on meanwhile."""
    files: int
    size: int
    partition_sizes: dict[int, int] = field(default_factory=dict)
    """Bytes of each partition's files, of all versions that are kept."""

    @property
    def skew(self) -> float | None:
        """The largest partition over the average; None when there is nothing to compare."""
        sizes = self.partition_sizes.values()
        if len(sizes) < 2 or not sum(sizes):
            return None
        return max(sizes) * len(sizes) / sum(sizes)


def operators_of(
    listing: CachedListing, state: State, version: int, conf: Mapping[str, str]
) -> list[OperatorSummary]:
    """Every stateful operator, by its number."""
    sizes: defaultdict[int, Counter[int]] = defaultdict(Counter)
    counts: Counter[int] = Counter()
    for path, entry in listing.entries.items():
        top, *parts = path.split("/")
        if top != "state" or len(parts) < 2 or parts[-1].startswith("."):
            continue
        if _is_number(parts[0]):
            counts[int(parts[0])] += 1
            if len(parts) > 2 and _is_number(parts[1]):
                sizes[int(parts[0])][int(parts[1])] += entry.size
    summaries = []
    by_operator = stores_by_operator(state.stores)
    for number in listing.operator_numbers():
        operator = listing.operator(number)
        stores = by_operator.get(number, [])
        partitions = len({store.folder.partition for store in stores}) or operator.partitions
        own = dict(sorted(sizes[number].items()))
        summaries.append(
            OperatorSummary(
                number=number,
                name=shown(operator.name),
                partitions=partitions,
                stores=[shown(name) for name in operator.stores],
                provider=_provider(stores, conf),
                version=version,
                is_complete=version == 0
                or all(store.folder.path in state.needed for store in stores),
                files=counts[number],
                size=sum(own.values()),
                partition_sizes=own,
            )
        )
    return summaries


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _provider(stores: Iterable[Store], conf: Mapping[str, str]) -> str:
    kinds = {file.extension for store in stores for file in store.all_files}
    if "changelog" in kinds:
        return CHANGELOG
    if "zip" in kinds:
        return ROCKSDB
    if kinds:
        return HDFS
    named = conf.get(_PROVIDER, "").rsplit(".", 1)[-1]
    known = {"HDFSBackedStateStoreProvider": HDFS, "RocksDBStateStoreProvider": ROCKSDB}
    return known.get(named, shown(named) or "unknown")
