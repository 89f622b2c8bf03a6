"""Whether a program may resume where it stopped: one pure function from facts to a decision.

Facts are looked at from the top; the first line that holds gives the reason::

    what is found at the start                      strict       warn         auto_reset
    ----------------------------------------------  -----------  -----------  -----------
    the store does not outlive the process          FRESH_START  FRESH_START  FRESH_START
    a source cannot be read again, nothing stored   REFUSE       REFUSE       FRESH_START
    a source cannot be read again                   REFUSE       REFUSE       RESET
    a reset or a first load did not finish          RESET        RESET        RESET
    neither a hash nor a checkpoint                 FRESH_START  FRESH_START  FRESH_START
    the hash of this configuration, no checkpoint   FRESH_START  FRESH_START  FRESH_START
    another configuration, no checkpoint            REFUSE       FRESH_START  RESET
    sources with and sources without a checkpoint,
      or a checkpoint whose source no longer exists REFUSE       REFUSE       RESET
    a checkpoint without a position                 REFUSE       REFUSE       RESET
    a position that the source no longer has        REFUSE       REFUSE       RESET
    checkpoints, no hash, nothing else of these     REFUSE       RESUME       RESET
    another configuration, nothing else of these    REFUSE       RESUME       RESET
    nothing of these                                RESUME       RESUME       RESUME

Resuming is all or nothing: a source that resumes next to one that starts over would mix results of
two histories, and no warning makes those right. After a reset or a first load that did not get
through (``unfinished``) data may be half gone or half there, so there is nothing left to protect,
and every policy does the reset again. A missing hash alone says nothing of that kind: a program
that never stored one has good data, of a configuration that nobody knows. After a reset
(``was_reset``) there is no second one: what would need it is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final

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


_Problem = tuple[Reason, str]
_BEGIN: Final = "Everything is read from the beginning."


def decide_start(facts: StartFacts, policy: Policy | str = Policy.STRICT) -> Decision:
    """What a start may do. The same facts always give the same decision."""
    chosen = as_policy(policy)
    if not facts.persistent:
        message = f"The store does not outlive the process, so nothing is resumed. {_BEGIN}"
        return _decision(facts, Action.FRESH_START, Reason.VOLATILE, message)
    problems = [*_problems(facts)]
    if problems and facts.was_reset:
        return _refuse(problems, "That is after a reset, so another one would not help.")
    if facts.was_reset:
        return _decision(facts, Action.FRESH_START, Reason.AFTER_RESET, _BEGIN)
    if not problems:
        return _go_on(facts)
    reason = problems[0][0]
    if reason is Reason.NOT_REPLAYABLE and chosen is not Policy.AUTO_RESET:
        return _refuse(problems, _NO_REPLAY[chosen])
    grave = [problem for problem in problems if problem[0] not in _BEARABLE]
    action = outcome_of_change(chosen, acceptable=not grave)
    if facts.unfinished or action is Action.RESET:
        return _start_over(problems, facts)
    if action is Action.RESUME:
        return _in_spite_of(problems, facts)
    if chosen is Policy.STRICT:
        return _refuse(problems, _ACCEPT if reason is Reason.CONFIG_UNKNOWN else _STRICT)
    return _refuse(grave, "A warning is not enough: " + _GRAVE)


def outcome_of_change(policy: Policy, *, acceptable: bool) -> Action:
    """What a policy makes of a change since the last start, here and for a pipeline's store.

    ``acceptable`` says that results stay right, or can be told apart, when the program goes on.
    """
    if policy is Policy.AUTO_RESET:
        return Action.RESET
    return Action.RESUME if policy is Policy.WARN and acceptable else Action.REFUSE


def as_policy(policy: Policy | str) -> Policy:
    """A policy by its name; :class:`InvalidInputError` when there is none."""
    try:
        return Policy(policy)
    except ValueError:
        names = ", ".join(policy.value for policy in Policy)
        raise InvalidInputError(f"{policy!r} is no policy; there are {names}") from None


# the four kinds of decision


def _start_over(problems: list[_Problem], facts: StartFacts) -> Decision:
    if facts.unfinished or facts.stored_hash is not None or _has_checkpoints(facts):
        return _decision(facts, Action.RESET, problems[0][0], f"{_said(problems)} {_BEGIN}")
    message = f"{_said(problems)} So this and every later start starts over."
    return _decision(facts, Action.FRESH_START, problems[0][0], message)


def _go_on(facts: StartFacts) -> Decision:
    if facts.stored_hash is None:
        message = f"Nothing is stored yet. {_BEGIN}"
        return _decision(facts, Action.FRESH_START, Reason.FIRST_START, message)
    if not _has_checkpoints(facts):
        message = f"Nothing has been read under this configuration yet. {_BEGIN}"
        return _decision(facts, Action.FRESH_START, Reason.NOTHING_READ, message)
    return _decision(
        facts, Action.RESUME, Reason.UNCHANGED, "Every source goes on from its checkpoint."
    )


def _in_spite_of(problems: list[_Problem], facts: StartFacts) -> Decision:
    """Under ``warn``, with another or an unknown configuration and nothing else that is wrong."""
    reason = problems[0][0]
    if not _has_checkpoints(facts):
        message = f"{_said(problems)} Nothing has been read under either. {_BEGIN}"
        return _decision(facts, Action.FRESH_START, reason, message)
    message = (
        f"{_said(problems)} Every source resumes from its checkpoint all the same: what was made "
        "before stays as the configuration of then made it."
    )
    return _decision(facts, Action.RESUME, reason, message)


def _refuse(problems: list[_Problem], why: str) -> Decision:
    return Decision(Action.REFUSE, problems[0][0], f"{_said(problems)} {why}")


def _decision(facts: StartFacts, action: Action, reason: Reason, message: str) -> Decision:
    """Nothing that was stored counts unless it resumes, except what a load of this start stored."""
    counted = facts.sources if facts.was_reset or action is Action.RESUME else {}
    positions = {n: counted[n].position if n in counted else None for n in sorted(facts.sources)}
    sequences = {n: c.sequence for n in sorted(counted) if (c := counted[n].checkpoint) is not None}
    return Decision(action, reason, message, positions, sequences)


# what prevents resuming


def _problems(facts: StartFacts) -> Iterator[_Problem]:
    """Everything that prevents resuming, most serious first."""
    fixed = [name for name, source in facts.sources.items() if not source.replayable]
    if fixed and not facts.was_reset:
        yield Reason.NOT_REPLAYABLE, f"{named(fixed)} cannot be read again from a position."
    if facts.unfinished:
        yield Reason.UNFINISHED, _HALF
        return  # nothing that is stored counts
    if facts.stored_hash is None and not _has_checkpoints(facts) and not facts.was_reset:
        return
    again = {name: source for name, source in facts.sources.items() if source.replayable}
    missing = [name for name, source in again.items() if source.checkpoint is None]
    if facts.known or 0 < len(missing) < len(again):
        yield Reason.SOURCES_DIFFER, _difference(missing, facts.known)
    with_one = {name: source for name, source in again.items() if source.checkpoint is not None}
    if bare := [name for name, source in with_one.items() if source.position is None]:
        yield Reason.POSITION_MISSING, f"{named(bare)} has a checkpoint without a position."
    if gone := [name for name, source in with_one.items() if source.is_available is False]:
        yield Reason.POSITION_GONE, f"{named(gone)} no longer has what comes after its position."
    if facts.stored_hash is None:
        yield Reason.CONFIG_UNKNOWN, _UNKNOWN
    elif facts.stored_hash != facts.current_hash:
        yield Reason.CONFIG_CHANGED, "The configuration is not the one that was stored."


def _difference(missing: list[str], known: frozenset[str]) -> str:
    parts = []
    if missing:
        parts.append(f"{named(missing)} has no checkpoint.")
    if known:
        parts.append(f"{named(known)} has a checkpoint, but is not a source any more.")
    return " ".join(parts)


def _has_checkpoints(facts: StartFacts) -> bool:
    return bool(facts.known) or any(source.checkpoint for source in facts.sources.values())


def _said(problems: list[_Problem]) -> str:
    return " ".join(message for _, message in problems)


_BEARABLE: Final = {Reason.CONFIG_CHANGED, Reason.CONFIG_UNKNOWN}
_HALF: Final = "A reset or a first load did not finish, so data may be half gone or half there."
_UNKNOWN: Final = (
    "No hash of a configuration was ever stored, so nobody knows whether it was this one."
)
_STRICT: Final = "The policy 'strict' changes nothing by itself."
_ACCEPT: Final = (
    f"{_STRICT} Accept what is there with store.write_config_hash(…), or start over on purpose."
)
_GRAVE: Final = (
    "some sources would resume and others start over, or leave something out, and the results "
    "would belong to no history at all. Reset, or bring the source's past back."
)
_NO_REPLAY: Final = {
    Policy.STRICT: "What comes while the program is down would be missing from data that is kept. "
    "Keep progress in memory, or put a source in its place that can be read again.",
    Policy.WARN: "A warning is not enough: what comes while the program is down would be missing "
    "from data that is kept, at every start. Keep progress in memory, or let the policy "
    "'auto_reset' start over each time.",
}
