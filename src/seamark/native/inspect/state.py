"""The state stores by their names and sizes: what the newest batch needs and what is left over.

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from seamark.checkpoint_dir.closures import pinned_partitions, stores_of
from seamark.checkpoint_dir.operators import StatefulOperator, StoreFolder
from seamark.checkpoint_dir.state_files import StateFile, closure, parse_state_file
from seamark.errors import DamageError
from seamark.limits import MOST_OPERATORS
from seamark.native.inspect.cached_listing import CachedListing
from seamark.native.inspect.findings import (
    CANNOT_LOAD,
    Code,
    Finding,
    Severity,
    damage,
    numbers_text,
    warning,
)
from seamark.native.inspect.logs import Logs
from seamark.native.inspect.snapshots import zip_findings


@dataclass(frozen=True)
class Store:
    """One state store: the files of one partition of one operator."""

    operator: StatefulOperator
    folder: StoreFolder
    files: Mapping[int, list[StateFile]]
    """Version → its files that count: not empty, and named by the commit log in format 2."""
    empty: Mapping[int, list[StateFile]]
    """The same for those without a byte."""
    ids: Mapping[int, str] | None

    def path(self, file: StateFile) -> str:
        """Where a file is."""
        return f"{self.folder.path}/{file.name}"

    @cached_property
    def all_files(self) -> list[StateFile]:
        """The files that count, of all versions."""
        return [file for files in self.files.values() for file in files]

    @cached_property
    def change_kind(self) -> str:
        """How the files end that every batch writes."""
        kinds = {file.extension for file in self.all_files}
        return next((kind for kind in ("changelog", "delta", "zip") if kind in kinds), "delta")

    @cached_property
    def snapshot_versions(self) -> list[int]:
        """The versions that there is a snapshot of, ascending."""
        return sorted({file.version for file in self.all_files if file.is_snapshot})

    def has_snapshot(self, version: int) -> bool:
        """Whether there is a snapshot of a version."""
        return any(file.is_snapshot for file in self.files.get(version, ()))

    @property
    def newest(self) -> int:
        """The highest version that there is anything of."""
        return max((*self.files, *self.empty), default=0)

    def loadable(self) -> set[int]:
        """The versions that can be loaded, as far as names tell."""
        versions = {0}
        for version in sorted(self.files):
            if self.has_snapshot(version) or version - 1 in versions:
                versions.add(version)
        return versions


@dataclass(frozen=True)
class State:
    """All stores, and what a restart would load."""

    stores: list[Store]
    needed: dict[str, tuple[str, ...]]
    """A store's folder → the files that a restart loads; absent for one that cannot be loaded."""
    findings: list[Finding]
    is_understood: bool
    """Whether every operator is there and known well enough to store its state."""


def stores_by_operator(stores: Iterable[Store]) -> dict[int, list[Store]]:
    """The stores of each operator, by its number."""
    by_operator: dict[int, list[Store]] = {}
    for store in stores:
        by_operator.setdefault(store.folder.operator, []).append(store)
    return by_operator


def state_of(listing: CachedListing, logs: Logs) -> State:
    """Every store at the version that a restart needs."""
    version = logs.restart
    stores = list(_stores(listing, logs))
    needed: dict[str, tuple[str, ...]] = {}
    findings: list[Finding] = []
    if version > 0:
        listing.fetch(_snapshots(stores, version))
        lost: list[Store] = []
        gone: list[Store] = []
        for store in stores:
            own, missing = _store_findings(listing, store, version)
            findings += own
            paths = None if missing is not None else _closure(listing, store, version)
            if paths is not None:
                needed[store.folder.path] = paths
            if missing is not None and missing not in store.empty:
                unwritten = missing == version == store.newest + 1
                if not store.newest and version > 1:
                    gone.append(store)
                elif (
                    unwritten
                    and logs.committed == version - 1
                    and not _was_there(listing, store, version)
                ):
                    lost.append(store)
                else:
                    findings.append(_missing(store, missing, version))
        findings += _not_consumed(lost, stores, version - 1)
        findings += _gone(gone, stores)
    lost_operators = list(_operators_lost(listing, logs))
    findings += lost_operators
    planned = max(-1 if each is None else each for each in (logs.planned, logs.committed))
    findings += _holes(stores, set(logs.commits), version)
    findings += _newer(stores, planned, logs.checkpoint_format)
    understood = all(map(listing.is_understood, listing.operator_numbers()))
    return State(stores, needed, findings, understood and not lost_operators)


