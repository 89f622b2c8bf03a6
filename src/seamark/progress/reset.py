"""Starts a program: looks at what is stored, decides, and starts over if that is the decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from seamark._common.logs import logger_named
from seamark.errors import PositionUnavailable, RefusedError
from seamark.progress.checkpoints import check_sequence
from seamark.progress.policy import (
    Action,
    Decision,
    Policy,
    Reason,
    SourceFacts,
    StartFacts,
    as_policy,
    decide_start,
)
from seamark.progress.store import SourceCheckpointStore

log = logger_named("seamark.progress")

RESERVED_SPACE: Final = "seamark"
"""The space of the store that belongs to this package."""
_UNDER_WAY: Final = b"reset"
"""The key in there that is present from the first step of a reset to the last."""
_QUIET: Final = {Reason.VOLATILE, Reason.FIRST_START, Reason.NOTHING_READ, Reason.UNCHANGED}


class StartingSource(Protocol):
    """What a source has to answer before it is read."""

    @property
    def supports_replay(self) -> bool:
        """Whether it can be read again from a position that it gave out earlier."""

    def check_position(self, position: bytes) -> None:
        """:class:`PositionUnavailable` when what comes after the position is gone."""


def start_over(
    store: SourceCheckpointStore,
    config_hash: int,
    *,
    clear_data: Callable[[], None],
    load: Callable[[], None] | None = None,
) -> None:
    """Throw everything away and start over, in an order that can be repeated after a crash.

    A marker is written first. The last step deletes it and writes the new hash together, so any
    start in between sees the marker and does all of it again: also under another policy or
    configuration. It is a key in the space ``seamark``, which has to be left alone.
    ``clear_data`` deletes what was derived, and has to be harmless when there is nothing left.
    ``load`` reads in what there is to begin with, in sessions of the store if it likes.
    :class:`RefusedError` inside a session, and when ``load`` leaves one open.
    """
    check_sequence(config_hash)
    if store.in_session:
        raise RefusedError("a reset cannot be part of a session", hint="Commit or roll back first.")
    with store.session() as session:
        session.put(RESERVED_SPACE, _UNDER_WAY, b"under way")
    store.forget_config_hash()
    clear_data()
    store.clear_checkpoints()
    if load is not None:
        load()
    if store.in_session:
        raise RefusedError(
            "the load has left a session open, so the reset is not finished",
            hint="Commit it in the load. The next start does the reset again.",
        )
    with store.session() as session:
        session.stage_config_hash(config_hash)
        session.delete(RESERVED_SPACE, _UNDER_WAY)


def begin_from(
    store: SourceCheckpointStore,
    config_hash: int,
    sources: Mapping[str, StartingSource],
    policy: Policy | str = Policy.STRICT,
    *,
    clear_data: Callable[[], None],
    load: Callable[[], None] | None = None,
) -> Decision:
    """Find out what a start may do, do it, and return where each source is to be read from.

    A fresh start and a reset both go through :func:`start_over`, and the positions that ``load``
    has staged are the ones to continue from. Raises the :class:`PositionUnavailable` of the source
    whose past is gone, and :class:`RefusedError` for everything else that the policy refuses;
    nothing was changed then, except by a reset before.
    """
    chosen = as_policy(policy)
    decision = _decided(store, config_hash, sources, chosen)
    if decision.reason not in _QUIET:
        log.warning("%s: %s", store.url, decision.words)
    if decision.action is Action.RESUME:
        if decision.reason is not Reason.UNCHANGED:
            store.write_config_hash(config_hash)  # warn only once
        return decision
    start_over(store, config_hash, clear_data=clear_data, load=load)
    after = _decided(store, config_hash, sources, chosen, was_reset=True)
    return replace(decision, resume_from=after.resume_from, sequences=after.sequences)


def _decided(
    store: SourceCheckpointStore,
    config_hash: int,
    sources: Mapping[str, StartingSource],
    policy: Policy,
    *,
    was_reset: bool = False,
) -> Decision:
    """The decision, or what it refuses with."""
    facts, lost = _observed(store, config_hash, sources, was_reset=was_reset)
    decision = decide_start(facts, policy)
    if decision.action is not Action.REFUSE:
        return decision
    if decision.reason is Reason.POSITION_GONE:
        first = lost[min(lost)]
        raise PositionUnavailable(
            decision.words,
            where=first.where or store.url,
            hint=first.hint,
            source=first.source or min(lost),
            requested=first.requested or facts.sources[min(lost)].position,
            earliest=first.earliest,
        ) from first
    raise RefusedError(decision.words, where=store.url, hint=_HINT)


def _observed(
    store: SourceCheckpointStore,
    config_hash: int,
    sources: Mapping[str, StartingSource],
    *,
    was_reset: bool,
) -> tuple[StartFacts, dict[str, PositionUnavailable]]:
    """The facts, and the errors of the sources that no longer have their position."""
    persistent, recorded = store.is_persistent(), store.read_overview()
    stored = recorded.checkpoints
    by_name: dict[str, SourceFacts] = {}
    lost: dict[str, PositionUnavailable] = {}
    for name, source in sources.items():
        facts = SourceFacts(source.supports_replay, stored.get(name))
        if persistent and facts.position is not None:
            try:
                source.check_position(facts.position)
            except PositionUnavailable as error:
                lost[name] = error
            facts = replace(facts, is_available=name not in lost)
        by_name[name] = facts
    facts_of_all = StartFacts(
        persistent=persistent,
        stored_hash=recorded.config_hash,
        current_hash=check_sequence(config_hash),
        sources=by_name,
        known=frozenset(stored) - sources.keys(),
        was_reset=was_reset,
        unfinished=store.get(RESERVED_SPACE, _UNDER_WAY) is not None,
    )
    return facts_of_all, lost


_HINT: Final = (
    "To start over on purpose, use the policy 'auto_reset' or start_over(); what was derived is "
    "deleted and made again."
)
