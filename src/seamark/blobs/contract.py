"""The contract between a checkpoint store and the place where its bytes live.

A backend is a handful of verbs over keys (``a/b/c``). Everything else (ids, fencing, validation,
retention) is written once above it. A third party that brings a backend of its own implements
:class:`Blobs` and runs ``seamark.testing.BlobsConformance`` over it.

What a write verb raises says what is known about its outcome:

- :class:`KeyExists`, :class:`TagMismatch`: another value is there, ours is not;
- ``StoreUnavailableError``: it failed and certainly did not happen;
- ``OutcomeUnknownError``: it may have happened, or may still happen later.

Keys often come out of what a store holds, and a store may have been written by anybody. So every
verb passes its keys through :func:`check_key` before it does anything.

Tests: ``tests/store/test_conformance.py``.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, Final, NamedTuple

from seamark._common import files
from seamark.errors import DamageError

_LARGEST: Final = 2**63 - 1
_LEADS_OUT: Final = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)|[\\\x00]")
"""An empty part, ``.`` or ``..``; a backslash; NUL."""

Buffer = files.Buffer

Tag = object
"""Names one version of a value; only the backend that gave it can read it."""

TEMPORARY: Final = "tmp/"
PROBE_PREFIX: Final = "probe/"
_LOCKS: Final = "locks/"
_HEX: Final = "[0-9a-f]"
_OURS: Final = re.compile(
    rf"{TEMPORARY}[0-9]+-{_HEX}{{16}}"
    rf"|{PROBE_PREFIX}{_HEX}{{32}}(\.renamed)?"
    rf"|{_LOCKS}doctor-{_HEX}{{32}}\.lock"
    # of a place that was probed before it was a store
    rf"|{PROBE_PREFIX}{_HEX}{{32}}/({TEMPORARY}[0-9]+-{_HEX}{{16}}"
    rf"|{PROBE_PREFIX}{_HEX}{{32}}(\.renamed)?|{_LOCKS}(writers|doctor-{_HEX}{{32}})\.lock)"
)
"""Names that only this code gives. Anything else next to them belongs to somebody else."""


class Blob(NamedTuple):
    """A value as it was read, with the tag that a conditional replace needs."""

    data: bytes
    tag: Tag


class Entry(NamedTuple):
    """One row of a listing."""

    key: str
    size: int
    modified: float
    """Seconds since the Unix epoch, by the store's clock."""
    version: Hashable
    """Changes when the value is written again."""


def check_key(key: str) -> str:
    """``key`` when it names a value below the root and nothing else; :class:`DamageError` if not.

    Refused are absolute paths, empty parts, ``.`` and ``..``, backslashes and NUL. A percent sign
    is an ordinary character: no backend decodes it.
    """
    if not is_key(key):
        raise DamageError(f"{key!r} cannot be the name of a stored value: it could lead elsewhere")
    return key


def is_key(key: str) -> bool:
    """Whether :func:`check_key` lets it pass; listings leave out what it would not."""
    return _LEADS_OUT.search(key) is None


def check_folder(prefix: str) -> str:
    """``prefix`` when it is empty or a folder that stays below the root, ending in ``/``."""
    if prefix:
        check_key(prefix.removesuffix("/"))
    return prefix


def check_range(key: str, offset: int, length: int) -> None:
    """Refuse a range that no value can have; such a one comes from a damaged manifest."""
    if offset < 0 or length < 0 or offset + length > _LARGEST:
        raise DamageError(f"{key} cannot have {length} bytes at {offset}")


class Stream:
    """A value in pieces, and which version of it they are."""

    def __init__(self, pieces: Iterator[Buffer], version: Hashable) -> None:
        self._pieces = pieces
        self.version = version

    def __iter__(self) -> Iterator[Buffer]:
        return self._pieces


class KeyExists(Exception):
    """A create lost: the key is taken."""


class TagMismatch(Exception):
    """A conditional replace lost: the value is another one by now, or gone."""


