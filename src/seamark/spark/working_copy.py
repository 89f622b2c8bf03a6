"""The directory that Spark is given as ``checkpointLocation``. Disposable: the store is the truth.

Nothing here is fsynced. Whatever a power cut leaves is compared with the store before it is used.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from seamark.errors import DamageError
from seamark.spark.state_files import version_of

ROOT_MARK: Final = "{seamark:root}"
"""Stands for the directory's own URI in files that hold absolute paths."""

_BATCH: Final = re.compile(r"\d+")
_SOURCE_ENTRY: Final = re.compile(r"\d+(\.compact)?")


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

    def folders(self) -> Iterator[StoreFolder]:
        """Every store of every partition."""
        for partition in range(self.partitions):
            for store in self.stores:
                below = "" if store == "default" else f"/{store}"
                path = f"state/{self.number}/{partition}{below}"
                yield StoreFolder(self.number, partition, store, path)


class WorkingCopy:
    """Spark's checkpoint directory, as files."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.abspath(root)

    @property
    def uri(self) -> str:
        """The directory as Spark writes it into its own files."""
        return f"file:{self.root}"  # Hadoop does not escape

    def path(self, relative: str) -> str:
        """The full path of a file inside."""
        return f"{self.root}/{relative}"

    def exists(self) -> bool:
        """Whether there is anything."""
        return os.path.isdir(self.root)

    # files

    def read(self, relative: str) -> bytes:
        """The bytes of a file; FileNotFoundError when there is none."""
        fd = os.open(f"{self.root}/{relative}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = [os.read(fd, 1 << 20)]
            while len(parts[-1]) == 1 << 20:
                parts.append(os.read(fd, 1 << 20))
        finally:
            os.close(fd)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_text(self, relative: str) -> str | None:
        """The text of a file, or None when there is none or it is no text."""
        try:
            return self.read(relative).decode()
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
            return None

    def write(self, relative: str, data: bytes) -> None:
        """Put a file in place of whatever is there."""
        path = self.path(relative)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        folder, name = os.path.split(path)
        temporary = f"{folder}/.{name}.seamark.tmp"
        with open(temporary, "wb") as file:
            file.write(data)
        # Hadoop's checksum of the old bytes would make the new ones unreadable
        with suppress(FileNotFoundError):
            os.unlink(f"{folder}/.{name}.crc")
        os.replace(temporary, path)

    def remove(self, relative: str) -> None:
        """Remove a file and Hadoop's checksum of it; harmless when there is none."""
        folder, name = os.path.split(self.path(relative))
        for victim in (f"{folder}/{name}", f"{folder}/.{name}.crc"):
            with suppress(FileNotFoundError):
                os.unlink(victim)

    def files_below(self, relative: str) -> Iterator[str]:
        """Relative paths of all files, without hidden ones (temporary, Hadoop's checksums)."""
        for folder, _, names in os.walk(self.path(relative)):
            below = os.path.relpath(folder, self.root)
            for name in names:
                if not name.startswith("."):
                    yield f"{below}/{name}" if below != "." else name

    # Spark's logs

    def batches(self, log: str) -> list[int]:
        """Ids in ``offsets`` or ``commits``, ascending."""
        try:
            names = os.listdir(self.path(log))
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if _BATCH.fullmatch(name))

    def source_entries(self) -> list[str]:
        """Relative paths of what the sources wrote into logs of their own."""
        found = []
        try:
            folders = os.listdir(self.path("sources"))
        except FileNotFoundError:
            return []
        for folder in sorted(folders):
            with suppress(NotADirectoryError):
                for name in os.listdir(self.path(f"sources/{folder}")):
                    if _SOURCE_ENTRY.fullmatch(name):
                        found.append(f"sources/{folder}/{name}")
        return found

    # state

    def operators(self) -> list[StatefulOperator]:
        """Every stateful operator that has state here, by its number."""
        try:
            names = os.listdir(self.path("state"))
        except FileNotFoundError:
            return []
        return [self._operator(int(name)) for name in sorted(names, key=len) if name.isdigit()]

    def _operator(self, number: int) -> StatefulOperator:
        folder = f"state/{number}/_metadata"
        # one file for each start with a new schema; the newest tells
        versions = self.batches(f"{folder}/v2")
        file = f"{folder}/v2/{versions[-1]}" if versions else f"{folder}/metadata"
        text = self.read_text(file)
        try:
            fields = json.loads((text or "").partition("\n")[2])
            stores = fields["stateStoreInfo"]
            return StatefulOperator(
                number,
                str(fields["operatorInfo"]["operatorName"]),
                [str(store["storeName"]) for store in stores],
                int(stores[0]["numPartitions"]),
            )
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise DamageError(
                f"what Spark says about stateful operator {number} cannot be read: {error!r}",
                where=self.path(file),
            ) from None

    def store_folders(self) -> Iterator[StoreFolder]:
        """Every state store that is there. Spark notes more partitions than some operators have."""
        for operator in self.operators():
            for folder in operator.folders():
                if os.path.isdir(self.path(folder.path)):
                    yield folder

    def descriptions(self) -> list[str]:
        """Relative paths of the files that describe the operators: metadata and schemas."""
        found: list[str] = []
        for operator in self.operators():
            folder = f"state/{operator.number}"
            found += self.files_below(f"{folder}/_metadata")
            found += self.files_below(f"{folder}/_stateSchema")
            for store in operator.stores:
                below = "" if store == "default" else f"/{store}"
                found += self.files_below(f"{folder}/0{below}/_metadata")
        return found

    def names_in(self, folder: str) -> set[str]:
        """What a store's folder holds, SST files with their folder's name before them."""
        found: set[str] = set()
        for below in ("", "SSTs/", "logs/"):
            with suppress(FileNotFoundError):
                found |= {below + name for name in os.listdir(self.path(f"{folder}/{below}"))}
        return found

    # bringing it to an epoch

    def forget_after(self, batch: int) -> None:
        """Remove every trace of later batches: commits, plans after the next one, newer state.

        Spark would prefer a newer snapshot of an abandoned history, and its fast file manager
        keeps an existing file instead of replacing it. Both give wrong results without an error.
        """
        for commit in self.batches("commits"):
            if commit > batch:
                self.remove(f"commits/{commit}")
        for offset in self.batches("offsets"):
            if offset > batch + 1:
                self.remove(f"offsets/{offset}")
        self.forget_versions_above(batch + 1)

    def forget_versions_above(self, version: int) -> None:
        """Remove state that is newer than a version, whatever wrote it."""
        for folder, _, names in os.walk(self.path("state")):
            for name in names:
                found = version_of(name)
                if found is not None and found > version:
                    with suppress(FileNotFoundError):
                        os.unlink(f"{folder}/{name}")

    def remove_hadoop_checksums(self) -> None:
        """Remove the hidden checksum files that Hadoop puts beside every file on a local disk."""
        for folder, _, names in os.walk(self.root):
            for name in names:
                if name.startswith(".") and name.endswith(".crc"):
                    with suppress(FileNotFoundError):
                        os.unlink(f"{folder}/{name}")

    def rewrite_root(self) -> None:
        """Make absolute paths inside Spark's files lead here, after a move or a restore."""
        for relative in self.descriptions():
            if "/_metadata/v2/" not in relative:
                continue
            text = self.read_text(relative)
            if text is not None and (moved := rooted_at(text, self.uri)) != text:
                self.write(relative, moved.encode())

    def destroy(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.root, ignore_errors=True)


_STATE_PATH: Final = re.compile(r'"[^"]*?(/state/\d+/_stateSchema/[^"]*)"')


def rooted_at(text: str, root: str) -> str:
    """The text of an operator's metadata with its schema paths below ``root``."""
    return _STATE_PATH.sub(lambda found: f'"{root}{found[1]}"', text)
