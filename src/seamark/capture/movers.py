"""Moving state files from a working copy into the store.

Small files come back as bytes, because many of them travel together. A large one becomes a shared
object on the way and is never held as a whole.

Tests: ``tests/capture/test_capture_and_restore.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from seamark import limits
from seamark._common.files import Buffer
from seamark._common.parallel import map_in_threads
from seamark.blobs.streams import small_or_stream
from seamark.capture.file_index import StoredFile
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.checkpoint_dir.state_files import MissingVersion, needed_ssts, whole_at_version
from seamark.manifest.facts import SharedObject
from seamark.state.pack import PackBuilder

LARGE: Final = 1 << 20
"""From this size on a file is an object of its own."""

PACK_BYTES: Final = 16 << 20
"""Small files that come to more than this do not wait in memory for the rest of the epoch."""

_THREADS: Final = 4
_AT_ONCE: Final = 256

Contents = dict[str, bytes]
"""Path relative to the working copy → bytes."""


class TakenFile(NamedTuple):
    """A file of the working copy: its bytes, or where they are by now."""

    path: str
    data: bytes = b""
    stored: StoredFile | None = None
    needs: tuple[str, ...] = ()
    """Other files of the store's folder that it refers to, by their paths in that folder."""
    left: int = 0
    """The bytes of a file that is still to be stored."""

    @property
    def is_left(self) -> bool:
        """Whether it is still to be stored."""
        return self.left > 0

    @property
    def is_held(self) -> bool:
        """Whether its bytes are here."""
        return self.stored is None and not self.is_left


class ObjectWriter(Protocol):
    """Stores shared objects."""

    def write(self, pieces: Iterable[Buffer]) -> SharedObject:
        """Store one, of any size."""


class Mover(Protocol):
    """Takes files of a working copy."""

    def take(self, candidates: Sequence[Sequence[str]]) -> list[TakenFile]:
        """Of each group of names the first that is there; nothing for a group without any."""


class DriverMover:
    """Takes them in this process. ``threads`` read at a time, for a directory that is far away."""

    def __init__(
        self,
        files: CheckpointFiles,
        shared: ObjectWriter,
        *,
        threads: int = 1,
        advance: Callable[[int], None] | None = None,
    ) -> None:
        self._files = files
        self._shared = shared
        self._threads = threads
        self._advance = advance

    def take(self, candidates: Sequence[Sequence[str]]) -> list[TakenFile]:
        """See :class:`Mover`."""
        taken: list[TakenFile] = []
        large: list[tuple[int, TakenFile]] = []
        waiting = 0
        for start in range(0, len(candidates), _AT_ONCE):
            slice_ = candidates[start : start + _AT_ONCE]
            for file in map_in_threads(self._first, slice_, self._threads, "seamark-capture"):
                if file is None:
                    continue
                if file.is_left:
                    large.append((len(taken), file))
                taken.append(file)
                waiting += len(file.data)
            if waiting >= PACK_BYTES:
                taken, waiting = pack_held(taken, self._shared), 0
        stored = map_in_threads(
            lambda each: self._store(each[1].path, each[1].left), large, _THREADS, "seamark-store"
        )
        for (place, _), file in zip(large, stored, strict=True):
            taken[place] = file
        return taken

    def _first(self, names: Sequence[str]) -> TakenFile | None:
        """The first that is there; a large one is left for later."""
        for name in names:
            size = self._files.size(name)
            if size is None:
                continue
            if size >= LARGE and not name.endswith(".zip"):
                return TakenFile(name, left=size)
            try:
                data = self._files.read(name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            self._done(name, size, len(data))
            return TakenFile(name, data, needs=needs_of(name, data))
        return None

    def _store(self, path: str, size: int) -> TakenFile:
        stored = store_alone(self._shared, self._files.stream(path))
        self._done(path, size, stored.size)
        return TakenFile(path, stored=stored)

    def _done(self, path: str, expected: int, size: int) -> None:
        if size != expected:
            raise MissingVersion(f"{path} changed while it was read", where=self._files.uri)
        if self._advance is not None:
            self._advance(size)


def take_whole_state(
    mover: Mover, paths: Sequence[str], version: int, where: str
) -> tuple[Contents, dict[str, StoredFile]]:
    """Take the files of a state that is whole by itself, as those of another version.

    Small ones come as bytes, the others are stored. :class:`MissingVersion` when one is not there.
    """
    taken = mover.take([(path,) for path in paths])
    if lost := set(paths).difference(file.path for file in taken):
        raise MissingVersion(f"{min(lost)} is not there", where=where)
    small: Contents = {}
    stored: dict[str, StoredFile] = {}
    for file in taken:
        path = whole_at_version(file.path, version)
        if file.stored is None:
            small[path] = file.data
        else:
            stored[path] = file.stored
    return small, stored


def needs_of(path: str, data: bytes) -> tuple[str, ...]:
    """What a state file refers to: only a RocksDB snapshot does."""
    return tuple(needed_ssts(data)) if path.endswith(".zip") else ()


def store_alone(shared: ObjectWriter, pieces: Iterable[Buffer]) -> StoredFile:
    """Store one file as an object of its own."""
    written = shared.write(pieces)
    return StoredFile(written.size, bytes.fromhex(written.sha256), written)


def store_packed(shared: ObjectWriter, contents: Contents) -> dict[str, StoredFile]:
    """Store several files as one object, or as few as a reader is ready to hold in memory."""
    stored: dict[str, StoredFile] = {}
    for group in _groups(contents):
        builder = PackBuilder()
        placed = builder.add_all(list(group), list(group.values()))
        written = shared.write(builder.finish())
        stored |= {
            path: StoredFile(len(data), digest, written, is_packed=True)
            for (path, data), digest in zip(group.items(), placed.digests, strict=True)
        }
    return stored


def _groups(contents: Contents) -> Iterator[Contents]:
    """The files of each pack; one group, as a rule."""
    group: Contents = {}
    size = 0
    for path, data in contents.items():
        if group and size + len(data) > limits.LARGEST_PACK // 2:
            yield group
            group, size = {}, 0
        group[path] = data
        size += len(data)
    yield group


def take_streams(
    files: Iterable[tuple[str, Iterator[Buffer]]], shared: ObjectWriter
) -> list[TakenFile]:
    """Take files whose bytes come one after the other, in pieces."""
    taken: list[TakenFile] = []
    waiting = 0
    for path, pieces in files:
        if path.endswith(".zip"):
            data: bytes | Iterator[Buffer] = b"".join(pieces)
        else:
            data = small_or_stream(pieces, LARGE - 1)
        if not isinstance(data, bytes):
            taken.append(TakenFile(path, stored=store_alone(shared, data)))
            continue
        taken.append(TakenFile(path, data, needs=needs_of(path, data)))
        waiting += len(data)
        if waiting >= PACK_BYTES:
            taken, waiting = pack_held(taken, shared), 0
    return taken


def pack_held(taken: list[TakenFile], shared: ObjectWriter) -> list[TakenFile]:
    """The same files, those that are held in memory stored as one pack."""
    held = {file.path: file.data for file in taken if file.is_held}
    stored = store_packed(shared, held)
    return [
        TakenFile(file.path, stored=stored[file.path], needs=file.needs) if file.is_held else file
        for file in taken
    ]
