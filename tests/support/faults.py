"""Faults to inject below a backend, at its calls of `os`, `fcntl` or `obstore`.

    recording = Recording(faults=[Fault("fail_after", r"^put manifests/")])
    monkeypatch.setattr(object_store, "obstore", recording.wrap(obstore, kind="obstore"))

`fail_before`     nothing happened, and the error says so
`fail_after`      it took effect, and the error says it did not: the time-out of a success
`torn`            a prefix of the bytes was written, then the error
`short_write`     a prefix of the bytes was written, and the call says how much
`bit_flip`        one bit of what was read is wrong
`stale_listing`   a listing that lags behind what was written
`disk_full`       whatever needs space is refused
`slow`            it takes `seconds` longer

A fault waits for a call that it can spoil: `torn` for one that writes bytes, `bit_flip` for one
that returned some, `stale_listing` for a listing, `disk_full` for one that needs space.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tests.support.recording import Call

FaultKind = Literal[
    "fail_before",
    "fail_after",
    "torn",
    "short_write",
    "bit_flip",
    "stale_listing",
    "disk_full",
    "slow",
]
# Which argument of a call holds the bytes that it writes.
PAYLOADS = {"write": 1, "writev": 1, "pwrite": 1, "pwritev": 1, "put": 2, "open_writer.write": 0}
LISTINGS = frozenset({"listdir", "scandir", "list", "list_with_delimiter"})


@dataclass(frozen=True)
class Fault:
    """One rule: which calls go wrong, how, and how often.

    `match` is a regular expression searched in `str(call)` (`"write /store/x.tmp <12 bytes>"`), or
    a function of the call. The first `skip` calls that it could spoil pass; the next `count` do
    not (None: all of them). `error` is what is raised, an exception or a function that makes one;
    by default `OSError` (EIO, or ENOSPC for `disk_full`), with obstore its `GenericError`.
    """

    kind: FaultKind
    match: str | re.Pattern[str] | Callable[[Call], bool] = ""
    count: int | None = 1
    skip: int = 0
    error: BaseException | Callable[[], BaseException] | None = None
    keep: float = 0.5
    """torn, short_write: the part of the bytes that is written."""
    bit: int | None = None
    """bit_flip: which bit of the bytes read (modulo their number); by default one in the middle."""
    behind: int | None = None
    """stale_listing: hide entries made by the last `behind` calls; None: the previous listing."""
    seconds: float = 0.05

    def concerns(self, call: Call) -> bool:
        """Whether the rule is about this call, and the call is of a sort that it can spoil."""
        if self.kind == "torn" and not call.writes:
            return False
        if self.kind == "short_write" and (not call.writes or call.name == "put"):
            return False
        if self.kind == "stale_listing" and call.name not in LISTINGS:
            return False
        if self.kind == "disk_full" and not call.needs_space:
            return False
        if callable(self.match):
            return self.match(call)
        return re.search(self.match, str(call)) is not None

    def to_raise(self, module_kind: str) -> BaseException:
        """The error that this fault answers with."""
        if isinstance(self.error, BaseException):
            return self.error
        if self.error is not None:
            return self.error()
        code = errno.ENOSPC if self.kind == "disk_full" else errno.EIO
        if module_kind == "os":
            return OSError(code, os.strerror(code))
        from obstore.exceptions import GenericError

        return GenericError(f"injected by a test: {os.strerror(code)}")


def with_prefix_only(name: str, args: tuple[Any, ...], keep: float) -> tuple[Any, ...]:
    """The arguments of a writing call, its bytes cut down to a proper prefix."""
    at = PAYLOADS[name]
    data = _joined(args[at])
    prefix = data[: min(int(len(data) * keep), max(0, len(data) - 1))]
    return (*args[:at], [prefix] if name in ("writev", "pwritev") else prefix, *args[at + 1 :])


def _joined(given: Any) -> bytes:
    if hasattr(given, "read"):
        return bytes(given.read())
    if isinstance(given, os.PathLike):
        raise TypeError("a put of a path cannot be torn: hand over the bytes")
    try:
        return bytes(memoryview(given))
    except TypeError:
        return b"".join(bytes(memoryview(piece)) for piece in given)


def returned_bytes(name: str, result: Any) -> bool:
    """Whether a call has read at least one byte."""
    if name in ("readv", "preadv"):  # into the buffers of the caller
        return bool(result)
    if name == "get_ranges":
        return any(len(part) for part in result)
    try:
        return memoryview(result).nbytes > 0
    except TypeError:
        return False


def with_bit_flipped(name: str, args: tuple[Any, ...], result: Any, bit: int | None) -> Any:
    """What a call has read, with one bit changed."""
    if name in ("readv", "preadv"):
        views = [memoryview(buffer).cast("B") for buffer in args[1]]
        view = next(view for view in views if len(view))[:result]
        view[:] = _flipped(bytes(view), bit)
        return result
    if name == "get_ranges":
        at = next(index for index, part in enumerate(result) if len(part))
        changed = with_bit_flipped("get_range", args, result[at], bit)
        return [*result[:at], changed, *result[at + 1 :]]
    return type(result)(_flipped(bytes(result), bit))


def _flipped(data: bytes, bit: int | None) -> bytes:
    position = len(data) * 4 if bit is None else bit % (len(data) * 8)
    changed = bytearray(data)
    changed[position // 8] ^= 1 << position % 8
    return bytes(changed)
