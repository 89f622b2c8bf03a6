"""What a start finds, and what it may decide: the vocabulary of :mod:`seamark.progress.policy`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from seamark.errors import InvalidInputError
from seamark.progress.checkpoints import SourceCheckpoint


class Policy(StrEnum):
    """What to do when a program cannot simply resume."""

    STRICT = "strict"
    """Refuse, and change nothing."""
    WARN = "warn"
    """Resume with another or an unknown configuration, with a warning; refuse everything else."""
    AUTO_RESET = "auto_reset"
    """Throw away what there is, and start over."""


class Action(Enum):
    """What a start does."""

    FRESH_START = "fresh_start"
    RESUME = "resume"
    RESET = "reset"
    REFUSE = "refuse"


class Reason(StrEnum):
    """Why it does that: stable, for programs and metrics."""

    VOLATILE = "volatile"
    FIRST_START = "first_start"
    NOTHING_READ = "nothing_read"
    UNCHANGED = "unchanged"
    AFTER_RESET = "after_reset"
    UNFINISHED = "unfinished"
    NOT_REPLAYABLE = "not_replayable"
    CONFIG_CHANGED = "config_changed"
    CONFIG_UNKNOWN = "config_unknown"
    SOURCES_DIFFER = "sources_differ"
    POSITION_MISSING = "position_missing"
    POSITION_GONE = "position_gone"


@dataclass(frozen=True)
class SourceFacts:
    """What is known about one source when a program starts."""

    replayable: bool
    checkpoint: SourceCheckpoint | None = None
    is_available: bool | None = None
    """Whether the source still has what comes after the position; None when it was not asked."""

    @property
    def position(self) -> bytes | None:
        """Where it would resume."""
        return self.checkpoint.source_position if self.checkpoint and self.replayable else None


@dataclass(frozen=True)
class StartFacts:
    """All that the decision depends on."""

    persistent: bool
    stored_hash: int | None
    current_hash: int
    sources: Mapping[str, SourceFacts]
    known: frozenset[str] = frozenset()
    """Sources that have a checkpoint, but that the program does not have any more."""
    was_reset: bool = False
    """Whether this start has already started over."""
    unfinished: bool = False
    """Whether a reset or a first load has begun and did not finish."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise InvalidInputError("a program without sources has nothing to resume")
        if both := self.known & self.sources.keys():
            raise InvalidInputError(f"{named(both)} cannot be known and a source at once")


@dataclass(frozen=True)
class Decision:
    """What to do, why, and from where."""

    action: Action
    reason: Reason
    words: str
    resume_from: Mapping[str, bytes | None] = field(default_factory=dict)
    """For every source the position to resume from; None means from its beginning."""
    sequences: Mapping[str, int] = field(default_factory=dict)
    """The sequence of every source that has been read."""


def named(names: Collection[str]) -> str:
    """Sources at the beginning of a sentence, whose verb is singular either way."""
    listed = ", ".join(repr(name) for name in sorted(names))
    return f"Source {listed}" if len(names) == 1 else f"Each of the sources {listed}"
