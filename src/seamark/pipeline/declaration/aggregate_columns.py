"""Aggregations that go on with other functions: which part of the state each column has. Pure.

The value of a group in the state is a row: what each function keeps, one function after the other.
What a function keeps can be carried over into a row with other functions beside it. One that is new
begins with what Spark itself gives a group without rows.

Tests: ``tests/pipeline/test_aggregate_columns.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

from seamark.errors import RefusedError
from seamark.spark.plans.function_order import FUNCTIONS, ORDER, kept_functions

_MOST: Final = 40
"""Functions of an operator that are recorded one by one."""


class Column(NamedTuple):
    """A column of the state."""

    name: str
    type: str


@dataclass(frozen=True)
class FunctionsChange:
    """An aggregation whose functions have changed."""

    origin: int
    """The number of the operator in the checkpoint."""
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def gone(self) -> list[str]:
        """Functions that are not computed any more."""
        return [text for text in self.before if text not in self.after]

    @property
    def new(self) -> list[str]:
        """Functions that were not computed before."""
        return [text for text in self.after if text not in self.before]

    @property
    def text(self) -> str:
        """What becomes of the functions, in words."""
        kept = [text for text in self.after if text in self.before]
        texts = [f"{text} begins empty" for text in self.new]
        texts += [f"{text} was removed" for text in self.gone]
        return "; ".join(texts) or f"in another order: {', '.join(kept)}"


def functions_change(
    origin: int, old: Mapping[str, Any], new: Mapping[str, Any]
) -> FunctionsChange | None:
    """What has changed in the functions of an aggregation; None when its rows cannot be rewritten.

    ``old`` and ``new`` describe the operator as :mod:`seamark.spark.plans.computation` does. At
    least one function has to be in both: else there is nothing to carry over. The state of session
    windows has other rows, and of more functions than are recorded one by one it is not known which
    they are.
    """
    before, after = kept_functions(old), kept_functions(new)
    if not _is_order_known(old, new):
        return None
    keys = [*(old.get("keys") or []), *(new.get("keys") or [])]
    is_session = any(isinstance(key, dict) and key.get("window") == "session" for key in keys)
    is_known = max(len(before), len(after)) <= _MOST and not set(before).isdisjoint(after)
    if before == after or is_session or not is_known or new.get("operator") != "aggregation":
        return None
    return FunctionsChange(origin, tuple(map(str, before)), tuple(map(str, after)))


def _is_order_known(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the functions of both are in the order of the state, as far as anybody can tell.

    An earlier Seamark has recorded them as they were declared. Nearly always that is the order.
    """
    if all(ORDER in one or len(one.get(FUNCTIONS) or ()) < 2 for one in (old, new)):
        return True
    orders = [one for one in (old, new) if ORDER in one]
    is_unchanged = old.get(FUNCTIONS) == new.get(FUNCTIONS)
    return not orders or not (
        is_unchanged or any(kept_functions(one) != one[FUNCTIONS] for one in orders)
    )


def column_origins(
    change: FunctionsChange, had: Sequence[Column], has: Sequence[Sequence[Column]]
) -> list[int | None]:
    """For each column of the new state: the column of the old one that it has, None for a new one.

    ``had`` are the columns of the state, ``has`` those of each function of now.
    :class:`RefusedError` when it is not certain which columns belong to which function.
    """
    if len(has) != len(change.after):
        raise _uncertain(change, f"Spark computes {len(has)} functions")
    of_function = dict(zip(change.after, has, strict=True))
    places = _places(change, [len(of_function.get(text, ())) for text in change.before], len(had))
    origins: list[int | None] = []
    for text, columns in of_function.items():
        if text not in places:
            origins += [None] * len(columns)
            continue
        first = places[text]
        if list(had[first : first + len(columns)]) != list(columns):
            raise _uncertain(change, f"the state has no columns of {text} where they should be")
        origins += range(first, first + len(columns))
    return origins


def _places(change: FunctionsChange, widths: Sequence[int], total: int) -> dict[str, int]:
    """The first column of each function that is kept; the widths of others are not known (0)."""
    runs = [kept for kept, _ in groupby(text in change.after for text in change.before)]
    unknown = total - sum(widths)
    gone = len(change.gone)
    if runs.count(False) > 1:
        raise _uncertain(change, f"{', '.join(change.gone)} are not next to each other")
    if unknown < gone or (unknown > 0 and not gone):
        raise _uncertain(change, f"the state has {total} columns")
    places: dict[str, int] = {}
    at = 0
    was_gone = False
    for text, width in zip(change.before, widths, strict=True):
        if text in change.after:
            places[text] = at
            at += width
        elif not was_gone:
            was_gone = True
            at += unknown  # all that go, at once
    return places


def _uncertain(change: FunctionsChange, why: str) -> RefusedError:
    return RefusedError(
        "it is not certain which columns of the state belong to which function: " + why,
        where=f"({', '.join(change.before)}) → ({', '.join(change.after)})",
        hint="Remove functions one at a time, with a start after each; or give the changed output "
        "a new name, next to the old one.",
    )
