"""Shared objects: bytes that several checkpoints need, each stored once.

An object is written before any manifest names it, under a name that nobody else can have, and
never changes. Every checkpoint that needs one names it, with its size and SHA-256. An object that
no checkpoint names is removed: by the prune that dropped the last one, or when it is so old that no
writer can still be about to name it.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from seamark import limits
from seamark._common.parallel import map_in_threads
from seamark.blobs.conditional_writes import create_once
from seamark.blobs.contract import Blobs, Buffer, Entry
from seamark.blobs.streams import PIECE, Hashing, hashed_while_read, small_or_stream
from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest
from seamark.manifest.facts import SharedObject, generation_of, is_object_name
from seamark.store.ownership import Ownership
from seamark.store.references import References
from seamark.store.verified_objects import VerifiedObjects

SHARED_PREFIX: Final = "shared/"
UNNAMED_FOR: Final = 3600.0
"""Seconds after which no writer can still be about to name an object."""

_ASK_AGAIN: Final = UNNAMED_FOR / 2
_THREADS: Final = 4
_WORTH_LISTING: Final = 8

ADVICE: Final = (
    "'seamark verify' tells which checkpoints need it. 'seamark copy' brings it back from a copy of"
    " the store that has the same checkpoints; so does putting the file there by hand, under the"
    " same name. 'seamark recover --explain' tells which checkpoint is whole without it."
)
"""What to do about an object that is damaged or missing."""


class ReadObjects:
    """What one pass over several checkpoints has seen of the objects that they name."""

    def __init__(self) -> None:
        self.problems: dict[SharedObject, str | None] = {}
        """Objects that were read, and what was wrong with each."""
        self.listed: dict[str, Entry] | None = None
        """All objects as they were when sizes were first asked for."""


def write_object(blobs: Blobs, generation: int, pieces: Iterable[Buffer]) -> SharedObject:
    """Write an object of any size, durably, without holding it as a whole.

    This is all that a process other than the writer needs to store one.
    """
    name = f"{generation}-{os.urandom(16).hex()}"
    hashed = Hashing(pieces)
    put_object(blobs, SHARED_PREFIX + name, hashed)
    return SharedObject(name, hashed.length, hashed.hexdigest())


def put_object(blobs: Blobs, key: str, pieces: Iterable[Buffer]) -> None:
    """Write a value under a name that nobody else uses."""
    limit = blobs.max_put
    data = pieces if limit is None else small_or_stream(iter(pieces), limit)
    if isinstance(data, bytes):
        create_once(blobs, key, data, len(data))
    else:
        blobs.create_stream(key, data)


def read_object(blobs: Blobs, shared: SharedObject) -> Iterator[Buffer]:
    """The bytes in pieces; :class:`DamageError` after the last one if they are not right.

    A piece is valid until the one after the next is asked for. No more is read of an object that
    is too large.
    """
    key = key_of(shared)
    stream = blobs.stream(key, PIECE)
    if stream is None:
        raise DamageError(f"{key} is not there", where=blobs.url, hint=ADVICE)
    hasher, length = hashlib.sha256(), 0
    for piece in hashed_while_read(stream, hasher):
        length += len(piece)
        if length > shared.size:
            break
        yield piece
    if problem := _difference(shared, length, hasher.hexdigest()):
        raise DamageError(problem, where=blobs.url, hint=ADVICE)


def key_of(shared: SharedObject) -> str:
    """Where an object is; :class:`DamageError` for a name that no object can have."""
    if not is_object_name(shared.name):
        raise DamageError(f"a checkpoint names {shared.name[:100]!r}, which is no shared object")
    return SHARED_PREFIX + shared.name


def _difference(shared: SharedObject, length: int, sha256: str) -> str | None:
    key = SHARED_PREFIX + shared.name
    if length != shared.size:
        return f"{key} does not have {shared.size} bytes"
    return f"{key}: SHA-256 differs" if sha256 != shared.sha256 else None


def refuse_large_pack(shared: SharedObject, where: str) -> None:
    """:class:`DamageError` for a pack that would not fit into memory."""
    if shared.size > limits.LARGEST_PACK:
        raise DamageError(
            f"{key_of(shared)} has {shared.size} bytes, and {limits.LARGEST_PACK} is the most for"
            " a pack",
            where=where,
        )


class SharedObjects:
    """The shared objects of one store."""

    def __init__(
        self,
        blobs: Blobs,
        ownership: Ownership,
        references: References,
    ) -> None:
        self.blobs = self._blobs = blobs
        """Where they are stored; other processes may write objects there."""
        self._ownership = ownership
        self._references = references
        self._unnamed: dict[str, float] = {}
        self._lock = threading.Lock()
        self._verified = VerifiedObjects()
        self._looked_under: int | None = None
        """The claim under which a prune has looked for what others have left."""

    @property
    def generation(self) -> int:
        """The claim under which objects are written; 0 for none."""
        claim = self._ownership.claim_held
        return claim.generation if claim else 0

    def check_claim(self) -> None:
        """:class:`FencedError` when another writer has taken over the store."""
        self._ownership.require_writable()

    # one object

    def write(self, pieces: Iterable[Buffer]) -> SharedObject:
        """Store an object; a checkpoint that is saved within the hour may name it."""
        written = write_object(self._blobs, self.generation, pieces)
        self.expect([written])
        return written

    def expect(self, written: Iterable[SharedObject], *, verified: bool = True) -> None:
        """Objects were written for this handle, here or elsewhere, and are to be named soon.

        Unless they are ``verified``, a check that believes what is known reads them.
        """
        now = time.monotonic()
        with self._lock:
            for shared in written:
                self._unnamed[shared.name] = now
                if verified:
                    self._verified.add(shared)

    def read(self, shared: SharedObject) -> Iterator[Buffer]:
        """The bytes in pieces; :class:`DamageError` after the last one if they are not right.

        Whoever has got all of them need not read them again to believe them.
        """
        try:
            yield from read_object(self._blobs, shared)
        except DamageError:
            self._verified.add_damaged(shared)
            raise
        self._verified.add(shared)

    def is_verified(self, shared: SharedObject) -> bool:
        """Whether this handle has written or read the whole object, and it was right."""
        return shared in self._verified

    def read_pack(
        self, shared: SharedObject, counted: Callable[[Iterator[Buffer]], Iterator[Buffer]] = iter
    ) -> bytes:
        """All bytes of an object that is a pack; :class:`DamageError` if they are not right."""
        refuse_large_pack(shared, self._blobs.url)
        return b"".join(map(bytes, counted(self.read(shared))))

    def discard(self, written: Iterable[SharedObject]) -> None:
        """Remove objects that no checkpoint names and none will."""
        names = [shared.name for shared in written]
        self._remove(names)
        self._forget(names)

    # what one checkpoint names

    def problem(
        self,
        manifest: CheckpointManifest,
        *,
        believe: bool = False,
        read_data: bool = True,
        seen: ReadObjects | None = None,
    ) -> str | None:
        """What is wrong with the objects that a checkpoint names, or None.

        Without ``read_data`` they only have to be there in full size, unless this handle has seen
        that one is damaged: that one is read. ``believe`` looks at the sizes of what was written
        or verified before by this handle, and reads the rest. What was ``seen`` in the same pass
        over several checkpoints is not read again, nor are all objects listed again; what is read
        now is added.
        """
        seen = ReadObjects() if seen is None else seen
        named = dict.fromkeys(manifest.shared_objects)
        if odd := next((shared.name for shared in named if not is_object_name(shared.name)), None):
            return f"it names {odd[:100]!r}, which cannot be a shared object"
        if not read_data:
            doubted = self._verified.damaged_among(named)
        elif believe:
            doubted = [shared for shared in named if shared not in self._verified]
        else:
            doubted = list(named)
        to_read = frozenset(doubted)
        believed = [shared for shared in named if shared not in to_read]
        if believed and (problem := self._size_problem(believed, seen)):
            return problem
        unread = [shared for shared in doubted if shared not in seen.problems]
        problems = map_in_threads(self.content_problem, unread, _THREADS, "seamark-verify")
        seen.problems.update(zip(unread, problems, strict=True))
        return next((problem for s in doubted if (problem := seen.problems[s])), None)

    def _size_problem(self, named: list[SharedObject], seen: ReadObjects) -> str | None:
        # a listing gives a thousand sizes for one request
        if seen.listed is None and len(named) > _WORTH_LISTING:
            seen.listed = self.entries()
        for shared in named:
            key = SHARED_PREFIX + shared.name
            entry = seen.listed.get(shared.name) if seen.listed is not None else None
            if entry is None or entry.size != shared.size:
                entry = self._blobs.stat(key)  # it may have come since it was listed
            if entry is None:
                return f"{key} is not there"
            if problem := _difference(shared, entry.size, shared.sha256):
                return problem
        return None

    def content_problem(self, shared: SharedObject) -> str | None:
        """What is wrong with an object, by all its bytes, or None."""
        try:
            for _ in self.read(shared):
                pass
        except DamageError as error:
            return error.what
        return None

    def missing(self, manifest: CheckpointManifest) -> str | None:
        """An object that a manifest is about to name, and that is gone.

        A clean-up may have taken one that waited for long to be named for the first time. One that
        is named already can only go while this handle has no claim: nobody else prunes beside one.
        """
        now = time.monotonic()
        old = 0.0 if self._blobs.max_put is None else _ASK_AGAIN
        alone = self._ownership.claim_held is not None
        with self._lock:
            names = [
                shared.name
                for shared in manifest.shared_objects
                if is_object_name(shared.name)
                and (
                    not alone if (at := self._unnamed.get(shared.name)) is None else now - at >= old
                )
            ]
        if len(names) > _WORTH_LISTING:
            listed = self.entries()
            return next((name for name in names if name not in listed), None)
        gone = (name for name in names if self._blobs.stat(SHARED_PREFIX + name) is None)
        return next(gone, None)

    def named(self, manifest: CheckpointManifest) -> None:
        """A manifest was saved: its objects are in use."""
        self._forget(shared.name for shared in manifest.shared_objects)

    def _forget(self, names: Iterable[str]) -> None:
        with self._lock:
            for name in names:
                self._unnamed.pop(name, None)

    # what no checkpoint names

    def entries(self) -> dict[str, Entry]:
        """Every object in the store, by name."""
        found = ((e.key.removeprefix(SHARED_PREFIX), e) for e in self._blobs.entries(SHARED_PREFIX))
        return {name: entry for name, entry in found if is_object_name(name)}

    def drop_pruned(self, names: Collection[str]) -> int:
        """Remove what only pruned checkpoints have named; how many.

        The first call under a claim also looks for what an interrupted prune or a dead writer has
        left.
        :class:`DamageError` when a manifest cannot be read: then nothing is removed.
        """
        doomed = set(filter(is_object_name, names))
        claim = self.generation
        has_looked = self._looked_under == claim
        if has_looked and not doomed:
            return 0
        left = {} if has_looked else self.entries()
        if not doomed and not left:
            self._looked_under = claim
            return 0
        with self._blobs.exclusive():  # nobody names one of them between the look and the removal
            in_use = self._references.in_use().objects
            doomed -= in_use
            doomed |= set(self._abandoned(left, in_use, UNNAMED_FOR, fenced=True))
            self._remove(doomed)
        self._looked_under = claim
        return len(doomed)

    def orphans(self, min_age: float, now: float) -> list[Entry]:
        """What nobody names and is that many seconds old. Changes nothing."""
        listed = self.entries()  # before the manifests: what is named in between is then in use
        if not listed:
            return []
        in_use = self._references.in_use().objects
        return list(self._abandoned(listed, in_use, min_age, now=now).values())

    def remove_orphans(self, min_age: float) -> int:
        """Remove them; how many."""
        with self._blobs.exclusive():
            doomed = self.orphans(min_age, self._blobs.clock())
            self._remove([entry.key.removeprefix(SHARED_PREFIX) for entry in doomed])
        return len(doomed)

    def _abandoned(
        self,
        listed: dict[str, Entry],
        in_use: Collection[str],
        min_age: float,
        *,
        now: float | None = None,
        fenced: bool = False,
    ) -> dict[str, Entry]:
        """Of those listed what nobody names, of that age; with ``fenced`` also what is younger and
        was made by a writer that cannot decide anything any more.
        """
        with self._lock:
            unnamed = {n: e for n, e in listed.items() if n not in in_use}
            unnamed = {n: e for n, e in unnamed.items() if n not in self._unnamed}
        if not unnamed:
            return {}
        oldest = (self._blobs.clock() if now is None else now) - min_age
        claim = self._ownership.claim_held
        below = claim.generation if fenced and claim is not None else 0
        return {
            name: entry
            for name, entry in unnamed.items()
            if entry.modified <= oldest or 0 < generation_of(name) < below
        }

    def _remove(self, names: Collection[str]) -> None:
        self._blobs.delete([SHARED_PREFIX + name for name in sorted(names)])
        self._verified.forget(names)
