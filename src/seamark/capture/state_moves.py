"""State that changes its place in the store between two epochs, without an epoch waiting for it.

Spark's maintenance writes a snapshot of a store now and then. Its files are stored in the
background; from the next checkpoint on the state is that snapshot and the changes after it. So a
chain of changes is as long as Spark's own. Files of packs that are mostly dead, or of very many
packs, move into a new pack in the same way, and so do files whose object turns out to be damaged.

Tests: ``tests/capture/test_state_moves.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from seamark._common.logs import logger_named
from seamark.capture.background_budget import Budget, Stopped
from seamark.capture.file_index import FileIndex, StoredFile, objects_of
from seamark.capture.movers import LARGE, PACK_BYTES, Contents, Mover, store_alone
from seamark.capture.object_moves import ObjectMoves
from seamark.capture.pack_rewrites import packs_to_rewrite
from seamark.capture.scrub import Scrub
from seamark.capture.uploads import Uploads, discard
from seamark.checkpoint_dir.state_files import (
    StateFile,
    closure,
    is_state,
    newest_snapshot,
    parse_state_file,
    store_folder,
    version_of,
)
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError, FencedError
from seamark.manifest.facts import SharedObject
from seamark.store.shared_objects import SharedObjects

log = logger_named("seamark.pipeline")

_LOOK_EVERY: Final = 2.0
_LONGEST_PAUSE: Final = 300.0


class Move(NamedTuple):
    """Files that are in another place from the next checkpoint on."""

    folder: str
    """The store whose base moves; empty when only places change."""
    version: int
    """The version of the snapshot."""
    keep: frozenset[str]
    """The files of the snapshot, whether they were stored for it or before."""
    stored: Mapping[str, StoredFile]
    heals: bool = False
    """Whether they were in a damaged object, so that nothing may build on what refers to it."""

    def replaces(self, path: str) -> bool:
        """Whether a file of the store is not needed next to the snapshot."""
        version = version_of(path)
        return path not in self.keep and (version is None or version <= self.version)


class StateMoves:
    """What the epochs have to know of the background. By itself it moves nothing."""

    def watch(self, folders: Iterable[str]) -> None:
        """These are the stores, by their folders."""

    def arrived(self) -> list[Move]:
        """What was stored whole since the last checkpoint; one move for each store.

        A checkpoint that is about to be saved may refer to it, until :meth:`decided` or
        :meth:`undecided` says what became of that. Until then the background leaves core and disk
        to the epoch.
        """
        return []

    def decided(self, index: FileIndex, version: int) -> None:
        """A checkpoint of that state version was saved, and refers to these files."""

    def undecided(self) -> None:
        """The checkpoint that was to refer to what has arrived was certainly not saved."""

    def finish(self, patience: float) -> None:
        """Store what Spark has made by now, for at most so many seconds. The run has ended."""

    def close(self) -> None:
        """Stop, and remove what was stored in vain."""

    def abandon(self) -> None:
        """Stop as a process does that is killed: nothing is finished, and nothing removed."""


class BackgroundMoves(StateMoves):
    """Moves state in a thread of its own, at a limited rate.

    ``on_failure`` is called when something went wrong that is tried again; it must not raise.
    """

    def __init__(
        self,
        copy: WorkingCopy,
        shared: SharedObjects,
        rate: int,
        *,
        mover: Mover | None = None,
        uploads: Uploads | None = None,
        every: float | None = None,
        scrub: Scrub | None = None,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        self._copy = copy
        self._mover = mover
        self._every = every
        self._shared = shared
        self._uploads = uploads or Uploads(shared)
        self._budget = Budget(rate)
        self._scrub = scrub or Scrub(shared, None)
        self._on_failure = on_failure or (lambda: None)
        self._objects = ObjectMoves(copy, shared, self._budget)
        self._folders: list[str] = []
        self._index = FileIndex()
        self._version = 0
        self._arrived: dict[str, Move] = {}
        self._offered: list[Move] = []
        """What a checkpoint may refer to whose outcome is not known yet."""
        self._vain: list[StoredFile] = []
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._is_abandoned = False
        self._thread: threading.Thread | None = None

    # for the epochs

    def watch(self, folders: Iterable[str]) -> None:
        """See :class:`StateMoves`."""
        self._folders = list(folders)

    def arrived(self) -> list[Move]:
        """See :class:`StateMoves`."""
        self._budget.pause()
        with self._lock:
            self._offered = list(self._arrived.values())
            return self._offered

    def decided(self, index: FileIndex, version: int) -> None:
        """See :class:`StateMoves`."""
        with self._lock:
            # what one checkpoint has named only a prune may remove, used by the next one or not;
            # all files are looked at only when something has arrived
            used = {file.shared for file in index.files.values()} if self._offered else set()
            for move in self._offered:
                del self._arrived[move.folder]
                self._vain += (file for file in move.stored.values() if file.shared not in used)
            self._offered = []
            self._index, self._version = index, version
        self._budget.resume()
        if self._thread is None and self._folders and not self._ending.is_set():
            self._thread = threading.Thread(target=self._run, name="seamark-moves", daemon=True)
            self._thread.start()

    def undecided(self) -> None:
        """See :class:`StateMoves`."""
        with self._lock:
            self._offered = []
        self._budget.resume()

    def finish(self, patience: float) -> None:
        """See :class:`StateMoves`."""
        if self._thread is None or patience <= 0:
            return
        self._budget.lift()  # no epoch is slowed down any more
        self._ending.set()
        self._thread.join(patience)

    def close(self) -> None:
        """See :class:`StateMoves`."""
        self._budget.stop()
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            # a checkpoint whose save was never answered may refer to what it was offered
            offered = {move.folder for move in self._offered}
            unused = [move for folder, move in self._arrived.items() if folder not in offered]
            self._vain += (file for move in unused for file in move.stored.values())
            self._arrived, self._offered = {}, []
        self._discard_vain()

    def abandon(self) -> None:
        """See :class:`StateMoves`."""
        self._is_abandoned = True
        self._budget.stop()
        self._ending.set()

    # in the background

    def _run(self) -> None:
        """Look now and then, and a last time when the run ends."""
        pause, is_last = self._every or _LOOK_EVERY, False
        while not is_last:
            is_last = self._ending.wait(pause)
            if self._is_abandoned:
                return
            try:
                self.look(only_snapshots=is_last)
                pause = self._every or _LOOK_EVERY
            except Stopped:
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, epochs go on without it
                pause = min(pause * 2, _LONGEST_PAUSE)
                log.warning("state is not moved in the background for now: %s", error)
                self._on_failure()

    def look(self, *, only_snapshots: bool = False) -> None:
        """Store the snapshots that have appeared; if there are none, rewrite packs or scrub."""
        self._discard_vain()
        with self._lock:
            index, version = self._index, self._version
            waiting = set(self._arrived)
        held = _by_store(index.files)
        snapshots = [
            snapshot
            for folder in self._folders
            if folder not in waiting
            and (snapshot := self._snapshot(folder, held.get(folder, ()), version)) is not None
        ]
        try:
            if snapshots:
                self._store_snapshots(snapshots, index)
            elif "" not in waiting and not only_snapshots:
                self._move_objects(index)
        except Exception:
            self._uploads.discard()
            raise

    def _snapshot(self, folder: str, held: Collection[str], version: int) -> Move | None:
        """A whole snapshot that is newer than what the store's state begins with now."""
        files = [f for path in held if (f := parse_state_file(path.rpartition("/")[2]))]
        base = newest_snapshot(held)
        ids = {file.version: file.uid for file in files if file.uid is not None}
        newer = [
            file
            for name in self._copy.names(folder)
            if (file := parse_state_file(name)) is not None
            and file.is_snapshot
            and base < file.version <= version
            and (file.uid is None or file.uid == ids.get(file.version))
        ]
        if not newer:
            return None
        newest = max(newer, key=lambda file: file.version)
        try:
            return self._move_to(folder, newest)
        except (FileNotFoundError, DamageError):
            return None  # not whole yet, or removed by Spark

    def _move_to(self, folder: str, snapshot: StateFile) -> Move | None:
        ids = {snapshot.version: snapshot.uid} if snapshot.uid is not None else None
        names = closure(
            self._copy.names_in(folder),
            snapshot.version,
            lambda name: self._copy.read(f"{folder}/{name}"),
            ids,
        )
        if names[0] != snapshot.name:
            return None
        return Move(folder, snapshot.version, frozenset(f"{folder}/{n}" for n in names), {})

    def _store_snapshots(self, snapshots: list[Move], index: FileIndex) -> None:
        small: list[Move] = []
        contents: Contents = {}
        for move in snapshots:
            new = sorted(path for path in move.keep if path not in index.files)
            try:
                little, stored = self._store(new)
            except (FileNotFoundError, NotADirectoryError):
                continue  # Spark has removed it: there will be a newer one
            contents |= little
            small.append(move._replace(stored=stored))
            if sum(map(len, contents.values())) >= PACK_BYTES:
                self._publish(small, contents)
                small, contents = [], {}
        self._publish(small, contents)

    def _store(self, paths: list[str]) -> tuple[Contents, dict[str, StoredFile]]:
        """Store large files; the small ones come back."""
        if self._mover is not None:
            return self._store_by(self._mover, paths)
        little: Contents = {}
        stored: dict[str, StoredFile] = {}
        try:
            for path in paths:
                size = self._copy.size(path)
                if size is None:
                    raise FileNotFoundError(path)
                if size < LARGE:
                    little[path] = self._copy.read(path)
                else:
                    pieces = self._budget.spent_on(self._copy.stream(path))
                    stored[path] = store_alone(self._uploads, pieces)
        except FileNotFoundError:
            discard(self._shared, objects_of(stored.values()))
            raise
        return little, stored

    def _store_by(self, mover: Mover, paths: list[str]) -> tuple[Contents, dict[str, StoredFile]]:
        """The same by executors, which read at their own speed and wait between two snapshots."""
        self._budget.spend(sum(self._copy.size(path) or 0 for path in paths))
        taken = {file.path: file for file in mover.take([(path,) for path in paths])}
        stored = {path: file.stored for path, file in taken.items() if file.stored is not None}
        if lost := set(paths).difference(taken):
            discard(self._shared, objects_of(stored.values()))
            raise FileNotFoundError(min(lost))
        return {path: file.data for path, file in taken.items() if file.stored is None}, stored

    def _publish(self, moves: list[Move], contents: Contents) -> None:
        packed = self._objects.packed(contents, self._uploads)
        with self._lock:
            for move in moves:
                stored = {**move.stored, **{p: packed[p] for p in move.keep if p in packed}}
                self._arrived[move.folder] = move._replace(stored=stored)
            self._uploads.settle()

    def _discard_vain(self) -> None:
        """Remove objects that a checkpoint could have referred to and did not."""
        with self._lock:
            vain, self._vain = objects_of(self._vain), []
        if vain:
            discard(self._shared, vain)

    # objects

    def _move_objects(self, index: FileIndex) -> None:
        """Rewrite packs if that is worth it, or read an object again if it is time to."""
        if packs := packs_to_rewrite(index, self._scrub.damaged):
            stored, damaged = self._objects.rewritten(packs, index, self._uploads)
            if damaged is None:
                self._publish_places(stored)
            else:
                self._heal(*damaged)
        elif (due := self._scrub.due(index.shared_objects)) is not None:
            problem = self._scrub.problem(due, self._budget)
            if problem is not None:
                self._heal(due, problem)

    def _heal(self, shared: SharedObject, problem: str) -> None:
        """Store the files of a damaged object again, as far as the working copy has them."""
        self._uploads.discard()  # what was rewritten beside it is rewritten by another look
        with self._lock:
            index = self._index
        files = {path: file for path, file in index.files.items() if file.shared == shared}
        if not files:
            return  # no checkpoint that is still to come needs it, and a prune may have removed it
        try:
            self._shared.check_claim()
        except FencedError:
            raise Stopped from None  # who has taken over may have pruned it
        stored = self._objects.from_copy(files, self._uploads)
        self._publish_places(stored, heals=True)
        self._scrub.report(shared, problem, sorted(files.keys() - stored.keys()))

    def _publish_places(self, stored: Mapping[str, StoredFile], *, heals: bool = False) -> None:
        if stored:
            with self._lock:
                self._arrived[""] = Move("", 0, frozenset(), stored, heals)
                self._uploads.settle()


def _by_store(files: Iterable[str]) -> dict[str, list[str]]:
    by_store: dict[str, list[str]] = {}
    for path in files:
        if is_state(path):
            by_store.setdefault(store_folder(path), []).append(path)
    return by_store
