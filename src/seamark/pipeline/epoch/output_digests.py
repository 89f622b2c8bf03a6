"""How many rows each output of an epoch has, and which: taken while they are staged.

The sink's own action counts and digests the rows on their way, so they are read once. Where that
cannot be relied on, because a sink reads its rows several times or only some of them, an action of
our own reads the persisted batch.

Tests: ``tests/pipeline/test_output_digests.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from seamark._common.logs import logger_named
from seamark.manifest import CheckpointManifest
from seamark.manifest.described import description_of
from seamark.pipeline.declaration.compile import Output
from seamark.spark.observed_digests import DigestObserver, ObservedDigest
from seamark.spark.plans.determinism import unrepeatable_parts
from seamark.spark.plans.plan import analyzed
from seamark.spark.plans.static_tables import place_of
from seamark.spark.plans.trees import each
from seamark.spark.row_digests import (
    FORMULA,
    RowDigest,
    comparable_digests,
    digest_of,
    why_undigestible,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logger_named("seamark.pipeline")


class OutputDigests:
    """The digests of a run's epochs, one epoch after the other."""

    def __init__(self, outputs: Sequence[Output], *, enabled: bool) -> None:
        self._outputs = {output.name: output for output in outputs} if enabled else {}
        for output in outputs if enabled else ():
            if problem := why_undigestible(output.df.schema):
                del self._outputs[output.name]
                log.warning("output %s is not digested: %s", output.name, problem)
        self._observers: dict[str, DigestObserver] = {}
        self._taken: dict[str, RowDigest] = {}
        self._waiting: dict[str, ObservedDigest] = {}
        self.uncertain: frozenset[str] = frozenset()
        """Outputs of the epoch that sinks show as they came out before: now they may be others."""

    def begin(self) -> None:
        """Forget what was taken for the epoch before."""
        self._taken.clear()
        self._waiting.clear()
        self.uncertain = frozenset()

    def is_observable(self, name: str) -> bool:
        """Whether the sink's own action can be relied on, or nothing is digested at all."""
        output = self._outputs.get(name)
        return output is None or (output.sink.consumes_all and self._observer(name).is_possible)

    def observe(self, name: str, rows: DataFrame) -> DataFrame:
        """The rows to stage; the action of a sink that is observable digests them."""
        if name in self._outputs and self.is_observable(name):
            rows, self._waiting[name] = self._observer(name).observe(rows)
        return rows

    def require(self, name: str, rows: Callable[[], DataFrame]) -> None:
        """Be sure of the digest of persisted rows, whether or not the sink has read them once."""
        if name in self._outputs and not self._has_come(name):
            self._taken[name] = digest_of(rows(), self._observer(name).columns)

    def note_shown_before(self, names: Iterable[str]) -> None:
        """Note which outputs sinks show already, from a time whose digests are lost."""
        shown = self._outputs.keys() & {*names}
        self.uncertain = frozenset(n for n in shown if _is_uncertain(self._outputs[n].df))

    def take_again(self, name: str, rows: DataFrame) -> None:
        """Read rows that the sink has had to read twice.

        It has only done so because that writes no state.
        """
        waiting = self._waiting.get(name)
        if waiting is not None and waiting.was_read_twice():
            del self._waiting[name]
            self._taken[name] = digest_of(rows, self._observer(name).columns)

    def _observer(self, name: str) -> DigestObserver:
        """Made once: each piece of it is a call to Spark's JVM."""
        if name not in self._observers:
            rows = self._outputs[name].df
            self._observers[name] = DigestObserver(rows.sparkSession, rows.schema)
        return self._observers[name]

    def results(self) -> dict[str, RowDigest]:
        """The digests of the epoch that was staged last, by output.

        Left out is one whose rows Spark has read again for a lost task: nobody can tell which.
        """
        for name in list(self._waiting):
            if not self._has_come(name):
                log.warning(
                    "rows of output %s were computed again: this epoch has no digest of them", name
                )
        return dict(self._taken)

    def _has_come(self, name: str) -> bool:
        waiting = self._waiting.pop(name, None)
        found = waiting.result() if waiting is not None else None
        if found is not None:
            self._taken[name] = found
        return found is not None


def _is_uncertain(df: DataFrame) -> bool:
    """Whether a second computation may give other rows."""
    plan = analyzed(df)
    tables = (leaf for leaf in each(plan.collectLeaves()) if not leaf.isStreaming())
    return any(map(place_of, tables)) or bool(
        unrepeatable_parts(plan, df.sparkSession.sparkContext._jvm)
    )


def recorded_digests(
    digests: Mapping[str, RowDigest],
    epoch: int,
    structure: Mapping[str, Any],
    parent: CheckpointManifest | None,
    uncertain: Collection[str] = (),
) -> dict[str, Any] | None:
    """The digests as the manifest of an epoch keeps them; None for none.

    Totals go on from those of the parent, unless the output writes other columns now, or elsewhere,
    or another formula has made them. Of the ``uncertain`` ones a sink may show other rows.
    """
    before = {} if parent is None else comparable_digests(parent)
    recorded: dict[str, dict[str, Any]] = {}
    for name, own in digests.items():
        since, total, again = epoch, own, [epoch] if name in uncertain else []
        if (past := before.get(name)) is not None and _goes_on(name, structure, parent):
            since, total = past.since, RowDigest(past.total_rows, past.total_digest) + own
            again = [*past.computed_again, *again]
        recorded[name] = {
            "rows": own.rows,
            "digest": own.digest,
            "since": since,
            "total_rows": total.rows,
            "total_digest": total.digest,
            "formula": FORMULA,
        }
        if again:
            recorded[name]["computed_again"] = again
    return recorded or None


def carried_digests(
    chosen: CheckpointManifest, structure: Mapping[str, Any], sinks: Mapping[str, str]
) -> dict[str, Any] | None:
    """The digests that a first checkpoint of a changed pipeline takes over; None for none.

    ``sinks`` are those that go on at their targets, each with the name that its output had. The
    digests of an output that writes other columns now end here.
    """
    had = chosen.output_digests or {}
    kept = {
        name: msgspec.to_builtins(had[old])
        for name, old in sinks.items()
        if old in had and _goes_on(name, structure, chosen, old)
    }
    return kept or None


def _goes_on(
    name: str,
    structure: Mapping[str, Any],
    parent: CheckpointManifest | None,
    former: str | None = None,
) -> bool:
    before = (description_of(parent, "sinks", former or name) if parent is not None else None) or {}
    now = structure["sinks"][name]
    return all(before.get(key) == now.get(key) for key in ("kind", "target", "columns"))


def rows_by_sink(manifest: CheckpointManifest, sinks: Iterable[str]) -> dict[str, int | None]:
    """How many rows each sink has in the epoch; None where nothing was counted."""
    counted = manifest.output_digests or {}
    return {sink: counted[sink].rows if sink in counted else None for sink in sinks}
