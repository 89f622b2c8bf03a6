"""One epoch while it runs, what identifies it, and the history of epochs that it continues.

Tests: ``tests/pipeline/test_epoch_plan.py``.
"""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.settings import OnStep, Step
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.telemetry.tracing import OpenSpan
from seamark.sinks.contract import Epoch
from seamark.spark.batch_log import OffsetLogEntry, Plan
from seamark.spark.kafka.lag import unread_positions
from seamark.spark.kafka.positions import Offsets

_ATTEMPT: Final = re.compile(
    r"g([0-9]{1,19})-(?:([0-9a-f]{8})-)?"
)  # earlier versions name no timeline


class Interrupted(Exception):
    """The query has to stop before this batch. Not a failure."""


class PlanDiffers(Interrupted):
    """Spark planned other rows for a batch than a sink shows for it already."""

    def __init__(self, batch: int) -> None:
        super().__init__(f"batch {batch} has to run on the rows that it was planned for before")
        self.batch = batch


@dataclass
class EpochHistory:
    """Where the history of epochs stands."""

    timeline: str
    generation: int
    next_id: int
    newest: CheckpointManifest | None = None
    first_batch: int = 0
    """The first batch of an empty history; more than 0 for an adopted query."""
    links: int = 0
    """How many checkpoints the newest one builds on."""
    full_bytes: int = 0
    plans: dict[int, Plan] = field(default_factory=dict)
    """Batches that have to run on a plan that was made before."""
    ahead: dict[str, int] = field(default_factory=dict)
    """Sinks that show later epochs than the newest checkpoint, and up to which."""
    late_read_points: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By epoch: what to read to see it, where its checkpoint could not be updated with it."""
    late_topics: dict[str, dict[str, str]] = field(default_factory=dict)
    """By source of Kafka's: the ids of topics that came after the start."""
    planned_again: set[int] = field(default_factory=set)
    """Batches for which the query was started again on the plan that was made before."""
    planned_before: int = -1
    """The newest batch whose plan was there when the query was started."""

    @property
    def decided_batch(self) -> int:
        """The newest batch that is decided; one less than the first batch when none is."""
        return self.first_batch - 1 if self.newest is None else self.newest.batch

    @property
    def first_unplanned(self) -> int:
        """The first epoch after the newest checkpoint that does not have to run on a known plan."""
        batch = self.decided_batch + 1
        while batch in self.plans:
            batch += 1
        return batch + 1


def fingerprint(timeline: str, lines: Iterable[str], sources: dict[str, str]) -> str:
    """Distinguishes two plans of one epoch: same rows, same fingerprint.

    The rest of the offset log's entry is left out: it holds the time of planning.
    """
    digest = hashlib.sha256(timeline.encode())
    for line in lines:
        digest.update(b"\n" + line.encode())
    for path in sorted(sources):
        digest.update(b"\x00" + path.encode() + b"\n" + sources[path].encode())
    return digest.hexdigest()


def new_attempt(generation: int, timeline: str) -> str:
    """A token for one try of one epoch by one writer."""
    return f"g{generation:04}-{_mark(timeline)}-{uuid.uuid4().hex[:12]}"


def _mark(timeline: str) -> str:
    return hashlib.sha256(timeline.encode()).hexdigest()[:8]


def is_from_earlier(attempt: str, generation: int) -> bool:
    """Whether an attempt was made by a writer of an earlier generation."""
    match = _ATTEMPT.match(attempt)
    return match is not None and int(match[1]) < generation


def is_of_others(attempt: str, timelines: Iterable[str]) -> bool:
    """Whether an attempt was made in none of these timelines, so for another store."""
    match = _ATTEMPT.match(attempt)
    mark = match[2] if match is not None else None
    return mark is not None and mark not in {_mark(timeline) for timeline in timelines}


def lines_by_source(leaves: Sequence[str], lines: Sequence[str]) -> dict[str, list[str]]:
    """The lines of the offset log that belong to each source, without repetition."""
    by_source: dict[str, list[str]] = {}
    for name, line in zip(leaves, lines, strict=True):
        own_lines = by_source.setdefault(name, [])
        if line not in own_lines:
            own_lines.append(line)  # a source that feeds several outputs has the same line for each
    return by_source


def source_positions(leaves: Sequence[str], lines: Sequence[str]) -> dict[str, bytes]:
    """How far each source has been read, verbatim, as a progress store keeps it."""
    by_source = lines_by_source(leaves, lines)
    return {name: "\n".join(own_lines).encode() for name, own_lines in by_source.items()}


@dataclass(kw_only=True)
class RunningEpoch:
    """One try of one epoch: its identity, and how long each step took."""

    identity: PipelineIdentity
    timeline: str
    batch: int
    entry: OffsetLogEntry
    plan: Plan
    attempt: str
    latest: Mapping[str, str] = field(default_factory=dict)
    """By source of Kafka's: the newest offsets that it had when the epoch was planned."""
    started: float = field(default_factory=time.perf_counter)
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The epoch: batches count from 0, epochs from 1."""
        return self.batch + 1

    @property
    def fingerprint(self) -> str:
        """See :func:`fingerprint`."""
        return fingerprint(self.timeline, self.entry.lines, self.plan.sources)

    @property
    def positions(self) -> dict[str, bytes]:
        """How far each source has been read when the epoch is done."""
        return source_positions(self.identity.leaves, self.entry.lines)

    @property
    def unread(self) -> dict[str, Offsets]:
        """By source of Kafka's: the rows that come after the epoch and were there already."""
        return unread_positions(self.positions, self.latest)

    @property
    def watermark_ms(self) -> int | None:
        """The watermark that the epoch runs with; None for a pipeline without one."""
        return self.entry.watermark_ms if self.identity.watermarks else None

    def for_sink(self, sink: str) -> Epoch:
        """The epoch as a sink gets it."""
        return Epoch(
            self.identity.name,
            self.identity.name_at_target(sink),
            self.timeline,
            self.number,
            self.fingerprint,
            self.plan,
            self.watermark_ms,
            self.positions,
            self.identity.config_hash,
        )

    def names_for(self, sink: str) -> dict[str, Any]:
        """What a committable of a sink may say about itself."""
        return {
            "pipeline": self.identity.name,
            "sink": self.identity.name_at_target(sink),
            "timeline": self.timeline,
            "epoch": self.number,
            "fingerprint": self.fingerprint,
            "attempt": self.attempt,
        }

    @contextmanager
    def step(
        self, step: Step, on_step: OnStep | None, open_span: Callable[[str, float], OpenSpan]
    ) -> Iterator[None]:
        """Measure a step in a span of its own, and call ``on_step`` before and after it."""
        if on_step is not None:
            on_step(step, "before", self.number)
        began = time.perf_counter()
        with open_span(step.value, began) as span:
            yield
            self.phases[step.value] = took = time.perf_counter() - began
            span.took(took)
        if on_step is not None:
            on_step(step, "after", self.number)
