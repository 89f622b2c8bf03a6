"""Watch every I/O call of a module, crash at any of them, or make some of them fail.

    recording = Recording(crash_at=7, when="after")
    mount(monkeypatch, recording.wrap(os), recording.wrap(fcntl))

No call site has to be marked: of `os`-like modules every function counts that is not known to be
pure, of `obstore` every function, and what comes back from a `get` or a `list` counts as well when
it is read. Calls are numbered from 1 over all modules that one recording wraps.
"""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from tests.support.faults import (
    LISTINGS,
    PAYLOADS,
    Fault,
    returned_bytes,
    with_bit_flipped,
    with_prefix_only,
)
from tests.support.listings import FixedListing, Listings, materialized
from tests.support.wrapped import Handle, Module, ModuleKind, Scan

When = Literal["before", "after", "torn"]
_HANDLES = frozenset({"get", "list", "open_reader", "open_writer", "get.stream"})
_NEED_SPACE = frozenset(
    {*PAYLOADS, "copy", "fdatasync", "fsync", "ftruncate", "link", "makedirs", "mkdir"}
)
_READS = frozenset(
    {"access", "close", "flock", "fstat", "listdir", "lseek", "path.exists", "path.isdir", "pread"}
    | {"preadv", "read", "readv", "scandir", "scandir.stat", "stat"}
)
_FLAGS = ("WRONLY", "RDWR", "CREAT", "EXCL", "TRUNC", "APPEND", "DIRECTORY")


class Crash(BaseException):
    """The process died here. Not an `Exception`, so that no code under test survives it."""


@dataclass(frozen=True)
class Call:
    """One I/O call: its number from 1, its name, and its arguments in short.

    A descriptor is shown as the path that it was opened with, bytes as their number, so that
    `str(call)` reads `write /store/x.tmp <12 bytes>` or `put manifests/1 <90 bytes> mode=create`.
    """

    index: int
    name: str
    summary: str
    writes: bool = field(default=False, compare=False)
    needs_space: bool = field(default=False, compare=False)

    @property
    def only_reads(self) -> bool:
        """Whether a death after this call leaves the disk as a death before it does."""
        if self.name == "open":
            return "O_CREAT" not in self.summary and "O_TRUNC" not in self.summary
        return self.name in _READS

    def __str__(self) -> str:
        return f"{self.name} {self.summary}".rstrip()


