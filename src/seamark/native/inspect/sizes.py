"""The stateful operators with their kind of state store, and how large each partition is.

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from seamark.native.inspect.cached_listing import CachedListing
from seamark.native.inspect.findings import shown
from seamark.native.inspect.state import State

HDFS: Final = "HDFS-backed"
ROCKSDB: Final = "RocksDB"
CHANGELOG: Final = "RocksDB changelog"
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"


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
    is_complete: bool
    """Whether every store can be loaded at it."""
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
    sizes: dict[int, dict[int, int]] = {}
    counts: dict[int, int] = {}
    for path, entry in listing.entries.items():
        parts = path.split("/")
        if parts[0] != "state" or len(parts) < 3 or parts[-1].startswith("."):
            continue
        if not _is_number(parts[1]):
            continue
        number = int(parts[1])
        counts[number] = counts.get(number, 0) + 1
        if len(parts) > 3 and _is_number(parts[2]):
            of = sizes.setdefault(number, {})
            of[int(parts[2])] = of.get(int(parts[2]), 0) + entry.size
    summaries = []
    for number in listing.operator_numbers():
        operator = listing.operator(number)
        stores = [store for store in state.stores if store.folder.operator == number]
        partitions = len({store.folder.partition for store in stores}) or operator.partitions
        own = dict(sorted(sizes.get(number, {}).items()))
        summaries.append(
            OperatorSummary(
                number=number,
                name=shown(operator.name),
                partitions=partitions,
                stores=[shown(name) for name in operator.stores],
                provider=_provider(state, number, conf),
                version=version,
                is_complete=version == 0
                or all(store.folder.path in state.needed for store in stores),
                files=counts.get(number, 0),
                size=sum(own.values()),
                partition_sizes=own,
            )
        )
    return summaries


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _provider(state: State, number: int, conf: Mapping[str, str]) -> str:
    kinds = {
        file.extension
        for store in state.stores
        if store.folder.operator == number
        for files in store.files.values()
        for file in files
    }
    if "changelog" in kinds:
        return CHANGELOG
    if "zip" in kinds:
        return ROCKSDB
    if kinds:
        return HDFS
    named = conf.get(_PROVIDER, "").rsplit(".", 1)[-1]
    known = {"HDFSBackedStateStoreProvider": HDFS, "RocksDBStateStoreProvider": ROCKSDB}
    return known.get(named, shown(named) or "unknown")
