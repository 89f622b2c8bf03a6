"""The files that one epoch adds to what is stored: taken from the working copy by their names.

Tests: ``tests/capture/test_capture_and_restore.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from seamark.capture.file_index import FileIndex, StoredFile
from seamark.capture.movers import LARGE, Contents, Mover, TakenFile
from seamark.capture.state_moves import Move
from seamark.checkpoint_dir.operators import StatefulOperator, StoreFolder
from seamark.checkpoint_dir.schema_paths import ROOT_MARK, with_root
from seamark.checkpoint_dir.state_files import (
    MissingVersion,
    closure,
    is_state,
    newest_snapshot,
    parse_state_file,
    store_folder,
)
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.store.index_parts import LOG

FILE_LIST: Final = "seamark/files.json"
"""In the log's pack of a snapshot: which version of each file it took. Belongs to no directory."""

_TRIES: Final = 3
_EXTENSIONS: Final = ("delta", "changelog", "zip", "snapshot")


@dataclass(frozen=True, kw_only=True)
class Captured:
    """What is new in an epoch; the paths are relative to the working copy."""

    files: Mapping[str, Contents]
    """Small files, by operator: they are stored with the checkpoint."""
    stored: Mapping[str, StoredFile] = field(default_factory=dict)
    """Files that are in shared objects already."""
    removed: frozenset[str] = frozenset()
    """Files of the parent that are not needed any more."""
    is_full: bool
    versions: list[int] = field(default_factory=list)
    """State version of each partition."""

    @property
    def size(self) -> int:
        """Bytes, before compression."""
        small = sum(len(data) for contents in self.files.values() for data in contents.values())
        return small + sum(file.size for file in self.stored.values())


@dataclass
class Held:
    """What the chain of checkpoints holds already."""

    index: FileIndex
    small: Contents
    """State that its checkpoints hold themselves: a full one has to store it again."""
    is_known: bool
    """Whether the index is that of a checkpoint. Otherwise nothing is known to be stored."""
    is_described: bool = False
    """Whether this run has stored what describes the operators."""
    usual: str = ""
    """What the files of the last batch ended with."""

    @cached_property
    def by_store(self) -> dict[str, set[str]]:
        """The state files of the index, by the folder of their store."""
        by_store: dict[str, set[str]] = {}
        for path in self.index.files:
            if is_state(path):
                by_store.setdefault(store_folder(path), set()).add(path)
        return by_store


