"""Has something done, as if by another process, between two steps of some work.

A step is a call by which the work leaves its own code: to the operating system, or to a library.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any, Final

Work = Callable[[], object]

_SYSTEM: Final = frozenset(
    {"posix", "nt", "io", "_io", "fcntl", "msvcrt", "_socket", "_ssl", "_sqlite3"}
)
"""Modules of Python that reach the operating system; all others only compute."""
_AT_THE_END: Final = "after the last step"
_LONGEST: Final = 120.0
"""Seconds until something that waits for nobody any more is taken for stuck."""


@dataclass(frozen=True)
class Overlap:
    """How both have ended: with their results, or with what they raised."""

    first: object = None
    first_error: Exception | None = None
    other: object = None
    other_error: Exception | None = None
    where: str = ""
    """Which call of the first one came next when the other one began."""


@dataclass(frozen=True)
class Steps:
    """Which calls are steps: those that leave the packages of ``own``, and of its bases.

    Only those whose names are found by ``calls``, a regular expression. Python's own library is
    part of whatever calls it.
    """

    own: type
    calls: str = ""

    def count(self, work: Work) -> int:
        """Do the work; how many steps it has."""
        profile = _Profile(self)
        with profile:
            work()
        return profile.count

    def overlap(self, work: Work, at: int, by: Work, patience: float) -> Overlap:
        """Do the work; before its step ``at``, counted from 0, have ``by`` done in a thread.

        The work goes on when that is done, or when it has waited ``patience`` seconds: ``by`` may
        have to wait for the work itself. It comes after the work when there are fewer steps.
        """
        other = _Other(by)
        profile = _Profile(self, at, lambda: other.begin(patience))
        first, error = None, None
        with profile:
            try:
                first = work()
            except Exception as raised:  # noqa: BLE001 - the caller judges it
                error = raised
        other.begin(patience)
        other.end()
        return Overlap(first, error, other.result, other.error, profile.where)


def spread(count: int, most: int) -> list[int]:
    """At most that many of the numbers below ``count``, evenly spread, both ends among them."""
    if count <= most:
        return [*range(max(count, 1))]
    return sorted({round(at * (count - 1) / max(most - 1, 1)) for at in range(most)})


class _Other:
    """The other process, in a thread."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._thread: threading.Thread | None = None
        self.result: object = None
        self.error: Exception | None = None

    def begin(self, patience: float) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="another process", daemon=True)
            self._thread.start()
            self._thread.join(patience)

    def end(self) -> None:
        if self._thread is not None:
            self._thread.join(_LONGEST)
            assert not self._thread.is_alive(), "the other process waits for ever"

    def _run(self) -> None:
        try:
            self.result = self._work()
        except Exception as raised:  # noqa: BLE001 - the caller judges it
            self.error = raised


class _Profile:
    """Counts the steps of this thread, and calls ``between`` before one of them."""

    def __init__(self, steps: Steps, at: int | None = None, between: Work | None = None) -> None:
        bases = [base for base in steps.own.__mro__ if base is not object]
        self._own = {"seamark", *(base.__module__.partition(".")[0] for base in bases)}
        self._calls = re.compile(steps.calls)
        self._at = at
        self._between = between
        self.count = 0
        self.where = _AT_THE_END
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = sys.getprofile()
        sys.setprofile(self._profile)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        caller: FrameType | None
        if event == "c_call":
            caller, package = frame, _package_of(argument)
            is_step = package in _SYSTEM or package not in sys.stdlib_module_names
            called = str(getattr(argument, "__qualname__", argument))
        elif event == "call":
            caller, package = frame.f_back, _package(frame)
            is_step = package not in self._own and package not in sys.stdlib_module_names
            called = frame.f_code.co_qualname
        else:
            return
        if is_step and caller is not None and self._is_own(caller) and self._calls.search(called):
            self.count += 1
            if self.count - 1 == self._at and self._between is not None:
                self.where = f"before {called}, called by {_place(caller)}"
                self._between()

    def _is_own(self, frame: FrameType) -> bool:
        package = _package(frame)
        return package in self._own or package in sys.stdlib_module_names


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _package_of(function: Any) -> str:
    """The package of a function that is not written in Python."""
    owner = getattr(function, "__self__", None)
    if owner is None:
        owner = getattr(function, "__objclass__", function)
    if isinstance(owner, ModuleType):
        name = owner.__name__
    else:
        kind = owner if isinstance(owner, type) else type(owner)
        name = kind.__module__
    return name.partition(".")[0]


def _place(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__')}:{frame.f_lineno}"
