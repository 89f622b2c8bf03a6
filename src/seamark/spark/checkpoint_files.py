"""Reading a checkpoint directory of Spark, wherever its files are.

::

    metadata                          the query's id
    offsets/N, commits/N              what batch N was to read, and that it was done
    sources/<i>/<k>[.compact]         what a source notes for itself
    state/<op>/_metadata/...          what a stateful operator is
    state/<op>/_stateSchema/...       its schemas, named by absolute paths
    state/<op>/<partition>[/<store>]  its state
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from seamark import limits
from seamark.errors import DamageError
from seamark.manifest.bounds import check_name
from seamark.spark.state_files import SST_FOLDER

ROOT_MARK: Final = "{seamark:root}"
"""Stands for the directory's own URI in files that hold absolute paths."""

DEFAULT_STORE: Final = "default"

_NUMBER: Final = re.compile(r"[0-9]+")  # \d and isdigit() also take digits of other scripts
_SOURCE_ENTRY: Final = re.compile(r"[0-9]+(\.compact)?")
_STATE_PATH: Final = re.compile(r"/state/[0-9]+/_stateSchema/")


class StoreFolder(NamedTuple):
    """One state store: the files of one partition of one operator."""

    operator: int
    partition: int
    store: str
    path: str
    """Relative to the directory."""


class StatefulOperator(NamedTuple):
    """What Spark writes down about one stateful operator."""

    number: int
    name: str
    stores: list[str]
    partitions: int

    @property
    def label(self) -> str:
        """The name under which its state is kept."""
        return f"{self.number}-{self.name}"

    def folders(self, partitions: Iterable[int] | None = None) -> Iterator[StoreFolder]:
        """Every store of every partition, or of some."""
        for partition in range(self.partitions) if partitions is None else partitions:
            for store in self.stores:
                below = "" if store == DEFAULT_STORE else f"/{store}"
                path = f"state/{self.number}/{partition}{below}"
                yield StoreFolder(self.number, partition, store, path)


class CheckpointFiles(ABC):
    """The files of one checkpoint directory; paths are relative to it."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The directory as Spark writes it into its own files."""

    @abstractmethod
    def read(self, relative: str) -> bytes:
        """The bytes of a file; FileNotFoundError when there is none."""

    @abstractmethod
    def names(self, folder: str) -> Collection[str]:
        """What lies directly in a folder, folders too; nothing when there is no such folder."""

    @abstractmethod
    def has_folder(self, relative: str) -> bool:
        """Whether there is such a folder, be it empty."""

    def size(self, relative: str) -> int | None:
        """The bytes of a file, where that is known without reading it; None elsewhere."""
        return None

    @abstractmethod
    def files_below(self, relative: str) -> Iterator[str]:
        """Relative paths of all files, without hidden ones (temporary, Hadoop's checksums)."""

    def read_text(self, relative: str) -> str | None:
        """The text of a file, or None when there is none or it is no text."""
        try:
            return self.read(relative).decode()
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
            return None

    # Spark's logs

    def batches(self, log: str) -> list[int]:
        """Ids in ``offsets`` or ``commits``, ascending."""
        return _numbers(self.names(log))

    def source_entries(self) -> list[str]:
        """Relative paths of what the sources wrote into logs of their own."""
        return [
            f"sources/{folder}/{name}"
            for folder in sorted(self.names("sources"))
            for name in self.names(f"sources/{folder}")
            if _SOURCE_ENTRY.fullmatch(name)
        ]

    # state

    def operator_numbers(self) -> list[int]:
        """Numbers of the stateful operators that have state here."""
        return _numbers(self.names("state"))

    def operators(self) -> list[StatefulOperator]:
        """Every stateful operator that has state here, by its number."""
        return [self.operator(number) for number in self.operator_numbers()]

    def operator(self, number: int) -> StatefulOperator:
        """What one stateful operator is; :class:`DamageError` when that cannot be read."""
        folder = f"state/{number}/_metadata"
        # one file for each start with a new schema; the newest tells
        versions = self.batches(f"{folder}/v2")
        file = f"{folder}/v2/{versions[-1]}" if versions else f"{folder}/metadata"
        text = self.read_text(file)
        try:
            fields = json.loads((text or "").partition("\n")[2])
            stores = fields["stateStoreInfo"]
            if len(stores) > limits.MOST_STORE_NAMES:
                raise ValueError(f"it names {len(stores)} stores")
            for store in stores:
                check_name(str(store["storeName"]), "the store's name")
            return StatefulOperator(
                number,
                str(fields["operatorInfo"]["operatorName"]),
                [str(store["storeName"]) for store in stores],
                int(stores[0]["numPartitions"]),
            )
        except (LookupError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise DamageError(
                f"what Spark says about stateful operator {number} cannot be read: {error!r}",
                where=f"{self.uri}/{file}",
            ) from None

    def store_folders(self) -> Iterator[StoreFolder]:
        """Every state store that is there, whatever number of partitions Spark has noted."""
        for operator in self.operators():
            there = _numbers(self.names(f"state/{operator.number}"))
            for folder in operator.folders(there):
                if self.has_folder(folder.path):
                    yield folder

    def descriptions(self) -> list[str]:
        """Relative paths of the files that describe the operators: metadata and schemas."""
        found: list[str] = []
        for operator in self.operators():
            folder = f"state/{operator.number}"
            found += self.files_below(f"{folder}/_metadata")
            found += self.files_below(f"{folder}/_stateSchema")
            for store in operator.stores:
                below = "" if store == DEFAULT_STORE else f"/{store}"
                found += self.files_below(f"{folder}/0{below}/_metadata")
        return found

    def names_in(self, folder: str) -> set[str]:
        """What a store's folder holds, SST files with their folder's name before them."""
        return {
            below + name
            for below in ("", f"{SST_FOLDER}/", "logs/")
            for name in self.names(f"{folder}/{below}".rstrip("/"))
        }


def _numbers(names: Iterable[str]) -> list[int]:
    return sorted(int(name) for name in names if _NUMBER.fullmatch(name))


def rooted_at(text: str, root: str) -> str:
    """The text of an operator's metadata with its schema paths below ``root``."""
    # by its quotes, and not by one expression: that takes the square of the time in a hostile file
    parts = text.split('"')
    for at in range(1, len(parts) - 1):
        if found := _STATE_PATH.search(parts[at]):
            parts[at] = root + parts[at][found.start() :]
    return '"'.join(parts)


def schema_paths(text: str) -> Iterator[tuple[str, str]]:
    """(directory, path below it) of each schema file that an operator's metadata names."""
    for part in text.split('"')[1:-1]:
        if found := _STATE_PATH.search(part):
            yield part[: found.start()], part[found.start() :]