class Blobs(ABC):
    """Verbs over keys. Safe to call from several threads.

    :class:`DamageError` for a key that :func:`check_key` refuses, before anything is touched.
    """

    url: str
    """Where it is, for messages: free of secrets."""

    max_put: ClassVar[int | None] = None
    """The largest value for :meth:`create`; None where streams are create-only too."""

    needs_probe: ClassVar[bool] = False
    """Whether conditional writes must be seen to work before they are trusted."""

    read_back_proves: ClassVar[bool] = True
    """Whether a value that can be read is durable, so that reading back settles a write."""

    parallel_reads: ClassVar[int] = 1
    """How many reads at a time pay off."""

    @property
    def address(self) -> tuple[str, ...]:
        """Where it really is, folder by folder, however that was spelled; empty if not known."""
        return ()

    @abstractmethod
    def read(self, key: str, limit: int) -> Blob | None:
        """The value, or None when there is none. More than ``limit`` bytes: ``DamageError``."""

    @abstractmethod
    def stat(self, key: str) -> Entry | None:
        """Size and time of a value without reading it, or None when there is none."""

    @abstractmethod
    def stream(self, key: str, piece: int) -> Stream | None:
        """The value in pieces, or None when there is none.

        A piece stays as it is until the one after the next is asked for, so that a caller can
        work on one piece while the next one is read.
        """

    @abstractmethod
    def read_range(self, key: str, offset: int, length: int) -> bytes | None:
        """Some bytes of a value, or None when there is none. Fewer where the value ends."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> Tag:
        """Write a new value, whole and durable, or raise :class:`KeyExists`."""

    @abstractmethod
    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag | None:
        """Write a new value of any size, piece by piece; it appears whole or not at all.

        The tag, or None where only :meth:`stat` knows the version. The producer may use its
        buffer again once the next piece was asked for.
        A backend whose :attr:`max_put` is None raises :class:`KeyExists` when the key is taken.
        The others do not know: give them a key that nobody else uses.
        """

    def take_from(self, other: Blobs, key: str, size: int) -> bool:
        """Have the value that another place has under the same key, without moving its bytes.

        Where both places are on one disk or in one bucket the value gets a second name, or the
        service copies it. It is durable then. False when that cannot be done here, and nothing
        has changed. The key is one that nobody else uses. A value that got a second name must
        never be written in place, which no backend does.
        """
        return False

    @abstractmethod
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        """Replace exactly the version ``tag``, or raise :class:`TagMismatch`.

        ``durable=False`` is for hints: after a power cut the old value may be back.
        """

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Remove values; one that is not there is fine."""

    def delete_durably(self, keys: Sequence[str]) -> None:
        """Remove values and be sure that no power cut brings them back."""
        self.delete(keys)

    @abstractmethod
    def entries(self, prefix: str) -> list[Entry]:
        """Every value whose key starts with the folder ``prefix`` (ending in ``/``)."""

    @abstractmethod
    def folders_holding(self, prefix: str, name: str) -> list[str]:
        """Names of the folders directly in ``prefix`` that hold a value called ``name``.

        One that was there before the call is found, unless it is removed meanwhile.
        """

    def make_durable(self, key: str) -> None:  # noqa: B027 - most backends have done so
        """Be sure that a value which can be read survives a power cut."""

    def version_of(self, tag: Tag) -> Hashable:
        """The :attr:`Entry.version` of what was just written, or None when only stat knows."""
        return None

    def exclusive(self) -> AbstractContextManager[object]:
        """Keeps other writers out for a moment, where the backend can."""
        return nullcontext()

    def hold(self, name: str) -> AbstractContextManager[object]:
        """A mark that others can see for as long as this process lives and keeps it."""
        return nullcontext()

    def forget_holds(self, but: str) -> None:  # noqa: B027 - most backends have none
        """Remove the marks of the past that are named as this one up to its last dash."""

    def is_held(self, name: str) -> bool | None:
        """Whether somebody holds that mark; None where the backend does not know."""
        return None

    def clock(self) -> float:
        """The time now by the clock of :attr:`Entry.modified`. May write a probe.

        What is removed by its age is held against this: the clock of this machine may be wrong.
        """
        return time.time()

    def close(self) -> None:  # noqa: B027 - most backends hold nothing
        """Give back what is held. Using it afterwards is an error."""


def unfinished(blobs: Blobs, oldest: float) -> list[Entry]:
    """Temporary files, probes and locks that are at least that old."""
    return [
        entry
        for prefix in (TEMPORARY, PROBE_PREFIX, _LOCKS)
        for entry in blobs.entries(prefix)
        if entry.modified <= oldest and _OURS.fullmatch(entry.key)
    ]
