"""Taking from a working copy what an epoch added to it.

To be called inside the batch, after its last action: then version N+1 of every store is complete
on disk, and only ``commits/N`` is missing, which is made here exactly as Spark will make it.

Tests: ``tests/capture/test_capture_and_restore.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from seamark.capture.readers import Contents, DriverReader, Reader, read_all
from seamark.checkpoint_dir.files import ROOT_MARK, with_root
from seamark.checkpoint_dir.operators import StatefulOperator, StoreFolder
from seamark.checkpoint_dir.places.local import WorkingCopy
from seamark.checkpoint_dir.state_files import (
    MissingVersion,
    closure,
    needed_ssts,
    parse_state_file,
)
from seamark.errors import DamageError
from seamark.spark.batch_log import StateIds

LOG: Final = "log"
"""The label of what belongs to no operator: Spark's logs and the operators' descriptions."""

FILE_LIST: Final = "seamark/files.json"
"""In the log's pack of a snapshot: which version of each file it took. Belongs to no directory."""

_TRIES: Final = 3
_EXTENSIONS: Final = ("delta", "changelog", "zip", "snapshot")


Partitions = Callable[[], Mapping[int, int]]


@dataclass(frozen=True)
class Captured:
    """What is new in an epoch, by operator; the paths are relative to the working copy."""

    files: Mapping[str, Contents]
    is_full: bool
    versions: list[int] = field(default_factory=list)
    """State version of each partition."""

    @property
    def size(self) -> int:
        """Bytes, before compression."""
        return sum(len(data) for contents in self.files.values() for data in contents.values())


