"""Everything about a pipeline that can be set and has a good default.

Tests: ``tests/pipeline/test_pipeline.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, TypeVar, get_args

from seamark._common.checks import U64_MAX, check_duration, check_number
from seamark.capture.checkpoint_contents import Sizes
from seamark.errors import InvalidInputError
from seamark.pipeline.declaration.upgrade_plan import UpgradeOptions
from seamark.spark.kafka.gaps import check_anchors
from seamark.spark.source_gaps import Anchor

T = TypeVar("T")
Policy = Literal["strict", "warn", "auto_reset", "evolve"]


class Step(StrEnum):
    """The eight steps of an epoch, in their order."""

    BEGIN = "begin"
    WRITE = "write"
    PREPARE = "prepare"
    CAPTURE = "capture"
    SAVE = "save"
    COMMIT = "commit"
    RECORD = "record"
    RETAIN = "retain"


OnStep = Callable[[Step, Literal["before", "after"], int], None]
"""Called around each step with the epoch: for tests that crash there, and for tracing."""

DEFAULT_TIMEOUTS: Final[Mapping[Step, float]] = {
    Step.PREPARE: 600.0,
    Step.COMMIT: 600.0,
}


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """How a pipeline runs. None of this is part of what it computes."""

    policy: Policy = "strict"
    """What a start does when the pipeline has changed: refuse, go on with a warning, start over, or
    rearrange the state so that what stayed the same goes on."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """With ``evolve``: outputs that have a new name, old name → new name."""
    begin_empty: Collection[str] = ()
    """With ``evolve``: operators, outputs with all of theirs, or new functions of an aggregation,
    that begin without state although there is some; named as ``Pipeline.check`` shows them."""
    keep: int = 20
    """How many valid checkpoints stay; what they build on stays with them."""
    full_every: int = 10
    """After this many checkpoints one has the whole index of its files, and builds on no other."""
    background_rate: int = 64 << 20
    """Bytes a second at which snapshots that Spark has made are stored between epochs."""
    scrub_every: float | None = 86_400.0
    """Seconds in which each stored object is read again to find damage, in the background; with
    None they are not."""
    finish_timeout: float = 30.0
    """How long the end of a run waits until Spark's newest snapshots are stored; with 0 not at
    all."""
    sizes: Sizes = field(default_factory=Sizes)
    size_cap: int | None = None
    """The largest checkpoint that is saved, in bytes; from 80 % on there is a warning."""
    stop_timeout: float = 30.0
    """How long a stop waits for the running epoch."""
    store_timeout: float = 60.0
    """How long a store that does not answer, or a full disk, is tried again."""
    source_timeout: float = 15.0
    """How long a source that does not answer (Kafka, a table) is waited for: before the start and,
    once Spark has given up, during the run. With 0 none is looked at, and none waited for."""
    adopt_begun: Literal["run"] | None = None
    """What becomes of a batch that an adopted query has begun and not finished: the pipeline runs
    it, or refuses to start where a sink may have its rows."""
    reanchor: Mapping[str, Anchor] = field(default_factory=dict)
    """Where sources go on whose position is gone: 'earliest', 'latest', offsets, or the version or
    snapshot of a table, by name."""
    consumer_group: str | None = None
    """Kafka's consumer group in which the positions of each finished epoch are stored, for its own
    tools to see; with None in none. No start reads them."""
    step_timeouts: Mapping[Step, float] = field(default_factory=lambda: dict(DEFAULT_TIMEOUTS))
    commit_tries: int = 3
    coalesce: int | Literal["auto"] | None = "auto"
    """Partitions of the rows before they are staged; 'auto' is the cores, in local mode only."""
    fast_file_manager: bool = True
    """Spark's FileSystem-based checkpoint files on a local working copy."""
    share_state: bool = True
    """Whether outputs that are built on one stateful DataFrame share its state."""
    capture: Literal["auto", "driver", "executors"] = "auto"
    digests: bool = True
    """Whether each epoch records how many rows every output has, and a digest of which."""
    on_step: OnStep | None = None

    def __post_init__(self) -> None:
        check_number("keep", self.keep, 1, U64_MAX)
        check_number("full_every", self.full_every, 1, 1000)
        check_number("background_rate", self.background_rate, 1 << 10, U64_MAX)
        check_number("commit_tries", self.commit_tries, 1, 1000)
        if self.scrub_every is not None:
            check_duration("scrub_every", self.scrub_every)
        check_duration("finish_timeout", self.finish_timeout)
        check_duration("stop_timeout", self.stop_timeout)
        check_duration("store_timeout", self.store_timeout)
        check_duration("source_timeout", self.source_timeout)
        check_anchors(self.reanchor)
        if self.consumer_group is not None and not self.consumer_group.strip():
            raise InvalidInputError("consumer_group is the name of a group, and not empty")
        if self.policy not in get_args(Policy):
            raise InvalidInputError(
                f"policy must be one of {', '.join(get_args(Policy))}, not {self.policy!r}"
            )
        if self.adopt_begun not in (None, "run"):
            raise InvalidInputError(f"adopt_begun must be 'run' or None, not {self.adopt_begun!r}")
        if (self.renames or self.begin_empty) and self.policy != "evolve":
            raise InvalidInputError(
                "renames and begin_empty say how a changed pipeline goes on",
                hint="They go with policy='evolve'.",
            )
        if isinstance(self.begin_empty, str):
            raise InvalidInputError(f"begin_empty is a list of names: [{self.begin_empty!r}]")
        if self.coalesce is not None and self.coalesce != "auto":
            check_number("coalesce", self.coalesce, 1, 1 << 20)
        if self.capture not in ("auto", "driver", "executors"):
            raise InvalidInputError(
                f"capture must be 'auto', 'driver' or 'executors', not {self.capture!r}"
            )

    @property
    def upgrade(self) -> UpgradeOptions:
        """What is said about a change of the pipeline."""
        return UpgradeOptions(self.renames, self.begin_empty)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where a run keeps its files and whom it reports to, as given to :class:`seamark.Pipeline`."""

    working_copy: str | os.PathLike[str] | None = None
    adopt: str | None = None
    adopt_as: str | None = None
    progress: str | None = "auto"
    metrics: Any = None
    tracer_provider: Any = None
    ui: int | str | None = None

    def adopted_output(self, outputs: Mapping[str, T], settings: PipelineSettings) -> T | None:
        """The output that an adopted query has become, one of several; None when it is all."""
        if self.adopt_as is None:
            return None
        if self.adopt is None or settings.policy != "evolve":
            raise InvalidInputError(
                "adopt_as= says which output an adopted query has become",
                hint="It goes with adopt= and policy='evolve'.",
            )
        if self.adopt_as not in outputs:
            raise InvalidInputError(
                f"adopt_as= names {self.adopt_as!r}, and the pipeline has no such output",
                hint=f"It has: {', '.join(sorted(outputs))}.",
            )
        return outputs[self.adopt_as]
