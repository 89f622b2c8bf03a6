"""Sessions that each break a promise, whatever store they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from seamark.progress import Session, SourceCheckpointStore
from seamark.progress.checkpoints import check_forward
from tests.progress.support.broken_ledgers import breaks


@breaks("a_hash_that_is_staged_is_committed_with_the_rest")
class TheHashIsWrittenAtOnce(Session):
    def stage_config_hash(self, value: int) -> None:
        self.store.write_config_hash(value)


@breaks("a_session_sees_what_it_has_staged")
class ASessionSeesWhatIsCommitted(Session):
    def get(self, space: str, key: bytes) -> bytes | None:
        return self.store.get(space, key)


@breaks("many_keys_are_read_at_once_in_their_order")
class OfManyKeysOnlyThoseThatAreThere(Session):
    def get_many(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return [value for value in super().get_many(space, keys) if value is not None]


@breaks("a_doomed_session_takes_nothing_more")
class DoomIsToldAtTheEnd(Session):
    def doom(self) -> None:
        spaces = self._spaces
        super().doom()
        self._spaces = spaces


@breaks("a_session_that_has_ended_takes_nothing_more")
class TheEndIsNotTold(Session):
    def end(self) -> None:
        spaces = self._spaces
        super().end()
        self._spaces = spaces


@breaks("a_session_belongs_to_its_thread")
class SessionsAreEverybodys(Session):
    def is_mine(self, store: SourceCheckpointStore) -> bool:
        return self.store is store


@breaks("of_many_values_of_one_key_the_last_counts")
class OfManyTheFirstCounts(Session):
    def put_many(self, space: str, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        super().put_many(space, reversed([*pairs]))


@breaks("what_is_not_bytes_is_refused")
class TextsAreEncoded(Session):
    def put(self, space: str, key: Any, value: Any) -> None:
        super().put(space, str(key).encode(), str(value).encode())


@breaks("a_result_sequence_that_goes_back_is_refused")
class ResultSequencesGoBack(Session):
    def write_result_sequence(
        self, query_id: str, sequence: int, *, allow_rewind: bool = False
    ) -> None:
        super().write_result_sequence(query_id, sequence, allow_rewind=True)


@breaks("what_is_no_result_sequence_is_refused")
class AnythingIsAResultSequence(Session):
    def write_result_sequence(
        self, query_id: str, sequence: int, *, allow_rewind: bool = False
    ) -> None:
        super().write_result_sequence(query_id, int(sequence or 0) % 2**64)


class Staging(Session):
    """Stages as the real one does, with a place to go wrong."""

    def stage_checkpoint(
        self,
        source_id: str,
        sequence: int,
        source_position: bytes | None = None,
        *,
        allow_rewind: bool = False,
    ) -> None:
        self.stage(source_id, sequence, source_position, allow_rewind)

    def stage(self, source: str, number: int, position: bytes | None, rewind: bool) -> None:
        super().stage_checkpoint(source, number, position, allow_rewind=rewind)


@breaks("a_larger_position_is_refused_and_the_last_good_one_stays")
class ALargePositionIsLeftOut(Staging):
    def stage(self, source: str, number: int, position: bytes | None, rewind: bool) -> None:
        fits = position is None or len(position) <= 65536
        super().stage(source, number, position if fits else None, rewind)


@breaks("no_position_keeps_the_one_before")
class NoPositionDeletesTheOneBefore(Staging):
    def stage(self, source: str, number: int, position: bytes | None, rewind: bool) -> None:
        super().stage(source, number, position, rewind)
        if position is None:
            self.clear_position(source)


@breaks("a_sequence_that_goes_back_is_refused")
class SequencesGoBack(Staging):
    def stage(self, source: str, number: int, position: bytes | None, rewind: bool) -> None:
        super().stage(source, number, position, True)


@breaks("a_rewind_that_is_allowed_goes_back")
class NothingGoesBack(Staging):
    def stage(self, source: str, number: int, position: bytes | None, rewind: bool) -> None:
        super().stage(source, number, position, False)


@breaks("an_equal_sequence_is_fine")
class EqualIsBack(Staging):
    def stage(self, source: str, number: int, position: bytes | None, rewind: bool) -> None:
        check_forward(source, self._sequence(source), number - 1)
        super().stage(source, number, position, rewind)


@breaks("the_last_of_several_stagings_counts")
class TheFirstStagingCounts(Staging):
    def stage(self, source: str, number: int, position: bytes | None, rewind: bool) -> None:
        if source not in self.changes.sequences:
            super().stage(source, number, position, rewind)


@breaks("what_is_no_sequence_is_refused")
class AnythingIsASequence(Staging):
    def stage(self, source: str, number: int, position: bytes | None, rewind: bool) -> None:
        super().stage(source, int(number or 0) % 2**64, position, rewind)


@breaks("a_name_that_is_no_source_id_is_refused")
class AnUnnamedSourceHasAName(Staging):
    def stage(self, source: str, number: int, position: bytes | None, rewind: bool) -> None:
        super().stage(source or "default", number, position, rewind)
