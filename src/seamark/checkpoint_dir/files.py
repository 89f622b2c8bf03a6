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

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from seamark import limits
from seamark._common.files import Buffer
from seamark.checkpoint_dir.operators import (
    DEFAULT_STORE,
    MOST_PARTITIONS,
    StatefulOperator,
    StoreFolder,
    description_path,
    name_of,
    parse_description,
    store_path,
    stores_among,
)
from seamark.checkpoint_dir.state_files import SST_FOLDER, ReadFile
from seamark.errors import DamageError

_NUMBER: Final = re.compile(r"[0-9]+")  # \d and isdigit() also take digits of other scripts
_SOURCE_ENTRY: Final = re.compile(r"[0-9]+(\.compact)?")


def largest_read(relative: str) -> int:
    """How large a file of a checkpoint directory may be, to be read as a whole."""
    folder, _, _ = relative.rpartition("/")
    is_document = relative == "metadata" or folder in ("offsets", "commits")
    return limits.LARGEST_DOCUMENT if is_document or "/_" in folder else limits.LARGEST_FILE


def newest_source_entry(names: Iterable[str]) -> str | None:
    """The last entry of one source's log, by the names in its folder; None when it has none."""
    entries = filter(_SOURCE_ENTRY.fullmatch, names)
    return max(entries, key=lambda name: int(name.partition(".")[0]), default=None)


class CheckpointFiles(ABC):
    """The files of one checkpoint directory; paths are relative to it."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The directory as Spark writes it into its own files."""

    @abstractmethod
    def read(self, relative: str) -> bytes:
        """The bytes of a file; FileNotFoundError when there is none."""

    def stream(self, relative: str) -> Iterator[Buffer]:
        """The bytes of a file in pieces; FileNotFoundError when there is none.

        A piece is valid until the next one is asked for.
        """
        yield self.read(relative)

    @abstractmethod
    def names(self, folder: str) -> Collection[str]:
        """What lies directly in a folder, folders too; nothing when there is no such folder."""

    @abstractmethod
    def has_folder(self, relative: str) -> bool:
        """Whether there is such a folder, even an empty one."""

    def size(self, relative: str) -> int | None:
        """The bytes of a file, where that is known without reading it; None elsewhere."""
        return None

    @abstractmethod
    def files_below(self, relative: str) -> Iterator[str]:
        """Relative paths of all files, without hidden ones (temporary, Hadoop's checksums)."""

    def read_text(self, relative: str) -> str | None:
        """The text of a file, or None when there is none or it is not text."""
        try:
            return self.read(relative).decode()
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
            return None

    # Spark's logs

    def numbers(self, folder: str) -> list[int]:
        """The names in a folder that are numbers, ascending."""
        return sorted(int(name) for name in self.names(folder) if _NUMBER.fullmatch(name))

    def batches(self, log: str) -> list[int]:
        """Ids in ``offsets`` or ``commits``, ascending."""
        return self.numbers(log)

    def source_entries(self) -> list[str]:
        """Relative paths of what the sources wrote into logs of their own."""
        return [
            f"sources/{folder}/{name}"
            for folder in sorted(self.names("sources"))
            for name in self.source_entry_names(folder)
        ]

    def source_entry_names(self, folder: str) -> list[str]:
        """The entries of one source's log, by their names in its folder below ``sources``."""
        return [name for name in self.names(f"sources/{folder}") if _SOURCE_ENTRY.fullmatch(name)]

    # state

    def operator_numbers(self) -> list[int]:
        """Numbers of the stateful operators that have state here.

        :class:`DamageError` when there are more than any query has.
        """
        numbers = [number for number in self.numbers("state") if self._is_operator(number)]
        if len(numbers) > limits.MOST_OPERATORS:
            raise DamageError(
                f"state/ has {len(numbers)} stateful operators, and {limits.MOST_OPERATORS} is the "
                "most"
            )
        return numbers

    def _is_operator(self, number: int) -> bool:
        """Whether what has that number in ``state`` is one; a file is not."""
        return True

    def partition_numbers(self, operator: int) -> list[int]:
        """The partitions of an operator that have a folder, ascending."""
        return [n for n in self.numbers(f"state/{operator}") if n < MOST_PARTITIONS]

    def operators(self) -> list[StatefulOperator]:
        """Every stateful operator that has state here, by its number."""
        return [self.operator(number) for number in self.operator_numbers()]

    def operator(self, number: int) -> StatefulOperator:
        """One stateful operator, by Spark's description of it or else by its folders.

        :class:`DamageError` when a description cannot be read, or is missing and Spark itself
        needs it to start the query.
        """
        described = self.described_operator(number)
        if described is not None:
            return described
        if self.has_folder(f"state/{number}/_stateSchema"):
            raise DamageError(
                f"Spark's description of stateful operator {number} is not there",
                where=f"{self.uri}/state/{number}/_metadata/v2",
                hint="Put it back from a copy of the directory: the query cannot start without it.",
            )
        return self.operator_by_folders(number)

    def description_path(self, number: int) -> str:
        """Where Spark describes an operator. One file for each start with a new schema."""
        return description_path(number, self.batches(f"state/{number}/_metadata/v2"))

    def described_operator(self, number: int) -> StatefulOperator | None:
        """What Spark wrote about an operator; None when there is no such file.

        :class:`DamageError` when it cannot be read.
        """
        path = self.description_path(number)
        try:
            data = self.read(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return parse_description(number, data)
        except DamageError as error:
            raise DamageError(error.what, where=f"{self.uri}/{path}") from None

    def operator_by_folders(self, number: int) -> StatefulOperator:
        """An operator as its folders show it; it has as many partitions as the last one tells."""
        here = f"state/{number}"
        there = self.partition_numbers(number)
        stores = stores_among(
            name
            for partition in there
            for name in self.names(f"{here}/{partition}")
            if self.has_folder(f"{here}/{partition}/{name}")
        )
        name = name_of(stores, self.schema_beside(number, stores[0]))
        return StatefulOperator(number, name, stores, max(there, default=0) + 1)

    def schema_beside(self, number: int, store: str = DEFAULT_STORE) -> bytes | None:
        """The schema that Spark (3.1 or newer) keeps in an operator's first partition."""
        try:
            return self.read(f"{store_path(number, 0, store)}/_metadata/schema")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def store_folders(self) -> Iterator[StoreFolder]:
        """Every state store that is there, whatever number of partitions Spark has noted."""
        for operator in self.operators():
            for folder in operator.folders(self.numbers(f"state/{operator.number}")):
                if self.has_folder(folder.path):
                    yield folder

    def descriptions(self) -> list[str]:
        """Relative paths of the files that describe the operators: metadata and schemas."""
        paths: list[str] = []
        for operator in self.operators():
            folder = f"state/{operator.number}"
            paths += self.files_below(f"{folder}/_metadata")
            paths += self.files_below(f"{folder}/_stateSchema")
            for store in operator.stores:
                paths += self.files_below(f"{store_path(operator.number, 0, store)}/_metadata")
        return paths

    def reader(self, folder: str) -> ReadFile:
        """Reads the files of a store's folder by their names."""
        return lambda name: self.read(f"{folder}/{name}")

    def names_in(self, folder: str) -> set[str]:
        """What a store's folder holds, SST files with their folder's name before them."""
        return {
            below + name
            for below in ("", f"{SST_FOLDER}/", "logs/")
            for name in self.names(f"{folder}/{below}".rstrip("/"))
        }
