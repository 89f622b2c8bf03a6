"""Stand-ins for a module, and for what its calls return, that report each I/O to a recording."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from tests.support.disk import PURE

if TYPE_CHECKING:
    from tests.support.recording import Recording

ModuleKind = Literal["os", "obstore"]


class Module:
    """A module whose I/O functions go through a recording; all else is the module's own.

    Of an `os`-like module every function is I/O that is not known to be pure, those of its `path`
    (and, of a `SimulatedDisk`, its `fcntl`) too; of `obstore` every function but `parse_scheme`.
    """

    def __init__(
        self, recording: Recording, target: Any, kind: ModuleKind, prefix: str = ""
    ) -> None:
        self._recording = recording
        self._target = target
        self._kind: ModuleKind = kind
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if self._kind == "os" and name in ("path", "fcntl") and not callable(value):
            return Module(self._recording, value, "os", "path." if name == "path" else "")
        pure = name in PURE if self._kind == "os" else name == "parse_scheme"
        if pure or name.startswith("_") or isinstance(value, type) or not callable(value):
            return value
        return _recorded(self._recording, self._kind, self._prefix + name, value)


class Handle:
    """A result whose methods and iteration do more I/O: that of obstore's `get` and the like."""

    def __init__(self, recording: Recording, kind: ModuleKind, name: str, target: Any) -> None:
        self._recording = recording
        self._kind: ModuleKind = kind
        self._name = name
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if name.startswith("_") or not callable(value):
            return value
        return _recorded(self._recording, self._kind, f"{self._name}.{name}", value)

    def __iter__(self) -> Iterator[Any]:
        if hasattr(self._target, "__next__"):
            return self
        return iter(self.stream())  # a GetResult is iterated by its stream

    def __next__(self) -> Any:
        name = f"{self._name}.next"
        return self._recording.perform(self._kind, name, self._target.__next__)

    def __enter__(self) -> Handle:
        self._target.__enter__()
        return self

    def __exit__(self, *exc: object) -> Any:
        exit_ = self._target.__exit__
        return self._recording.perform(self._kind, f"{self._name}.exit", exit_, *exc)


class Scan:
    """What `scandir` returned. Reading on is no call of its own, but a dead process cannot."""

    def __init__(self, recording: Recording, entries: list[Any]) -> None:
        self._recording = recording
        self._entries = iter([Entry(recording, entry) for entry in entries])

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._recording.check_alive()
        return next(self._entries)

    def close(self) -> None:
        self._entries = iter(())

    def __enter__(self) -> Scan:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Entry:
    """A `DirEntry` whose `stat` is recorded; its other answers came with the listing."""

    def __init__(self, recording: Recording, entry: Any) -> None:
        self._recording = recording
        self._entry = entry

    def stat(self, *, follow_symlinks: bool = True) -> Any:
        look = partial(self._entry.stat, follow_symlinks=follow_symlinks)
        return self._recording.perform("os", "scandir.stat", lambda path: look(), self._entry.path)

    def __fspath__(self) -> Any:
        return self._entry.__fspath__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)


def _recorded(recording: Recording, kind: ModuleKind, name: str, function: Any) -> Any:
    if name.endswith("_async"):
        raise AssertionError(f"obstore.{name}: a recording covers synchronous calls only")
    return partial(recording.perform, kind, name, function)