class Recording:
    """The calls of all modules it wraps, in one sequence.

    With `crash_at=k` the k-th call raises `Crash`: `before` it takes effect, `after` (its result is
    lost), or `torn` (a prefix of the bytes it writes takes effect; another call crashes before).
    From then on every call raises `Crash` and does nothing: a dead process runs no `finally`.
    A torn `put` leaves a short object, which a sound object store never does.
    """

    def __init__(
        self,
        *,
        crash_at: int | None = None,
        when: When = "before",
        faults: Sequence[Fault] = (),
    ) -> None:
        self.calls: list[Call] = []
        self._death: Call | None = None
        self._crash_at = crash_at
        self._when = when
        self._faults = [_Rule(fault) for fault in faults]
        self._paths: dict[int, str] = {}
        self._listings = Listings()
        self._lock = threading.Lock()

    @property
    def crashed(self) -> bool:
        """Whether the process has died. A sweep is over when it has not."""
        return self._death is not None

    def wrap(self, target: Any, kind: ModuleKind = "os") -> Any:
        """A stand-in for the module `target` whose I/O calls belong to this recording."""
        return Module(self, target, kind)

    def fired(self, fault: Fault) -> int:
        """How many calls this fault has spoiled so far."""
        return sum(rule.fired for rule in self._faults if rule.fault is fault)

    def perform(
        self, kind: ModuleKind, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Make one call of a wrapped module, and all that shall go wrong with it."""
        args, kwargs = _positional(function, args, kwargs)
        call = self._begin(name, args, kwargs)
        rules = [rule for rule in self._faults if rule.fault.concerns(call)]
        dies_here = call.index == self._crash_at
        if dies_here and self._when == "torn" and call.writes:
            args = with_prefix_only(name, args, keep=0.5)
        elif dies_here and self._when != "after":
            self._die(call)
        torn, args = _spoil_arguments(rules, kind, name, args)
        try:
            result = function(*args, **kwargs)
        except Exception:
            if dies_here or self.crashed:
                self._die(call)
            raise
        if dies_here or self.crashed:
            self._die(call)
        if torn is not None:
            raise torn
        with self._lock:
            result = self._remember(call, kind, args, kwargs, result)
        for rule in rules:
            if rule.fault.kind == "fail_after" and rule.spend():
                raise rule.fault.to_raise(kind)
            if rule.fault.kind == "bit_flip" and returned_bytes(name, result) and rule.spend():
                result = with_bit_flipped(name, args, result, rule.fault.bit)
        return result

    def check_alive(self) -> None:
        """Raise `Crash` when the process is dead already."""
        if self._death is not None:
            raise Crash(f"at call {self._death.index}: {self._death}")

    def _begin(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        with self._lock:
            self.check_alive()
            creates = name == "open" and bool(args[1] & os.O_CREAT)
            call = Call(
                len(self.calls) + 1,
                name,
                self._summary(name, args, kwargs),
                writes=name in PAYLOADS,
                needs_space=creates or name in _NEED_SPACE,
            )
            self.calls.append(call)
            return call

    def _die(self, call: Call) -> NoReturn:
        self._death = self._death or call
        raise Crash(f"at call {self._death.index}: {self._death}")

    def _remember(
        self,
        call: Call,
        kind: ModuleKind,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> Any:
        """Note what the call did; give its result back, wrapped where reading it is I/O."""
        name = call.name
        self._listings.note(call.index, kind, name, args)
        if name == "open":
            self._paths[result] = os.fsdecode(args[0])
        elif name == "close":
            self._paths.pop(args[0], None)
        lagging = any(rule.fault.kind == "stale_listing" for rule in self._faults)
        if name == "scandir" or (name in LISTINGS and lagging):
            result = self._listed(call, kind, (*args, *kwargs.values()), result)
            if name == "scandir":
                return Scan(self, result)
            if name == "list":
                result = FixedListing(result, kwargs.get("chunk_size", 50))
        return Handle(self, kind, name, result) if name in _HANDLES else result

    def _listed(self, call: Call, kind: ModuleKind, args: tuple[Any, ...], result: Any) -> Any:
        listing = materialized(call.name, result)
        earlier = self._listings.previous(kind, call.name, args, listing)
        for rule in self._faults:
            if rule.fault.kind != "stale_listing" or not rule.fault.concerns(call):
                continue
            if rule.fault.behind is not None:
                newest = call.index - 1 - rule.fault.behind
                older = self._listings.without_new(kind, args, listing, newest)
            else:
                older = earlier
            if older is not None and older != listing and rule.spend():
                return older
        return listing

    def _summary(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        words = [self._word(value) for value in args]
        if name == "open":
            set_flags = [flag for flag in _FLAGS if args[1] & getattr(os, f"O_{flag}")]
            words[1:] = ["|".join(f"O_{flag}" for flag in set_flags) or "O_RDONLY"]
        elif args and isinstance(args[0], int):
            words[0] = self._paths.get(args[0], f"fd {args[0]}")
        named = [f"{key}={self._word(value)}" for key, value in kwargs.items()]
        return " ".join(word for word in words + named if word)

    def _word(self, value: Any) -> str:
        if isinstance(value, str | os.PathLike):
            return os.fsdecode(value)
        if value is None or isinstance(value, int | float | dict):
            return str(value)
        if isinstance(value, list | tuple):
            return "[" + ", ".join(self._word(item) for item in value) + "]"
        try:
            return f"<{memoryview(value).nbytes} bytes>"
        except TypeError:
            return ""  # a store or a stream: its text may hold keys, and tells nothing here


class _Rule:
    """A fault and how often it has met its call."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.fired = 0
        self._met = 0
        self._lock = threading.Lock()

    def spend(self) -> bool:
        """Whether the fault strikes this time."""
        with self._lock:
            self._met += 1
            over = self.fault.count is not None and self.fired >= self.fault.count
            if over or self._met <= self.fault.skip:
                return False
            self.fired += 1
            return True


def _spoil_arguments(
    rules: list[_Rule], kind: ModuleKind, name: str, args: tuple[Any, ...]
) -> tuple[BaseException | None, tuple[Any, ...]]:
    """What faults do before the call; the error is one to raise when it has taken effect."""
    for rule in rules:
        fault = rule.fault
        if fault.kind in ("fail_after", "bit_flip", "stale_listing") or not rule.spend():
            continue
        if fault.kind == "slow":
            time.sleep(fault.seconds)
        elif fault.kind in ("fail_before", "disk_full"):
            raise fault.to_raise(kind)
        else:
            torn = fault.to_raise(kind) if fault.kind == "torn" else None
            return torn, with_prefix_only(name, args, fault.keep)
    return None, args


def _positional(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with those in their places that may be named or not."""
    if not kwargs:
        return args, kwargs
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):  # a wrong call, which the function itself shall refuse
        return args, kwargs
    return bound.args, bound.kwargs