def _stores(listing: CachedListing, logs: Logs) -> Iterator[Store]:
    pinned = pinned_partitions(listing, logs.restart - 1)
    for operator, folder in stores_of(listing, logs.ids.get(logs.restart), pinned):
        ids = _ids(logs, operator, folder) if logs.checkpoint_format == 2 else None
        files: dict[int, list[StateFile]] = {}
        empty: dict[int, list[StateFile]] = {}
        for name in listing.names(folder.path):
            path = f"{folder.path}/{name}"
            file = parse_state_file(name) if len(name) < 200 and path in listing.entries else None
            if (
                file is None
                or file.name != name
                or (ids is not None and file.uid != ids.get(file.version, file.uid))
            ):
                continue
            into = files if listing.is_there(path) else empty
            into.setdefault(file.version, []).append(file)
        yield Store(operator, folder, files, empty, ids)


def _ids(logs: Logs, operator: StatefulOperator, folder: StoreFolder) -> dict[int, str]:
    """State version → the id that the commit log gives this store's file."""
    at = operator.stores.index(folder.store)
    by_version = {}
    for version, each in logs.ids.items():
        parts = each.get(operator.number, [])
        if folder.partition < len(parts) and at < len(parts[folder.partition]):
            by_version[version] = parts[folder.partition][at]
    return by_version


def _snapshots(stores: list[Store], version: int) -> Iterator[str]:
    """The RocksDB snapshots that a restart would begin with."""
    for store in stores:
        for at in range(version, max(version - 1000, 0), -1):
            zips = [file for file in store.files.get(at, ()) if file.extension == "zip"]
            if zips or at not in store.files:
                yield from map(store.path, zips)
                break


def _closure(listing: CachedListing, store: Store, version: int) -> tuple[str, ...] | None:
    here = store.folder.path
    empty = {file.name for files in store.empty.values() for file in files}
    try:
        names = closure(listing.names_in(here) - empty, version, listing.reader(here), store.ids)
    except (DamageError, FileNotFoundError):
        return None
    return tuple(f"{here}/{name}" for name in names)


def _store_findings(
    listing: CachedListing, store: Store, version: int
) -> tuple[list[Finding], int | None]:
    """What is wrong from a version back to its snapshot, and the version that has no file."""
    findings = [
        damage(
            Code.STATE_EMPTY,
            store.path(file),
            f"{_named(store)}: version {number} is an empty file",
            "The state of that batch is lost here; roll back to an earlier batch.",
            CANNOT_LOAD if _is_reached(store, number, version) else None,
        )
        for number, files in store.empty.items()
        for file in files
    ]
    for at in range(version, 0, -1):
        files = store.files.get(at)
        if not files:
            return findings, at
        for file in files:
            if file.extension == "zip":
                findings += zip_findings(listing, store.folder, store.path(file), _named(store))
        if store.has_snapshot(at):
            break
    return findings, None


def _is_reached(store: Store, number: int, version: int) -> bool:
    """Whether loading ``version`` comes to version ``number``."""
    snapshots = store.snapshot_versions
    later = bisect_left(snapshots, number)
    return number <= version and (later == len(snapshots) or snapshots[later] > version)


def _named(store: Store) -> str:
    name = "" if store.folder.store == "default" else f" ({store.folder.store})"
    return f"operator {store.folder.operator}, partition {store.folder.partition}{name}"


def _was_there(listing: CachedListing, store: Store, version: int) -> bool:
    """Whether Hadoop's checksum of a file tells that it was written once."""
    start = (f".{version}.", f".{version}_")
    return any(
        name.startswith(start) and name.endswith(".crc") and not name.endswith(".tmp.crc")
        for name in listing.names(store.folder.path)
    )


def _by_operator(some: list[Store], stores: list[Store]) -> Iterator[tuple[Store, list[int], int]]:
    """The first store of each operator among some, their partitions, and how many it has."""
    every = stores_by_operator(stores)
    for number, own in sorted(stores_by_operator(some).items()):
        count = len({store.folder.partition for store in every[number]})
        yield own[0], sorted({store.folder.partition for store in own}), count


def _gone(gone: list[Store], stores: list[Store]) -> Iterator[Finding]:
    """Stores that nothing is left of, reported once for each operator."""
    for first, which, count in _by_operator(gone, stores):
        yield damage(
            Code.STATE_MISSING,
            first.folder.path,
            f"operator {first.folder.operator}: of partition {numbers_text(which)} there is "
            f"nothing at all, and it has {count}",
            stops=CANNOT_LOAD,
        )


