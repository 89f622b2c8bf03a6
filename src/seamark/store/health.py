"""Whether a store can be relied on: what was looked at, what was found, what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from seamark.errors import DamageError, RefusedError, SeamarkError, StoreUnavailableError

Verdict = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""
    exit_code: int = 0
    """What a command answers when this has failed."""


def ok(name: str, found: str) -> Check:
    """It is as it should be."""
    return Check(name, "ok", found)


def warning(name: str, found: str, advice: str) -> Check:
    """It works, but not always or not well."""
    return Check(name, "warning", found, advice)


def failed(name: str, error: SeamarkError) -> Check:
    """It does not work; the error says why."""
    where = f" ({error.where})" if error.where and error.where not in error.what else ""
    return Check(name, "failed", f"{error.what}{where}", error.hint or "", error.exit_code)


def tried(name: str, look: Callable[[], Check]) -> Check:
    """What a look gives, or why it could not be had."""
    try:
        return look()
    except SeamarkError as error:
        return failed(name, error)
    except OSError as error:
        told = StoreUnavailableError(f"{error.strerror or error}")
        return failed(name, told)


def exit_code_of(checks: Iterable[Check]) -> int:
    """What a command answers: 0 when nothing failed; damage counts most."""
    codes = {check.exit_code for check in checks if check.verdict == "failed"}
    for first in (DamageError.exit_code, RefusedError.exit_code, StoreUnavailableError.exit_code):
        if first in codes:
            return first
    return max(codes, default=0)
