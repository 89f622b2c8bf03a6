"""Whether a start may resume: every combination of facts, and what must hold for all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from seamark.errors import InvalidInputError
from seamark.progress import (
    Action,
    Decision,
    Policy,
    Reason,
    SourceCheckpoint,
    SourceFacts,
    StartFacts,
    decide_start,
)

HASH, OTHER = 11, 22


def some_sources() -> Iterator[SourceFacts]:
    """Every state that a source can be in."""
    for replayable in (True, False):
        yield SourceFacts(replayable)
        yield SourceFacts(replayable, SourceCheckpoint(5))
        for is_available in (True, False, None):
            yield SourceFacts(replayable, SourceCheckpoint(7, b"p"), is_available)


def all_facts() -> Iterator[StartFacts]:
    """Every combination of facts about one source and about two."""
    one = [{"a": each} for each in some_sources()]
    two = [{"a": a, "b": b} for a, b in itertools.product(some_sources(), repeat=2)]
    no_or_yes = (False, True)
    for sources, persistent, stored, known, was_reset, unfinished in itertools.product(
        [*one, *two], no_or_yes, (None, HASH, OTHER), (set(), {"old"}), no_or_yes, no_or_yes
    ):
        yield StartFacts(persistent, stored, HASH, sources, frozenset(known), was_reset, unfinished)


EVERY = [(facts, policy) for facts in all_facts() for policy in Policy]


def has_checkpoints(facts: StartFacts) -> bool:
    return bool(facts.known) or any(each.checkpoint for each in facts.sources.values())


def can_go_on(facts: StartFacts) -> bool:
    """Whether every source has a position that it can be read from."""
    return not facts.known and all(
        each.replayable and each.position is not None and each.is_available is not False
        for each in facts.sources.values()
    )


def test_all_combinations_are_looked_at() -> None:
    assert len(EVERY) == (10 + 10 * 10) * 2 * 3 * 2 * 2 * 2 * len(Policy)


def test_nothing_resumes_unless_every_source_has_its_position() -> None:
    for facts, policy in EVERY:
        decision = decide_start(facts, policy)
        if decision.action is Action.RESUME:
            assert facts.persistent
            assert not facts.was_reset
            assert not facts.unfinished
            assert facts.stored_hash == HASH or policy is Policy.WARN
            assert can_go_on(facts)
            assert decision.resume_from == dict.fromkeys(facts.sources, b"p")
            assert decision.sequences == dict.fromkeys(facts.sources, 7)


def test_everything_that_can_go_on_does() -> None:
    for facts, policy in EVERY:
        if facts.persistent and not facts.was_reset and can_go_on(facts):
            may = (facts.stored_hash == HASH or policy is Policy.WARN) and not facts.unfinished
            assert (decide_start(facts, policy).action is Action.RESUME) == may


def test_a_volatile_store_always_starts_fresh() -> None:
    for facts, policy in EVERY:
        if not facts.persistent:
            decision = decide_start(facts, policy)
            assert (decision.action, decision.reason) == (Action.FRESH_START, Reason.VOLATILE)


def test_strict_and_warn_never_reset_except_what_was_not_finished() -> None:
    for facts, policy in EVERY:
        decision = decide_start(facts, policy)
        if decision.action is Action.RESET and policy is not Policy.AUTO_RESET:
            assert decision.reason is Reason.UNFINISHED
            assert facts.unfinished


def test_strict_starts_fresh_only_where_nothing_was_read() -> None:
    for facts, policy in EVERY:
        decision = decide_start(facts, policy)
        if policy is Policy.AUTO_RESET or decision.action is not Action.FRESH_START:
            continue
        if facts.persistent and not facts.was_reset:
            assert not has_checkpoints(facts)
            assert not facts.unfinished


def test_what_was_not_finished_is_done_again_by_every_policy() -> None:
    for facts, policy in EVERY:
        if not facts.unfinished or not facts.persistent or facts.was_reset:
            continue
        decision = decide_start(facts, policy)
        if all(each.replayable for each in facts.sources.values()):
            assert (decision.action, decision.reason) == (Action.RESET, Reason.UNFINISHED)
        else:
            expected = Action.RESET if policy is Policy.AUTO_RESET else Action.REFUSE
            assert (decision.action, decision.reason) == (expected, Reason.NOT_REPLAYABLE)


def test_an_unknown_configuration_beside_checkpoints_is_treated_as_another_one() -> None:
    for facts, policy in EVERY:
        if facts.stored_hash is None and has_checkpoints(facts):
            unknown = decide_start(facts, policy)
            changed = decide_start(replace(facts, stored_hash=OTHER), policy)
            assert unknown.action is changed.action
            assert unknown.resume_from == changed.resume_from
            if unknown.reason is not changed.reason:
                assert unknown.reason is Reason.CONFIG_UNKNOWN
                assert changed.reason is Reason.CONFIG_CHANGED


def test_auto_reset_refuses_only_after_a_reset() -> None:
    for facts, policy in EVERY:
        if policy is Policy.AUTO_RESET and decide_start(facts, policy).action is Action.REFUSE:
            assert facts.was_reset


def test_nothing_is_reset_twice() -> None:
    for facts, policy in EVERY:
        if facts.was_reset:
            decision = decide_start(facts, policy)
            assert decision.action in (Action.FRESH_START, Action.REFUSE)


def test_a_position_that_is_gone_after_a_reset_is_refused_by_every_policy() -> None:
    for facts, policy in EVERY:
        gone = any(
            each.replayable and each.is_available is False for each in facts.sources.values()
        )
        if facts.persistent and facts.was_reset and gone:
            assert decide_start(facts, policy).action is Action.REFUSE


def test_what_a_load_has_stored_is_where_a_fresh_start_goes_on() -> None:
    for facts, policy in EVERY:
        decision = decide_start(facts, policy)
        if decision.action is Action.FRESH_START and facts.was_reset:
            assert decision.resume_from == {n: s.position for n, s in facts.sources.items()}


def test_beginning_anew_takes_nothing_over() -> None:
    for facts, policy in EVERY:
        decision = decide_start(facts, policy)
        if decision.action in (Action.FRESH_START, Action.RESET) and not facts.was_reset:
            assert decision.resume_from == dict.fromkeys(facts.sources)
            assert decision.sequences == {}


def test_a_refusal_names_no_position() -> None:
    for facts, policy in EVERY:
        decision = decide_start(facts, policy)
        if decision.action is Action.REFUSE:
            assert (decision.resume_from, decision.sequences) == ({}, {})


def test_the_order_of_sources_does_not_matter() -> None:
    for facts, policy in EVERY:
        turned = replace(facts, sources=dict(reversed([*facts.sources.items()])))
        assert decide_start(turned, policy) == decide_start(facts, policy)


def test_every_decision_is_told_in_sentences() -> None:
    for facts, policy in EVERY:
        words = decide_start(facts, policy).words
        assert words[0].isupper()
        assert words.endswith(".")
        assert "  " not in words


# the table, line by line


def source(
    sequence: int | None = 7,
    position: bytes | None = b"p",
    *,
    replayable: bool = True,
    is_available: bool | None = True,
) -> SourceFacts:
    checkpoint = None if sequence is None else SourceCheckpoint(sequence, position)
    return SourceFacts(replayable, checkpoint, is_available if position else None)


GOOD, NEW = source(), source(None, None)
BARE, GONE = source(7, None), source(is_available=False)
LIVE, LIVE_READ = source(None, None, replayable=False), source(replayable=False)
FRESH, RESUME, RESET, REFUSE = Action.FRESH_START, Action.RESUME, Action.RESET, Action.REFUSE
Line = tuple[int | None, dict[str, SourceFacts], set[str], Reason, tuple[Action, Action, Action]]

TABLE: dict[str, Line] = {
    "not replayable, nothing stored": (
        (None, {"a": LIVE}, set(), Reason.NOT_REPLAYABLE, (REFUSE, REFUSE, FRESH))
    ),
    "not replayable": (
        (HASH, {"a": LIVE_READ, "b": GOOD}, set(), Reason.NOT_REPLAYABLE, (REFUSE, REFUSE, RESET))
    ),
    "nothing stored": (None, {"a": NEW}, set(), Reason.FIRST_START, (FRESH, FRESH, FRESH)),
    "no hash": (None, {"a": GOOD}, set(), Reason.CONFIG_UNKNOWN, (REFUSE, RESUME, RESET)),
    "no hash, a new source": (
        (None, {"a": GOOD, "b": NEW}, set(), Reason.SOURCES_DIFFER, (REFUSE, REFUSE, RESET))
    ),
    "no hash, a lost source": (
        (None, {"a": NEW}, {"o"}, Reason.SOURCES_DIFFER, (REFUSE, REFUSE, RESET))
    ),
    "no hash, no position": (
        (None, {"a": BARE}, set(), Reason.POSITION_MISSING, (REFUSE, REFUSE, RESET))
    ),
    "no hash, position gone": (
        (None, {"a": GONE}, set(), Reason.POSITION_GONE, (REFUSE, REFUSE, RESET))
    ),
    "no hash, not replayable": (
        (None, {"a": LIVE_READ}, set(), Reason.NOT_REPLAYABLE, (REFUSE, REFUSE, RESET))
    ),
    "nothing read": (HASH, {"a": NEW}, set(), Reason.NOTHING_READ, (FRESH, FRESH, FRESH)),
    "nothing read, changed": (
        (OTHER, {"a": NEW}, set(), Reason.CONFIG_CHANGED, (REFUSE, FRESH, RESET))
    ),
    "a new source": (
        (HASH, {"a": GOOD, "b": NEW}, set(), Reason.SOURCES_DIFFER, (REFUSE, REFUSE, RESET))
    ),
    "a lost source": (HASH, {"a": GOOD}, {"o"}, Reason.SOURCES_DIFFER, (REFUSE, REFUSE, RESET)),
    "a new source, changed": (
        (OTHER, {"a": GOOD, "b": NEW}, set(), Reason.SOURCES_DIFFER, (REFUSE, REFUSE, RESET))
    ),
    "no position": (HASH, {"a": BARE}, set(), Reason.POSITION_MISSING, (REFUSE, REFUSE, RESET)),
    "position gone": (
        (HASH, {"a": GOOD, "b": GONE}, set(), Reason.POSITION_GONE, (REFUSE, REFUSE, RESET))
    ),
    "changed": (OTHER, {"a": GOOD}, set(), Reason.CONFIG_CHANGED, (REFUSE, RESUME, RESET)),
    "unchanged": (HASH, {"a": GOOD, "b": GOOD}, set(), Reason.UNCHANGED, (RESUME, RESUME, RESUME)),
}


@pytest.mark.parametrize("line", TABLE)
@pytest.mark.parametrize("policy", Policy)
def test_the_table_holds(line: str, policy: Policy) -> None:
    stored, sources, known, reason, actions = TABLE[line]
    decision = decide_start(StartFacts(True, stored, HASH, sources, frozenset(known)), policy)
    expected = actions[[*Policy].index(policy)]
    assert (decision.action, decision.reason) == (expected, reason)


@pytest.mark.parametrize("sources", [{"a": NEW}, {"a": GOOD}, {"a": GOOD, "b": GONE}])
@pytest.mark.parametrize("stored", [None, HASH, OTHER])
@pytest.mark.parametrize("policy", Policy)
def test_a_reset_that_did_not_get_through_comes_before_the_rest_of_the_table(
    sources: dict[str, SourceFacts], stored: int | None, policy: Policy
) -> None:
    decision = decide_start(StartFacts(True, stored, HASH, sources, unfinished=True), policy)
    assert (decision.action, decision.reason) == (RESET, Reason.UNFINISHED)


def test_a_configuration_that_nobody_knows_can_be_accepted() -> None:
    unknown = StartFacts(True, None, HASH, {"a": GOOD})
    words = decide_start(unknown, "strict").words
    assert "No hash of a configuration was ever stored" in words
    assert "store.write_config_hash(…), or start over on purpose" in words
    worse = decide_start(replace(unknown, sources={"a": GONE}), "strict").words
    assert "write_config_hash" not in worse, "that would not be enough"


def decided(policy: str, **sources: SourceFacts) -> Decision:
    return decide_start(StartFacts(True, HASH, HASH, sources), policy)


def test_a_warning_that_is_not_enough_says_why() -> None:
    words = decided("warn", orders=GOOD, payments=NEW).words
    assert "'payments' has no checkpoint" in words
    assert "warning is not enough" in words


def test_all_sources_that_stand_in_the_way_are_named() -> None:
    words = decided("strict", a=GONE, b=BARE, c=GONE, d=GOOD).words
    assert "'a', 'c' no longer has" in words
    assert "'b' has a checkpoint without a position" in words
    assert "'d'" not in words


def test_a_policy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="strict, warn, auto_reset"):
        decided("lenient", a=GOOD)


def test_facts_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="without sources"):
        StartFacts(True, None, HASH, {})
    with pytest.raises(InvalidInputError, match="'a'"):
        StartFacts(True, None, HASH, {"a": NEW}, frozenset({"a"}))