def _operators_lost(listing: CachedListing, logs: Logs) -> Iterator[Finding]:
    """Operators without a folder: Spark numbers them without a gap, and format 2 names them."""
    there = listing.operator_numbers()
    named = set(logs.ids.get(logs.restart, ()))
    counted = range(min(max(there, default=-1), MOST_OPERATORS))
    for number in sorted(named.union(counted).difference(there)):
        yield damage(
            Code.STATE_MISSING,
            f"state/{number}",
            f"the state of operator {number} is not there as a whole",
            "Restore a snapshot of the directory.",
            CANNOT_LOAD,
        )


def _missing(store: Store, missing: int, version: int) -> Finding:
    builds = "" if missing == version else f", which version {version} builds on"
    return damage(
        Code.STATE_MISSING,
        f"{store.folder.path}/{missing}.{store.change_kind}",
        f"{_named(store)}: version {missing} is not there{builds}",
        stops=CANNOT_LOAD,
    )


def _holes(stores: list[Store], committed: set[int], version: int) -> Iterator[Finding]:
    """Versions that are not there between others, of batches that the logs still have.

    Those that a restart needs are reported already. Spark removes the oldest files first.
    """
    # batch N writes version N+1
    versions = sorted(batch + 1 for batch in committed)
    for store in stores:
        needed = _back_to_snapshot(store, version)
        there = sorted({*store.files, *store.empty})
        for before, after in pairwise(there):
            end = bisect_left(versions, min(after, needed))
            missing = versions[bisect_right(versions, before) : end]
            if missing:  # all of a hole at once: every store may lack every batch
                which = (
                    f"version {missing[0]} is"
                    if len(missing) == 1
                    else (f"versions {numbers_text(missing)} are")
                )
                yield warning(
                    Code.STATE_MISSING,
                    f"{store.folder.path}/{missing[0]}.{store.change_kind}",
                    f"{_named(store)}: {which} not there, between others that are",
                    "A restart does not need it; rolling back to the batches around it may "
                    "not be possible.",
                )


def _back_to_snapshot(store: Store, version: int) -> int:
    """The oldest version that loading ``version`` comes to."""
    at = version
    while at > 0 and at in store.files and not store.has_snapshot(at):
        at -= 1
    return at


def _not_consumed(lost: list[Store], stores: list[Store], batch: int) -> Iterator[Finding]:
    for first, which, count in _by_operator(lost, stores):
        which_text = "no partition has" if len(which) == count else f"{len(which)} of {count} lack"
        yield damage(
            Code.BATCH_NOT_CONSUMED,
            f"{first.folder.path}/{batch + 1}.{first.change_kind}",
            f"batch {batch} was committed and {which_text} its state (operator "
            f"{first.folder.operator}, version {batch + 1}, partition {numbers_text(which)}): it "
            "was not consumed as a whole, by limit or show in foreachBatch, or its files are lost",
            stops=CANNOT_LOAD,
        )


def _newer(stores: list[Store], planned: int, checkpoint_format: int) -> Iterator[Finding]:
    """State of batches that were never planned, as a rollback by hand leaves it behind."""
    newer: dict[tuple[int, Severity], list[tuple[int, str]]] = {}
    for store in stores:
        for file in store.all_files:
            if file.version > planned + 1:
                severity = Severity.DAMAGE if file.is_snapshot else Severity.WARNING
                severity = Severity.INFO if checkpoint_format == 2 else severity
                key = store.folder.operator, severity
                newer.setdefault(key, []).append((file.version, store.path(file)))
    for (operator, severity), files_found in sorted(newer.items()):
        files_found.sort()
        versions = sorted({version for version, _ in files_found})
        what = "snapshot" if severity == Severity.DAMAGE else "file"
        what += "s" * (len(files_found) != 1)
        yield Finding(
            code=Code.STATE_NEWER_THAN_LOG,
            severity=severity,
            path=files_found[0][1],
            message=f"operator {operator}: {len(files_found)} {what} of version "
            f"{numbers_text(versions)}, and the newest planned batch is {planned}: left "
            "by an abandoned history"
            + ("" if severity == Severity.INFO else ", Spark would take them for its own"),
            advice="Nothing: format 2 tells them apart."
            if severity == Severity.INFO
            else f"Move them away: seamark spark rollback PATH --to-batch {max(planned, 0)}",
        )
