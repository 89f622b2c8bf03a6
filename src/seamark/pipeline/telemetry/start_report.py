"""What a start found in the store and did about it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from seamark._common.text import seconds_text

WIDTH: Final = 80
_HEADLINE_WIDTH: Final = 60
_LABEL_WIDTH: Final = len("working copy")
TEXT_COLUMN: Final = 2 + _LABEL_WIDTH + 1
"""Where the text starts, after its label."""


@dataclass(frozen=True, kw_only=True)
class StartReport:
    """The outcome of one recovery: which checkpoint was taken and what was done to reach it."""

    seconds: float
    chosen_id: int | None
    """None when no checkpoint was taken."""
    epoch: int | None
    """The last decided epoch, from which the pipeline goes on."""
    fresh_start: bool
    skipped: list[tuple[int, str]] = field(default_factory=list)
    """Newer checkpoints that could not be taken, and why, newest first."""
    verified: str = ""
    """What was compared with the manifest: ``SHA-256, 3 files, 41 KiB``."""
    finished: dict[str, str] = field(default_factory=dict)
    """What each sink needed: ``committed from its committable``, ``already committed``."""
    aborted: list[str] = field(default_factory=list)
    """What was staged and is gone: ``staged epoch 9 of sink large``."""
    working_copy: str = ""
    """What became of it: ``kept, commits/14 written``, ``new``."""
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The report made of JSON values, for logs and programs."""
        return {
            "seconds": round(self.seconds, 6),
            "chosen_id": self.chosen_id,
            "epoch": self.epoch,
            "fresh_start": self.fresh_start,
            "skipped": [{"checkpoint_id": number, "reason": why} for number, why in self.skipped],
            "verified": self.verified,
            "finished": dict(self.finished),
            "aborted": list(self.aborted),
            "working_copy": self.working_copy,
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """The report for people, in 80 columns."""
        took = seconds_text(self.seconds)
        laid_out = ["Recovery" + took.rjust(_HEADLINE_WIDTH - len("Recovery"))]
        for label, entries in self._sections():
            shown = label
            for entry in entries:
                laid_out += _wrapped(shown, entry)
                shown = ""
        return laid_out

    def _sections(self) -> Iterator[tuple[str, list[str]]]:
        """Labels and their entries; empty sections are not printed."""
        yield "skipped", [f"checkpoint {number}: {why}" for number, why in self.skipped]
        yield "chosen", [self._chosen()]
        longest = max(map(len, self.finished), default=0) + 1
        yield (
            "finished",
            [f"sink {f'{sink}:'.ljust(longest)} {what}" for sink, what in self.finished.items()],
        )
        yield "aborted", self.aborted
        yield "working copy", [self.working_copy] if self.working_copy else []
        yield "note", self.notes

    def _chosen(self) -> str:
        if self.fresh_start:
            return "nothing: a fresh start"
        chosen = "no checkpoint" if self.chosen_id is None else f"checkpoint {self.chosen_id}"
        parts = [chosen] if self.epoch is None else [chosen, f"epoch {self.epoch}"]
        if self.verified:
            parts.append(f"verified ({self.verified})")
        return " · ".join(parts)


def _wrapped(label: str, entry: str) -> list[str]:
    """One entry behind its label; what does not fit is wrapped, but never inside a path."""
    start = f"  {label.ljust(_LABEL_WIDTH)} "
    # several lines, as an error's text has, become one; double spaces that align are kept
    text = " ".join(line.strip() for line in entry.splitlines())
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent=" " * TEXT_COLUMN,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [start.rstrip()]
