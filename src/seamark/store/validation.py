"""What is known about a checkpoint's integrity, in values that can be shown and tested."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class ValidationIssue:
    """One finding. Only damage makes a checkpoint unusable."""

    severity: Literal["warning", "damage"]
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class ValidationResult:
    """The outcome of checking one checkpoint: valid unless something is proven wrong."""

    checkpoint_id: int
    valid: bool
    issues: list[ValidationIssue] = field(default_factory=list)

    @classmethod
    def of(cls, checkpoint_id: int, damage: list[str], warnings: list[str]) -> ValidationResult:
        """Valid when there is no damage, whatever the warnings."""
        issues = [ValidationIssue("warning", text) for text in warnings]
        issues += [ValidationIssue("damage", text) for text in damage]
        return cls(checkpoint_id, not damage, issues)

    @property
    def damage(self) -> list[str]:
        """What makes it unusable, in words."""
        return [issue.message for issue in self.issues if issue.severity == "damage"]


@dataclass(frozen=True)
class RecoveryReport:
    """The walk from the newest checkpoint down: what was chosen, what was not, and why."""

    chosen_id: int | None
    skipped: list[tuple[int, str]]
    examined: int
    elapsed: float
    fresh_start: bool
    """True only for a store that has never held a checkpoint."""
    warnings: list[str] = field(default_factory=list)
    superseded: frozenset[int] = frozenset()
    """Those of ``skipped`` that a rollback took out of use. All others are damaged or missing."""

    @property
    def broken(self) -> list[tuple[int, str]]:
        """Those of ``skipped`` that should have counted, newest first."""
        return [(number, why) for number, why in self.skipped if number not in self.superseded]

    @property
    def begins_anew(self) -> bool:
        """Whether there is nothing to go on from, and no damage is the reason for that."""
        if self.chosen_id is not None:
            return False
        return self.fresh_start or (bool(self.skipped) and not self.broken)
