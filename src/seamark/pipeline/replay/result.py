"""What a replay has found: the rows of each output, and how they compare with the recorded ones.

Tests: ``tests/pipeline/test_replay.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from seamark._common.text import columns_text
from seamark.capture.state_comparison import StateComparison
from seamark.spark.row_digests import RowDigest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Agreement(StrEnum):
    """How the rows of an output compare with those that the epoch wrote."""

    EQUAL = "equal"
    DIFFERS = "differs"
    NOT_COMPARED = "not compared"
    """There is no digest of it."""


@dataclass(frozen=True, kw_only=True)
class OutputComparison:
    """One output of a replayed epoch."""

    recorded: RowDigest | None
    """What the epoch wrote, by its checkpoint; None when that does not say."""
    replayed: RowDigest | None
    """What it writes now; None for columns that have no digest."""
    reasons: tuple[str, ...] = ()
    """What may explain a difference, the most likely first; or why nothing was compared."""

    @property
    def agreement(self) -> Agreement:
        """Equal means: the same rows, each as often."""
        if self.recorded is None or self.replayed is None:
            return Agreement.NOT_COMPARED
        return Agreement.EQUAL if self.recorded == self.replayed else Agreement.DIFFERS


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One epoch that was run again; from :meth:`seamark.Pipeline.replay`.

    Its rows are kept by Spark, in memory and on the local disks of its executors, for as long as
    anything refers to this object or one of its DataFrames, or until :meth:`close`.
    """

    epoch: int
    checkpoint_id: int
    """The checkpoint that decided the epoch."""
    outputs: Mapping[str, DataFrame]
    """By output: the rows that the epoch writes, as DataFrames of the pipeline's session."""
    comparisons: Mapping[str, OutputComparison]
    state: StateComparison
    """How the state that the epoch leaves compares with that in the checkpoint."""
    changes: tuple[str, ...] = ()
    """How the pipeline differs from the one that ran the epoch, as far as checkpoints record it."""
    notes: tuple[str, ...] = ()
    """What else is different from the time when the epoch ran: files gone, a watermark."""
    release: Callable[[], None] = field(default=lambda: None, repr=False)

    @property
    def is_equal(self) -> bool | None:
        """Whether the rows are those of the epoch; None when nothing could be compared.

        State is told apart: a join numbers the rows of a key in the order in which they come, which
        need not be the same every time, and its rows are equal all the same.
        """
        found = [comparison.agreement for comparison in self.comparisons.values()]
        if Agreement.DIFFERS in found:
            return False
        return True if Agreement.EQUAL in found else None

    def __str__(self) -> str:
        return columns_text([("OUTPUT", "ROWS", "RECORDED", "RESULT", "WHY"), *self._rows()])

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [
            (
                name,
                _rows_text(each.replayed),
                _rows_text(each.recorded),
                each.agreement.value,
                "; ".join(each.reasons),
            )
            for name, each in self.comparisons.items()
        ]
        if self.state.differing:
            rows.append(("(state)", "", "", Agreement.DIFFERS.value, state_text(self.state)))
        return rows

    def close(self) -> None:
        """Have Spark drop the rows. The DataFrames cannot be read any more."""
        self.release()

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _rows_text(digest: RowDigest | None) -> str:
    return "–" if digest is None else str(digest.rows)


def state_text(state: StateComparison) -> str:
    """What differs in the state, in words."""
    files = state.differing
    more = f" and {len(files) - 2} more" if files[2:] else ""
    return f"other changes in {', '.join(files[:2])}{more}"