class Capture:
    """Remembers what the chain of checkpoints holds already, so that only new files are taken."""

    def __init__(
        self,
        copy: WorkingCopy,
        held: Mapping[str, bytes] | None = None,
        reader: Reader | None = None,
    ) -> None:
        self.copy = copy
        self._held: dict[str, bytes] = dict(held or {})
        self._packed: Mapping[str, bytes] = {}
        self._reader = reader or DriverReader(copy)
        self._operators: list[StatefulOperator] | None = None
        self._folders: list[tuple[str, StoreFolder]] = []
        self._usual = ""
        self._described = False

    def take(
        self,
        batch: int,
        commit: str,
        *,
        full: bool,
        state_ids: StateIds | None = None,
        partitions: Partitions = dict,
    ) -> Captured:
        """The files of the epoch: all that a restore needs, or what the chain does not hold yet.

        ``partitions`` tells how many partitions operators have, where Spark notes more of them.
        :class:`MissingVersion` when a store lacks its version: the batch was not read in full.
        """
        operators = self._known_operators(partitions)
        # a changed schema makes Spark upload a snapshot with the change, and rely on it
        full = full or (not self._described and self._has_snapshots(batch + 1))
        files = {LOG: self._logs(batch, commit, full=full)}
        for operator in operators:
            folders = [folder for label, folder in self._folders if label == operator.label]
            ids = state_ids.get(operator.number) if state_ids is not None else None
            files[operator.label] = self._state_of(operator, folders, batch + 1, ids, full=full)
        most = max((operator.partitions for operator in operators), default=0)
        return Captured(files, full, [batch + 1] * most)

    def _has_snapshots(self, version: int) -> bool:
        """Whether the first batch of a run wrote changes and snapshots of the same version."""
        for _, folder in self._folders:
            files = map(parse_state_file, self.copy.names_in(folder.path))
            kinds = {file.extension for file in files if file and file.version == version}
            if {"changelog", "zip"} <= kinds:
                return True
        return False

    def packed(self, digests: Mapping[str, bytes]) -> None:
        """What the captured files hash to. :class:`DamageError` when one changed since before."""
        for path, digest in digests.items():
            if _is_state(path) and self._held.get(path, digest) != digest:
                raise DamageError(
                    f"{path} has changed since an earlier checkpoint took it",
                    where=self.copy.root,
                    hint="State files never change. Start again: the working copy is rebuilt.",
                )
        self._packed = digests

    def saved(self, captured: Captured) -> None:
        """The checkpoint is decided: what was captured need not be taken again."""
        self._held = {**({} if captured.is_full else self._held), **self._packed}

    def differences(self, captured: Captured) -> str:
        """Which state files of a repeated epoch differ from the chain's, in words; empty for none.

        Names with ids of their own (SST files, checkpoint format 2) differ with every run.
        """
        changed = [
            path
            for contents in captured.files.values()
            for path, data in contents.items()
            if path.endswith((".delta", ".changelog"))
            and self._held.get(path, digest := hashlib.sha256(data).digest()) != digest
        ]
        return ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if changed[3:] else "")

    def _known_operators(self, partitions: Partitions) -> list[StatefulOperator]:
        # a running query never changes its operators
        if self._operators is None:
            really = partitions()
            self._operators = [
                op._replace(partitions=min(op.partitions, really.get(op.number) or op.partitions))
                for op in self.copy.operators()
            ]
            self._folders = [(op.label, f) for op in self._operators for f in op.folders()]
        return self._operators

    # logs

    def _logs(self, batch: int, commit: str, *, full: bool) -> Contents:
        copy = self.copy
        paths = ["metadata", f"offsets/{batch}"]
        if batch > 0:
            paths += [f"offsets/{batch - 1}", f"commits/{batch - 1}"]
        sources = _since_compaction(copy.source_entries())
        paths += [path for path in sources if full or path not in self._held]
        if full or not self._described:
            paths += copy.descriptions()
            self._described = True
        contents = {p: with_root(p, copy.read(p), ROOT_MARK) for p in dict.fromkeys(paths)}
        contents[f"commits/{batch}"] = commit.encode()
        return contents

    # state

    def _state_of(
        self,
        operator: StatefulOperator,
        folders: list[StoreFolder],
        version: int,
        ids: Sequence[Sequence[str]] | None,
        *,
        full: bool,
    ) -> Contents:
        def uid_of(folder: StoreFolder) -> str | None:
            if ids is None:
                return None
            return ids[folder.partition][operator.stores.index(folder.store)]

        if full:
            return self._whole_state(folders, version, uid_of)
        stems = {
            folder: f"{folder.path}/{version}" + (f"_{uid_of(folder)}" if ids is not None else "")
            for folder in folders
        }
        # names are known, so nothing is listed
        kinds = (self._usual, *_EXTENSIONS) if self._usual else _EXTENSIONS
        contents = self._reader.read_first(
            [[f"{s}.{kind}" for kind in kinds] for s in stems.values()]
        )
        by_stem = {path.rpartition(".")[0]: path for path in contents}
        further: list[tuple[str, ...]] = []
        for folder, stem in stems.items():
            path = by_stem.get(stem)
            if path is None:
                raise self._missing(folder, f"version {version} is not there")
            if path.endswith(".zip"):
                below = (f"{folder.path}/{sst}" for sst in needed_ssts(contents[path]))
                further += [(sst,) for sst in below if sst not in self._held]
            if ids is not None:
                further.append((f"{path}.crc",))
        self._usual = next(iter(contents)).rpartition(".")[2] if contents else self._usual
        return contents | self._read_further(further)

    def _read_further(self, groups: list[tuple[str, ...]]) -> Contents:
        contents = self._reader.read_first(groups) if groups else {}
        for (path,) in groups:
            # a checksum file only exists if Spark was configured to write it
            if path not in contents and not path.endswith(".crc"):
                raise MissingVersion(f"{path} is not there", where=self.copy.root)
        return contents

    def _whole_state(
        self,
        folders: list[StoreFolder],
        version: int,
        uid_of: Callable[[StoreFolder], str | None],
    ) -> Contents:
        held = _ids_by_folder(self._held)
        paths: list[str] = []
        for folder in folders:
            uid = uid_of(folder)
            ids = None if uid is None else {**held.get(folder.path, {}), version: uid}
            paths += self._closure(folder, version, ids)
        return read_all(self._reader, paths)

    def _closure(
        self, folder: StoreFolder, version: int, ids: Mapping[int, str] | None
    ) -> list[str]:
        for left in reversed(range(_TRIES)):
            names = self.copy.names_in(folder.path)
            try:
                needed = closure(names, version, self.copy.reader(folder.path), ids)
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
            where=self.copy.path(folder.path),
            hint="Every sink must read all rows of its output (no limit(), show() or first()).",
        )


def _since_compaction(entries: Iterable[str]) -> list[str]:
    """Of each source's log: the newest compaction and what came after it."""
    folders: dict[str, list[tuple[int, bool, str]]] = {}
    for path in entries:
        folder, name = path.rsplit("/", 1)
        number, _, compact = name.partition(".")
        folders.setdefault(folder, []).append((int(number), bool(compact), path))
    kept = []
    for numbered in folders.values():
        start = max((number for number, compact, _ in numbered if compact), default=0)
        kept += [path for number, _, path in sorted(numbered) if number >= start]
    return kept


def _ids_by_folder(paths: Iterable[str]) -> dict[str, dict[int, str]]:
    """Checkpoint format 2: which id each version had, by store folder."""
    ids: dict[str, dict[int, str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        file = parse_state_file(name)
        if file is not None and file.uid is not None:
            ids.setdefault(folder, {})[file.version] = file.uid
    return ids


def _is_state(path: str) -> bool:
    """Whether a path is a state file, and not a description of an operator."""
    return path.startswith("state/") and "/_" not in path
