"""Backends that each break one promise of a progress store, and the promise that each breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from seamark.errors import RefusedError
from seamark.progress import ProgressOverview
from seamark.progress.ledger import Changes, Turn, Writes
from seamark.progress.memory import MemoryLedger, _State

BREAKS: dict[str, list[type]] = {}
Kind = TypeVar("Kind", bound=type)


def breaks(*promises: str) -> Callable[[Kind], Kind]:
    """Note that the decorated class breaks the promises of these names."""

    def note(kind: Kind) -> Kind:
        for promise in promises:
            BREAKS.setdefault(f"test_{promise}", []).append(kind)
        return kind

    return note


class SoundLedger(MemoryLedger):
    """One that keeps every promise. It says that it persists: a new handle finds everything."""

    is_persistent: ClassVar[bool] = True

    def apply(self, changes: Changes) -> None:
        for writes in changes.data.values():
            if any(not isinstance(value, bytes | None) for value in writes.values()):
                raise RefusedError("this cannot be written")
        super().apply(changes)


def with_values(changes: Changes, change: Callable[[bytes], bytes | None]) -> Changes:
    """The changes, with every value changed."""
    data: dict[str, Writes] = {
        space: {key: None if v is None else change(v) for key, v in writes.items()}
        for space, writes in changes.data.items()
    }
    return replace(changes, data=data)


def with_positions(changes: Changes, change: Callable[[bytes], bytes | None]) -> Changes:
    """The changes, with every position changed."""
    found = {k: None if v is None else change(v) for k, v in changes.positions.items()}
    return replace(changes, positions=found)


# checkpoints


@breaks("a_checkpoint_reads_back_as_it_was_committed")
class PositionsEndAtNul(SoundLedger):
    def apply(self, changes: Changes) -> None:
        super().apply(with_positions(changes, lambda value: value.split(b"\x00")[0]))


@breaks("a_position_of_64_kib_is_kept")
class PositionsAreCut(SoundLedger):
    def apply(self, changes: Changes) -> None:
        super().apply(with_positions(changes, lambda value: value[:65535]))


@breaks("an_empty_position_is_a_position")
class AnEmptyPositionIsNone(SoundLedger):
    def apply(self, changes: Changes) -> None:
        super().apply(with_positions(changes, lambda value: value or None))


@breaks("a_cleared_position_is_gone_and_the_sequence_stays")
class PositionsStayForGood(SoundLedger):
    def apply(self, changes: Changes) -> None:
        positions = {k: v for k, v in changes.positions.items() if v is not None}
        super().apply(replace(changes, positions={**positions}))


@breaks("sequences_reach_from_0_to_the_last_of_64_bits")
class SequencesAreFloats(SoundLedger):
    def apply(self, changes: Changes) -> None:
        rounded = {source: int(float(number)) for source, number in changes.sequences.items()}
        super().apply(replace(changes, sequences=rounded))


@breaks("source_ids_of_all_kinds_are_kept_apart")
class SourceIdsAreTrimmed(SoundLedger):
    def apply(self, changes: Changes) -> None:
        trimmed = {source.strip(): number for source, number in changes.sequences.items()}
        super().apply(replace(changes, sequences=trimmed))


@breaks("a_store_says_whether_it_outlives_the_process")
class SaysThatItIsVolatile(SoundLedger):
    is_persistent: ClassVar[bool] = False


@breaks("a_store_that_persists_is_found_by_the_next_process")
class ForgetsWhenClosed(SoundLedger):
    def close(self) -> None:
        self._state = _State()


# results


@breaks("a_query_that_emitted_nothing_has_no_result_sequence")
class ResultsBeginAtZero(SoundLedger):
    def result_sequence(self, query_id: str) -> int | None:
        return super().result_sequence(query_id) or 0


@breaks("result_sequences_reach_from_0_to_the_last_of_64_bits")
class ResultSequencesAreFloats(SoundLedger):
    def apply(self, changes: Changes) -> None:
        rounded = {query: int(float(number)) for query, number in changes.results.items()}
        super().apply(replace(changes, results=rounded))


@breaks("result_sequences_reach_from_0_to_the_last_of_64_bits")
class AResultSequenceOfZeroIsNone(SoundLedger):
    def result_sequence(self, query_id: str) -> int | None:
        return super().result_sequence(query_id) or None


@breaks("queries_and_sources_of_all_names_are_kept_apart")
class QueriesAreSources(SoundLedger):
    def apply(self, changes: Changes) -> None:
        super().apply(changes)
        super().apply(Changes(results=changes.sequences))


@breaks("queries_and_sources_of_all_names_are_kept_apart")
class OneResultSequenceForAllQueries(SoundLedger):
    def result_sequence(self, query_id: str) -> int | None:
        return max(self._state.results.values(), default=None)


@breaks("clearing_the_checkpoints_takes_the_result_sequences")
class ClearingLeavesTheResultSequences(SoundLedger):
    def apply(self, changes: Changes) -> None:
        results = self._state.results
        super().apply(changes)
        self._state.results = {**results, **self._state.results}


@breaks("result_numbers_go_on_in_the_next_process")
class ResultSequencesAreForgottenWhenClosed(SoundLedger):
    def close(self) -> None:
        self._state.results = {}


# the hash, and clearing


@breaks("an_empty_store_has_nothing")
class AHashFromTheStart(SoundLedger):
    def config_hash(self) -> int | None:
        return super().config_hash() or 0


@breaks("a_hash_reads_back_as_it_was_written")
class AHashOfZeroIsNone(SoundLedger):
    def config_hash(self) -> int | None:
        return super().config_hash() or None


@breaks("a_hash_is_replaced_by_the_next")
class TheFirstHashStays(SoundLedger):
    def apply(self, changes: Changes) -> None:
        if self._state.config_hash is not None and not changes.forget_hash:
            changes = replace(changes, config_hash=None)
        super().apply(changes)


@breaks("forgetting_the_hash_takes_nothing_else")
class ForgettingTheHashForgetsAll(SoundLedger):
    def apply(self, changes: Changes) -> None:
        super().apply(replace(changes, forget_checkpoints=changes.forget_hash))


@breaks("clearing_takes_all_checkpoints_and_the_hash_and_leaves_data")
class ClearingTakesData(SoundLedger):
    def apply(self, changes: Changes) -> None:
        if changes.forget_checkpoints:
            self._state = _State()
        super().apply(changes)


@breaks("clearing_takes_all_checkpoints_and_the_hash_and_leaves_data")
class ClearingLeavesTheHash(SoundLedger):
    def apply(self, changes: Changes) -> None:
        forget = changes.forget_hash and not changes.forget_checkpoints
        super().apply(replace(changes, forget_hash=forget))


@breaks("clearing_what_is_empty_is_harmless")
class ClearingNothingIsAnError(SoundLedger):
    def apply(self, changes: Changes) -> None:
        if changes.forget_checkpoints and not self.checkpoints():
            raise RefusedError("there is nothing to clear")
        super().apply(changes)


@breaks(
    "a_source_begins_anew_after_clearing",
    "a_session_that_forgets_all_checkpoints_can_begin_anew",
)
class ClearingLeavesPositions(SoundLedger):
    def apply(self, changes: Changes) -> None:
        positions = self._state.positions
        super().apply(changes)
        if changes.forget_checkpoints:
            self._state.positions = positions


# data


@breaks("keys_and_values_keep_every_byte")
class KeysEndAtNul(SoundLedger):
    def apply(self, changes: Changes) -> None:
        data = {
            space: {key.rstrip(b"\x00"): value for key, value in writes.items()}
            for space, writes in changes.data.items()
        }
        super().apply(replace(changes, data=data))


@breaks("an_empty_value_is_a_value")
class AnEmptyValueIsNone(SoundLedger):
    def apply(self, changes: Changes) -> None:
        super().apply(with_values(changes, lambda value: value or None))


@breaks("a_value_of_a_mebibyte_is_kept")
class ValuesAreCut(SoundLedger):
    def apply(self, changes: Changes) -> None:
        super().apply(with_values(changes, lambda value: value[: 1 << 16]))


@breaks("thousands_of_keys_fit_into_a_session")
class OnlyAThousandKeys(SoundLedger):
    def apply(self, changes: Changes) -> None:
        data = {space: dict([*writes.items()][:1000]) for space, writes in changes.data.items()}
        super().apply(replace(changes, data=data))


@breaks("deleting_takes_one_key_and_is_harmless_when_it_is_not_there")
class DeletingNothingIsAnError(SoundLedger):
    def apply(self, changes: Changes) -> None:
        for space, writes in changes.data.items():
            if any(v is None and self.get(space, key) is None for key, v in writes.items()):
                raise RefusedError("there is no such key")
        super().apply(changes)


@breaks("spaces_do_not_mix")
class SpacesEndAtAColon(SoundLedger):
    def apply(self, changes: Changes) -> None:
        data: dict[str, Writes] = {}
        for space, writes in changes.data.items():
            data.setdefault(space.partition(":")[0] or space, {}).update(writes)
        super().apply(replace(changes, data=data))


@breaks("clearing_a_space_takes_all_of_it_and_nothing_else")
class ClearingTakesAllThatBeginsSo(SoundLedger):
    def apply(self, changes: Changes) -> None:
        begin = tuple(changes.cleared)
        more = {space for space in self._state.data if space.startswith(begin)} if begin else set()
        super().apply(replace(changes, cleared=more | changes.cleared))


@breaks("what_is_put_after_clearing_stays")
class ClearingComesLast(SoundLedger):
    def apply(self, changes: Changes) -> None:
        super().apply(replace(changes, cleared=set()))
        super().apply(Changes(cleared=changes.cleared))


@breaks("items_come_in_the_order_of_their_keys")
class ItemsInAnyOrder(SoundLedger):
    def items(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        return iter([*super().items(space)][::-1])


@breaks("items_are_those_of_one_moment")
class ItemsAsTheyAreRead(SoundLedger):
    def items(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        for key, _ in [*super().items(space)]:
            value = self.get(space, key)
            if value is not None:
                yield key, value


# commits


@breaks("a_commit_that_fails_leaves_nothing_and_ends_the_session")
class AppliesPieceByPiece(SoundLedger):
    def apply(self, changes: Changes) -> None:
        super().apply(replace(changes, data={}))
        for space, writes in changes.data.items():
            super().apply(Changes(data={space: writes}))


@breaks("readers_never_see_half_a_session")
class TheSecondHalfComesLater(SoundLedger):
    def apply(self, changes: Changes) -> None:
        first = {space: dict([*writes.items()][::2]) for space, writes in changes.data.items()}
        super().apply(replace(changes, data=first))
        time.sleep(0.002)
        super().apply(replace(changes, cleared=set(), forget_checkpoints=False))


@breaks("an_overview_is_of_one_moment")
class TheHashIsReadLater(SoundLedger):
    def overview(self) -> ProgressOverview:
        checkpoints = self.checkpoints()
        time.sleep(0.002)
        return ProgressOverview(checkpoints, self.config_hash())


@breaks("a_session_in_which_nothing_happens_can_be_committed")
class NothingIsTakenForAnError(SoundLedger):
    def apply(self, changes: Changes) -> None:
        if changes.is_empty():
            raise RefusedError("there is nothing to commit")
        super().apply(changes)


@breaks("threads_take_turns")
class NobodyWaits(SoundLedger):
    """Each thread has a turn of its own."""

    def __init__(self, name: str = "") -> None:
        self._own = threading.local()
        super().__init__(name)

    def __getattribute__(self, name: str) -> Any:
        if name != "turn":
            return super().__getattribute__(name)
        own = super().__getattribute__("_own")
        if not hasattr(own, "turn"):
            own.turn = Turn()
        return own.turn

    def apply(self, changes: Changes) -> None:
        time.sleep(0.001)
        super().apply(changes)
