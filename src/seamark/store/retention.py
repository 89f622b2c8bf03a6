"""Which checkpoints to keep: a pure decision over what is known of each, with a reason for each.

Tests: ``tests/store/test_conformance.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from seamark._common.checks import check_duration
from seamark.errors import InvalidInputError
from seamark.state import CheckpointId


@dataclass(frozen=True)
class Retention:
    """Keep the newest ``last`` valid checkpoints, all of the past ``within`` seconds, or both."""

    last: int | None = None
    within: float | timedelta | None = None

    def __post_init__(self) -> None:
        if self.last is None and self.within is None:
            raise InvalidInputError("a retention rule needs a number or a time span")
        if self.last is not None and (self.last.__class__ is not int or self.last < 1):
            raise InvalidInputError(
                f"at least one checkpoint must be kept, not {self.last!r}",
                hint="To remove a whole store, delete its directory or prefix.",
            )
        if self.within is not None:
            check_duration("the time span to keep", self.within)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What retention needs to know about one checkpoint."""

    checkpoint_id: int
    valid: bool
    timestamp_ms: int = 0
    parent_id: int | None = None
    superseded: bool = False
    state: CheckpointId | None = None
    """Its partitioned state, which goes with it."""
    objects: frozenset[str] = frozenset()
    """Shared objects that it names."""


@dataclass(frozen=True)
class Verdict:
    """Keep it or remove it, and the rule that said so."""

    checkpoint_id: int
    keep: bool
    reason: str


def plan_retention(
    candidates: Sequence[Candidate],
    rule: Retention,
    *,
    pins: Mapping[int, Collection[str]],
    now_ms: int,
) -> list[Verdict]:
    """A verdict per checkpoint, newest first.

    Damaged and superseded checkpoints do not count toward the number to keep. Nothing is removed
    that is newer than the oldest one kept by number, nor anything that a kept one refers to.
    With no valid checkpoint at all, everything is kept: there is nothing to fall back on.
    """
    ordered = sorted(candidates, key=lambda c: c.checkpoint_id, reverse=True)
    usable = [c for c in ordered if c.valid and not c.superseded]
    if not usable:
        return [Verdict(c.checkpoint_id, True, "nothing valid is newer") for c in ordered]

    reasons: dict[int, str] = {}
    for c in ordered:
        if names := pins.get(c.checkpoint_id):
            reasons[c.checkpoint_id] = f"pinned: {', '.join(sorted(names))}"
    if rule.within is not None:
        span = check_duration("the time span to keep", rule.within)
        for c in ordered:
            if c.timestamp_ms >= now_ms - int(span * 1000):
                reasons.setdefault(c.checkpoint_id, f"younger than {span:g} s")
    for place, c in enumerate(usable[: rule.last or 1], 1):
        reasons.setdefault(c.checkpoint_id, "newest valid" if place == 1 else f"valid no. {place}")

    oldest_by_number = usable[: rule.last or 1][-1].checkpoint_id
    for c in ordered:
        if c.checkpoint_id > oldest_by_number and not (c.valid and not c.superseded):
            what = "superseded" if c.superseded else "damaged"
            reasons.setdefault(c.checkpoint_id, f"{what}, but newer than one that is kept")

    _keep_parents(ordered, reasons)
    return [
        Verdict(c.checkpoint_id, c.checkpoint_id in reasons, _reason(c, reasons)) for c in ordered
    ]


def _keep_parents(ordered: Sequence[Candidate], reasons: dict[int, str]) -> None:
    by_id = {c.checkpoint_id: c for c in ordered}
    followed: set[int] = set()
    for c in ordered:
        if c.checkpoint_id not in reasons:
            continue
        child, parent = c.checkpoint_id, c.parent_id
        while parent is not None and parent in by_id and parent < child and child not in followed:
            followed.add(child)  # what it builds on is kept from here on
            reasons.setdefault(parent, f"needed by {c.checkpoint_id}")
            child, parent = parent, by_id[parent].parent_id


def _reason(candidate: Candidate, reasons: Mapping[int, str]) -> str:
    if kept := reasons.get(candidate.checkpoint_id):
        return kept
    if not candidate.valid:
        return "damaged"
    return "superseded" if candidate.superseded else "older than what is kept"
