"""Whether an epoch can run again on a plan that was made for it before.

Tests: ``tests/pipeline/test_epoch_plan.py``, ``tests/pipeline/test_changed_pipelines.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from seamark.errors import LineageError, RefusedError
from seamark.spark.batch_log import Plan, parse_offsets


def require_leaves(plan: Plan, leaves: Sequence[str], epoch: int, where: str) -> None:
    """:class:`RefusedError` for the plan of an epoch whose outputs read other sources.

    A plan that does not say which still says how many.
    """
    lines = len(parse_offsets(plan.offsets).lines)
    if plan.leaves is not msgspec.UNSET:
        require_same_leaves(plan.leaves, leaves, epoch, where)
    elif lines != len(leaves):
        raise _reads_otherwise(f"{lines} times", leaves, epoch, where)


def require_same_leaves(then: Sequence[str], leaves: Sequence[str], epoch: int, where: str) -> None:
    """The same by what the outputs have read ``then``."""
    if [*then] != [*leaves]:
        raise _reads_otherwise(", ".join(then), leaves, epoch, where)


def _reads_otherwise(then: str, leaves: Sequence[str], epoch: int, where: str) -> RefusedError:
    return RefusedError(
        f"epoch {epoch} has to run again, and the outputs read other sources than then, or in "
        "another order",
        where=f"{where}; the outputs have read {then} and now read {', '.join(leaves)}",
        hint=f"Start once with the outputs that there were in epoch {epoch}, then change them.",
    )


def require_follows(plan: Plan, follows: str, epoch: int, where: str) -> None:
    """:class:`LineageError` for a plan of an epoch that came after another one than it does now."""
    if plan.follows not in (msgspec.UNSET, follows):
        raise LineageError(
            f"epoch {epoch} was planned before, after a different epoch {epoch - 1}",
            where=f"{where}: on its plan, rows would be read twice or never",
            hint=f"Take it back from the sinks that show it with unpublish_after({epoch - 1}), or "
            "give these sinks new targets.",
        )