class EpochFiles:
    """The files of one epoch, while they are taken."""

    def __init__(
        self, copy: WorkingCopy, mover: Mover, held: Held, version: int, *, full: bool
    ) -> None:
        self._copy = copy
        self._mover = mover
        self._held = held
        self._index = held.index
        self._version = version
        self._full = full
        self._files: dict[str, Contents] = {}
        self._stored: dict[str, StoredFile] = {}
        self._removed: set[str] = set()
        self._rebased: set[str] = set()
        """Stores whose batch has written a snapshot."""

    def captured(self, operators: Sequence[StatefulOperator]) -> Captured:
        """What was taken."""
        if self._full:
            labels = {str(operator.number): operator.label for operator in operators}
            for path, data in self._held.small.items():
                if path not in self._removed and path not in self._stored:
                    number = path.split("/")[1]
                    self._files.setdefault(labels.get(number, number), {}).setdefault(path, data)
        most = max((operator.partitions for operator in operators), default=0)
        return Captured(
            files=self._files,
            stored=self._stored,
            removed=frozenset(self._removed),
            is_full=self._full,
            versions=[self._version] * most,
        )

    def _add(self, label: str, taken: Iterable[TakenFile]) -> None:
        contents = self._files.setdefault(label, {})
        for file in taken:
            if file.stored is None:
                contents[file.path] = file.data
            else:
                self._stored[file.path] = file.stored

    # state

    def operator(
        self,
        operator: StatefulOperator,
        folders: list[StoreFolder],
        ids: Sequence[Sequence[str]] | None,
    ) -> None:
        """Take what the batch has written into the stores of one operator."""

        def uid_of(folder: StoreFolder) -> str | None:
            if ids is None:
                return None
            return ids[folder.partition][operator.stores.index(folder.store)]

        self._files.setdefault(operator.label, {})
        if self._held.is_known:
            self._new_files(operator.label, folders, uid_of)
        else:
            self._all_files(operator.label, folders, uid_of)

    def _new_files(
        self,
        label: str,
        folders: list[StoreFolder],
        uid_of: Callable[[StoreFolder], str | None],
    ) -> None:
        """What the batch has written: its names are known, nothing is listed."""
        snapshots = self._with_snapshots(folders)
        stems = {f: self._stem(f, uid_of(f)) for f in folders}
        groups = [
            [f"{stem}.zip"] if f.path in snapshots else self._candidates(stem)
            for f, stem in stems.items()
        ]
        taken = {file.path.rpartition(".")[0]: file for file in self._mover.take(groups)}
        further: list[str] = []
        for folder, stem in stems.items():
            file = taken.get(stem)
            if file is None:
                raise self._missing(folder, f"version {self._version} is not there")
            needed = [f"{folder.path}/{name}" for name in file.needs]
            further += [path for path in needed if path not in self._index.files]
            if uid_of(folder) is not None:
                further.append(f"{file.path}.crc")
            if file.path.endswith(".zip"):
                self._rebased.add(folder.path)
                needed += [file.path, f"{file.path}.crc"]
                self._removed |= self._held.by_store.get(folder.path, set()).difference(needed)
        if taken:
            self._held.usual = next(iter(taken.values())).path.rpartition(".")[2]
        self._add(label, taken.values())
        self._add(label, self._take_further(further))

    def _with_snapshots(self, folders: list[StoreFolder]) -> set[str]:
        """Stores where the first batch of a run wrote a snapshot next to its changes.

        It does so when a schema has changed, and relies on the snapshot.
        """
        if self._held.is_described:
            return set()
        snapshots = set()
        for folder in folders:
            files = map(parse_state_file, self._copy.names_in(folder.path))
            kinds = {file.extension for file in files if file and file.version == self._version}
            if {"changelog", "zip"} <= kinds:
                snapshots.add(folder.path)
        return snapshots

    def _stem(self, folder: StoreFolder, uid: str | None) -> str:
        return f"{folder.path}/{self._version}" + ("" if uid is None else f"_{uid}")

    def _candidates(self, stem: str) -> list[str]:
        usual = self._held.usual
        return [f"{stem}.{extension}" for extension in ((usual,) if usual else ()) + _EXTENSIONS]

    def _take_further(self, paths: list[str]) -> list[TakenFile]:
        taken = self._mover.take([(path,) for path in paths]) if paths else []
        # a checksum file only exists if Spark was configured to write it
        lost = {path for path in paths if not path.endswith(".crc")} - {f.path for f in taken}
        if lost:
            raise MissingVersion(f"{min(lost)} is not there", where=self._copy.root)
        return taken

    def _all_files(
        self,
        label: str,
        folders: list[StoreFolder],
        uid_of: Callable[[StoreFolder], str | None],
    ) -> None:
        """All that the version takes, because nothing of it is known to be stored."""
        paths: list[str] = []
        for folder in folders:
            uid = uid_of(folder)
            paths += self._closure(folder, None if uid is None else {self._version: uid})
        self._add(label, self._take_further(paths))

    def _closure(self, folder: StoreFolder, ids: Mapping[int, str] | None) -> list[str]:
        for left in reversed(range(_TRIES)):
            names = self._copy.names_in(folder.path)
            try:
                needed = closure(names, self._version, self._copy.reader(folder.path), ids)
                return [f"{folder.path}/{name}" for name in needed]
            except (FileNotFoundError, MissingVersion) as error:
                # the maintenance thread may have removed a file between listing and reading
                if not left:
                    raise self._missing(folder, str(error)) from None
        raise AssertionError("not reached")

    def _missing(self, folder: StoreFolder, why: str) -> MissingVersion:
        return MissingVersion(
            f"state of operator {folder.operator}, partition {folder.partition}"
            f" ({folder.store}): {why}",
            where=self._copy.path(folder.path),
            hint="Every sink must read all rows of its output (no limit(), show() or first()).",
        )

    def follow(self, moves: Sequence[Move]) -> None:
        """Refer to what was stored in the background since the last epoch."""
        for move in moves:
            held = self._held.by_store.get(move.folder, set())
            is_whole = all(path in held or path in move.stored for path in move.keep)
            # of a later snapshot it is not known which files it shares with this one
            is_late = move.folder in self._rebased or newest_snapshot(held) > move.version
            if move.folder and is_whole and not is_late:
                self._removed |= {path for path in held if move.replaces(path)}
                self._stored |= move.stored
        for move in moves:
            if not move.folder:
                self._stored |= {
                    path: file
                    for path, file in move.stored.items()
                    if path in self._index.files and path not in self._removed
                }

    # logs

    def logs(self, batch: int, commit: str) -> None:
        """Take Spark's logs, and once in a run what describes the operators."""
        copy, held = self._copy, self._index.files
        paths = ["metadata", f"offsets/{batch}"]
        if batch > 0:
            paths += [f"offsets/{batch - 1}", f"commits/{batch - 1}"]
        sources = _since_compaction(copy.source_entries())
        self._removed |= {p for p in held if p.startswith("sources/")}.difference(sources)
        paths += [
            path
            for path in sources
            if path not in held or (self._full and held[path].shared is None)
        ]
        if self._full or not self._held.is_described:
            paths += copy.descriptions()
        contents = self._files.setdefault(LOG, {})
        for path in dict.fromkeys(paths):
            if path.startswith("sources/") and (copy.size(path) or 0) >= LARGE:
                self._add(LOG, self._take_further([path]))
            else:
                contents[path] = with_root(path, copy.read(path), ROOT_MARK)
        contents[f"commits/{batch}"] = commit.encode()


def _since_compaction(entries: Iterable[str]) -> list[str]:
    """Of each source's log: the two newest compactions and what came after them.

    One of them would do to read the log. But a restart learns the interval from two, and with one
    it may work out another and look for a compaction that was never made.
    """
    folders: dict[str, list[tuple[int, bool, str]]] = {}
    for path in entries:
        folder, name = path.rsplit("/", 1)
        number, _, compact = name.partition(".")
        folders.setdefault(folder, []).append((int(number), bool(compact), path))
    kept = []
    for numbered in folders.values():
        compacted = sorted(number for number, compact, _ in numbered if compact)
        newest = compacted[-1] if compacted else 0
        kept += [
            path
            for number, compact, path in sorted(numbered)
            if number >= newest or (compact and number in compacted[-2:])
        ]
    return kept
