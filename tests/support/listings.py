"""What a recording knows about earlier listings, so that a later one can lag behind."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator
from typing import Any

# Which argument names what a call makes, and what it removes.
_MAKES = {
    ("os", "open"): 0,
    ("os", "mkdir"): 0,
    ("os", "link"): 1,
    ("os", "rename"): 1,
    ("os", "replace"): 1,
    ("obstore", "put"): 1,
    ("obstore", "copy"): 2,
    ("obstore", "rename"): 2,
}
_REMOVES = {
    ("os", "unlink"): 0,
    ("os", "remove"): 0,
    ("os", "rmdir"): 0,
    ("os", "rename"): 0,
    ("os", "replace"): 0,
    ("obstore", "delete"): 1,
    ("obstore", "rename"): 1,
}


class Listings:
    """The previous listing of each place, and the call that made each entry of a wrapped module."""

    def __init__(self) -> None:
        self._made_at: dict[tuple[int, str], int] = {}
        self._previous: dict[tuple[str, int, str], Any] = {}

    def note(self, index: int, kind: str, name: str, args: tuple[Any, ...]) -> None:
        """Remember what a successful call made or removed."""
        removed, made = _REMOVES.get((kind, name)), _MAKES.get((kind, name))
        if removed is not None:
            gone = args[removed]
            for path in gone if isinstance(gone, list | tuple) else [gone]:
                self._made_at.pop(_key(kind, args, path), None)
        opens_only = name == "open" and not args[1] & os.O_CREAT
        if made is not None and made < len(args) and not opens_only:
            self._made_at.setdefault(_key(kind, args, args[made]), index)

    def previous(self, kind: str, name: str, args: tuple[Any, ...], listing: Any) -> Any:
        """What the same call listed last time, or None; `listing` takes its place."""
        where = args[1:] if kind == "obstore" else args
        key = (name, _store(kind, args), repr(where))
        earlier = self._previous.get(key)
        self._previous[key] = listing
        return earlier

    def without_new(self, kind: str, args: tuple[Any, ...], listing: Any, newest: int) -> Any:
        """`listing` without the entries that a call after number `newest` made."""

        def is_old(entry: Any) -> bool:
            path = entry["path"] if kind == "obstore" else _beside(args, entry)
            return self._made_at.get(_key(kind, args, path), 0) <= newest

        if isinstance(listing, dict):
            return {**listing, "objects": [one for one in listing["objects"] if is_old(one)]}
        return [entry for entry in listing if is_old(entry)]


class FixedListing:
    """A listing known beforehand with the face of obstore's `ListStream`."""

    def __init__(self, entries: list[Any], chunk_size: int) -> None:
        self._left = entries
        self._chunk_size = chunk_size

    def __iter__(self) -> Iterator[list[Any]]:
        return self

    def __next__(self) -> list[Any]:
        if not self._left:
            raise StopIteration
        chunk, self._left = self._left[: self._chunk_size], self._left[self._chunk_size :]
        return chunk

    def collect(self) -> list[Any]:
        entries, self._left = self._left, []
        return entries


def materialized(name: str, result: Any) -> Any:
    """The entries of a listing as a list (with a delimiter: obstore's dict of two lists)."""
    if name == "scandir":
        with result:
            return list(result)
    listing = result.collect() if name == "list" else result
    entries = listing["objects"] if isinstance(listing, dict) else listing
    if not isinstance(entries, list):
        raise TypeError("a stale_listing understands listings with return_arrow=False only")
    return listing


def _store(kind: str, args: tuple[Any, ...]) -> int:
    return id(args[0]) if kind == "obstore" else 0


def _key(kind: str, args: tuple[Any, ...], path: Any) -> tuple[int, str]:
    plain: Callable[[Any], str] = str if kind == "obstore" else _normal
    return _store(kind, args), plain(path)


def _normal(path: Any) -> str:
    return posixpath.normpath(os.fsdecode(path))


def _beside(args: tuple[Any, ...], entry: Any) -> str:
    name = entry if isinstance(entry, str) else entry.name
    return posixpath.join(os.fsdecode(args[0]) if args else ".", name)
