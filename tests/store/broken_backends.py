"""Backends that each break one rule of the contract, and the rule that each one breaks.

``BREAKS`` maps the name of a test in the conformance suite to the backends it must catch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from seamark.store.blobs import Blob, Buffer, Entry, KeyExists, Tag, TagMismatch
from seamark.store.memory import MemoryBlobs

Broken = type[MemoryBlobs]
BREAKS: dict[str, list[Broken]] = {}
A_MOMENT = 0.02


def breaks(rule: str) -> Callable[[Broken], Broken]:
    """Note that the decorated backend breaks the rule of that name."""

    def note(backend: Broken) -> Broken:
        BREAKS.setdefault(f"test_{rule}", []).append(backend)
        return backend

    return note


# reading


@breaks("what_was_created_is_read_back")
class ReadTruncates(MemoryBlobs):
    def read(self, key: str, limit: int) -> Blob | None:
        blob = super().read(key, limit)
        return blob and Blob(blob.data[:1024], blob.tag)


@breaks("an_empty_value_is_a_value")
class EmptyIsNothing(MemoryBlobs):
    def read(self, key: str, limit: int) -> Blob | None:
        blob = super().read(key, limit)
        return blob if blob and blob.data else None


@breaks("a_missing_value_is_none_and_not_an_error")
class MissingReadsAsEmpty(MemoryBlobs):
    def read(self, key: str, limit: int) -> Blob | None:
        return super().read(key, limit) or Blob(b"", 0)


@breaks("a_missing_value_is_none_and_not_an_error")
class MissingHasStat(MemoryBlobs):
    def stat(self, key: str) -> Entry | None:
        return super().stat(key) or Entry(key, 0, time.time(), 0)


@breaks("a_value_beyond_the_limit_is_damage")
class LimitIgnored(MemoryBlobs):
    def read(self, key: str, limit: int) -> Blob | None:
        return super().read(key, 1 << 40)


@breaks("a_value_beyond_the_limit_is_damage")
class LimitIsOneTooLow(MemoryBlobs):
    def read(self, key: str, limit: int) -> Blob | None:
        return super().read(key, limit - 1)


@breaks("stat_tells_size_and_time")
class StatWithoutSize(MemoryBlobs):
    def stat(self, key: str) -> Entry | None:
        entry = super().stat(key)
        return entry and entry._replace(size=0)


@breaks("stat_tells_size_and_time")
class StatInMilliseconds(MemoryBlobs):
    def stat(self, key: str) -> Entry | None:
        entry = super().stat(key)
        return entry and entry._replace(modified=entry.modified * 1000)


# streams


@breaks("a_missing_value_has_no_stream")
class MissingStreamsAsEmpty(MemoryBlobs):
    def stream(self, key: str, piece: int) -> Iterator[Buffer] | None:
        return super().stream(key, piece) or iter(())


@breaks("a_stream_gives_the_same_bytes_for_every_size")
class StreamLosesTheLastPiece(MemoryBlobs):
    def stream(self, key: str, piece: int) -> Iterator[Buffer] | None:
        pieces = super().stream(key, piece)
        return pieces and (part for part in pieces if len(part) == piece)


@breaks("a_piece_stays_as_it_is_until_the_one_after_the_next")
class StreamReusesOneBuffer(MemoryBlobs):
    def stream(self, key: str, piece: int) -> Iterator[Buffer] | None:
        pieces = super().stream(key, piece)
        return pieces and self._in_one_buffer(pieces, bytearray(piece))

    def _in_one_buffer(self, pieces: Iterator[Buffer], buffer: bytearray) -> Iterator[Buffer]:
        for part in pieces:
            buffer[: len(part)] = part
            yield memoryview(buffer)[: len(part)]


@breaks("a_created_stream_is_read_back")
class CreateStreamKeepsTheFirstPiece(MemoryBlobs):
    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag:
        return self.create(key, next((bytes(part) for part in pieces), b""))


@breaks("a_created_stream_may_be_empty")
class CreateStreamNeedsAPiece(MemoryBlobs):
    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag:
        parts = [bytes(part) for part in pieces]
        return self.create(key, b"".join(parts)) if parts else None


@breaks("a_producer_may_use_its_buffer_again")
class CreateStreamCollectsBuffers(MemoryBlobs):
    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag:
        return self.create(key, b"".join(list(pieces)))


@breaks("a_stream_whose_producer_fails_leaves_nothing")
class CreateStreamKeepsWhatCame(MemoryBlobs):
    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag:
        parts: list[bytes] = []
        try:
            parts.extend(bytes(part) for part in pieces)
        finally:
            tag = self.create(key, b"".join(parts))
        return tag


@breaks("a_stream_whose_producer_fails_leaves_nothing")
class CreateStreamSwallowsTheFailure(MemoryBlobs):
    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag:
        try:
            return super().create_stream(key, [bytes(part) for part in pieces])
        except Exception:  # noqa: BLE001 - this is what is wrong with it
            return None


@breaks("a_stream_to_a_taken_key_is_refused_where_streams_are_create_only")
class CreateStreamOverwrites(MemoryBlobs):
    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag:
        self.delete([key])
        return self.create(key, b"".join([bytes(part) for part in pieces]))


# conditions


@breaks("a_taken_key_is_refused_and_keeps_its_value")
class CreateOverwrites(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        return self._set(key, data)


@breaks("a_taken_key_is_refused_and_keeps_its_value")
class CreateKeepsTheFirstInSilence(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        there = self.read(key, 1 << 40)
        return there.tag if there else super().create(key, data)


@breaks("a_taken_key_is_refused_and_keeps_its_value")
class CreateRefusesButWrites(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        taken = key in self._values
        tag = self._set(key, data)
        if taken:
            raise KeyExists(key)
        return tag


@breaks("creating_the_same_bytes_again_is_refused_too")
class CreateAcceptsTheSameBytes(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        there = self.read(key, 1 << 40)
        return there.tag if there and there.data == data else super().create(key, data)


@breaks("the_version_that_was_read_can_be_replaced")
class ReplaceDoesNothing(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        return tag


@breaks("a_hint_is_replaced_too")
class HintsAreNotWritten(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        return super().replace(key, data, tag) if durable else tag


@breaks("another_value_has_another_tag")
class ReplaceKeepsTheTag(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        super().replace(key, data, tag)
        assert isinstance(tag, int)
        self._values[key] = (data, tag, time.time())
        return tag


@breaks("another_value_has_another_tag")
class EveryReadHasItsOwnTag(MemoryBlobs):
    def read(self, key: str, limit: int) -> Blob | None:
        blob = super().read(key, limit)
        return blob and Blob(blob.data, self._set(key, blob.data))


@breaks("a_stale_tag_is_refused_and_changes_nothing")
class ReplaceIgnoresTheTag(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        if key not in self._values:
            raise TagMismatch(key)
        return self._set(key, data)


@breaks("a_stale_tag_is_refused_and_changes_nothing")
class ReplaceRefusesButWrites(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        try:
            return super().replace(key, data, tag)
        except TagMismatch:
            self._set(key, data)
            raise


@breaks("a_missing_value_is_not_brought_back_by_a_replace")
class ReplaceCreatesWhatIsMissing(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        return super().replace(key, data, tag) if key in self._values else self._set(key, data)


@breaks("the_tag_of_a_create_serves_a_replace")
class CreateGivesNoTag(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        super().create(key, data)
        return None


@breaks("the_tag_of_a_replace_serves_the_next_one")
class ReplaceGivesTheOldTag(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        super().replace(key, data, tag)
        return tag


@breaks("a_tag_dies_with_its_value")
class TagsCountFromOneAgain(MemoryBlobs):
    def _set(self, key: str, data: bytes) -> int:
        version = self._values[key][1] + 1 if key in self._values else 1
        self._values[key] = (data, version, time.time())
        return version


@breaks("the_version_of_a_write_is_the_one_that_stat_tells")
class VersionOfIsAnother(MemoryBlobs):
    def version_of(self, tag: Tag) -> Hashable:
        return f"version {tag}"


# listings


@breaks("a_listing_is_complete_at_once")
class ListingMissesTheNewest(MemoryBlobs):
    def entries(self, prefix: str) -> list[Entry]:
        return sorted(super().entries(prefix), key=lambda entry: entry.modified)[:-1]


@breaks("a_listing_is_complete_at_once")
class ListingStopsAtSubfolders(MemoryBlobs):
    def entries(self, prefix: str) -> list[Entry]:
        return [e for e in super().entries(prefix) if "/" not in e.key.removeprefix(prefix)]


@breaks("a_listing_holds_nothing_from_other_folders")
class ListingLeaksNeighbours(MemoryBlobs):
    def entries(self, prefix: str) -> list[Entry]:
        return super().entries(prefix.rstrip("/"))


@breaks("a_folder_without_values_lists_as_empty")
class ListingMindsAMissingFolder(MemoryBlobs):
    def entries(self, prefix: str) -> list[Entry]:
        found = super().entries(prefix)
        if not found:
            raise FileNotFoundError(prefix)
        return found


@breaks("a_folder_without_values_lists_as_empty")
class ListingShowsWhatIsGone(MemoryBlobs):
    def delete(self, keys: Sequence[str]) -> None:
        self._gone = [entry for entry in super().entries("") if entry.key in keys]
        super().delete(keys)

    def entries(self, prefix: str) -> list[Entry]:
        gone = [e for e in getattr(self, "_gone", []) if e.key.startswith(prefix)]
        return super().entries(prefix) + gone


@breaks("a_listing_tells_size_and_time")
class ListingWithoutSizes(MemoryBlobs):
    def entries(self, prefix: str) -> list[Entry]:
        return [entry._replace(size=0) for entry in super().entries(prefix)]


@breaks("a_listing_tells_size_and_time")
class ListingWithoutTimes(MemoryBlobs):
    def entries(self, prefix: str) -> list[Entry]:
        return [entry._replace(modified=0.0) for entry in super().entries(prefix)]


@breaks("a_version_changes_when_the_value_is_written_again")
class VersionIsTheSize(MemoryBlobs):
    def entries(self, prefix: str) -> list[Entry]:
        return [entry._replace(version=entry.size) for entry in super().entries(prefix)]

    def stat(self, key: str) -> Entry | None:
        entry = super().stat(key)
        return entry and entry._replace(version=entry.size)


@breaks("folders_holding_a_name_are_found")
class FoldersWithoutLooking(MemoryBlobs):
    def folders_holding(self, prefix: str, name: str) -> list[str]:
        tails = [entry.key.removeprefix(prefix) for entry in self.entries(prefix)]
        return sorted({tail.split("/")[0] for tail in tails if "/" in tail})


@breaks("folders_holding_a_name_are_found")
class FoldersAtAnyDepth(MemoryBlobs):
    def folders_holding(self, prefix: str, name: str) -> list[str]:
        tails = [entry.key.removeprefix(prefix).split("/") for entry in self.entries(prefix)]
        return [tail[0] for tail in tails if len(tail) > 1 and tail[-1] == name]


@breaks("delete_removes_exactly_the_given_keys")
class DeleteDoesNothing(MemoryBlobs):
    def delete(self, keys: Sequence[str]) -> None:
        pass


@breaks("delete_removes_exactly_the_given_keys")
class DeleteTakesANeighbour(MemoryBlobs):
    def delete(self, keys: Sequence[str]) -> None:
        super().delete([key for key in self._values if key.startswith(tuple(keys))])


@breaks("deleting_what_is_not_there_is_fine")
class DeleteMindsAMissingKey(MemoryBlobs):
    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            del self._values[key]


@breaks("deleting_what_is_not_there_is_fine")
class DeleteStopsAtAMissingKey(MemoryBlobs):
    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            if self._values.pop(key, None) is None:
                return


@breaks("more_than_a_page_of_keys_is_listed_and_deleted")
class ListingEndsAfterAPage(MemoryBlobs):
    def entries(self, prefix: str) -> list[Entry]:
        return super().entries(prefix)[:1000]


@breaks("more_than_a_page_of_keys_is_listed_and_deleted")
class DeleteEndsAfterABatch(MemoryBlobs):
    def delete(self, keys: Sequence[str]) -> None:
        super().delete(keys[:999])


# several at once


@breaks("one_of_eight_creates_wins")
class CreateLooksAndThenWrites(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        if key in self._values:
            raise KeyExists(key)
        time.sleep(A_MOMENT)
        return self._set(key, data)


@breaks("one_of_eight_replaces_wins")
class ReplaceLooksAndThenWrites(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        blob = self.read(key, 1 << 40)
        if blob is None or blob.tag != tag:
            raise TagMismatch(key)
        time.sleep(A_MOMENT)
        return self._set(key, data)


@breaks("a_reader_never_sees_part_of_a_new_value")
class CreateInTwoSteps(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        super().create(key, data[: len(data) // 2])
        time.sleep(A_MOMENT)
        return self._set(key, data)


@breaks("a_reader_never_sees_part_of_a_stream")
class CreateStreamInSteps(MemoryBlobs):
    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag:
        tag = self.create(key, b"")
        for part in pieces:
            tag = self._set(key, self._values[key][0] + bytes(part))
            time.sleep(A_MOMENT)
        return tag


@breaks("a_reader_sees_the_old_value_or_the_new_one")
class ReplaceInTwoSteps(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        tag = super().replace(key, data[: len(data) // 2], tag)
        time.sleep(A_MOMENT)
        return super().replace(key, data, tag)


@breaks("a_reader_sees_the_old_value_or_the_new_one")
class ReplaceRemovesFirst(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        super().replace(key, data, tag)
        self.delete([key])
        time.sleep(A_MOMENT)
        return self.create(key, data)


@breaks("two_handles_see_each_others_writes")
class ReadIsStale(MemoryBlobs):
    """What was read once is read again for ever."""

    def read(self, key: str, limit: int) -> Blob | None:
        known: dict[str, Blob | None] = self.__dict__.setdefault("_known", {})
        if key not in known:
            known[key] = super().read(key, limit)
        return known[key]


@breaks("being_exclusive_may_be_nested")
class ExclusiveOnlyOnce(MemoryBlobs):
    def exclusive(self) -> AbstractContextManager[object]:
        turn: threading.Lock = self.__dict__.setdefault("_turn", threading.Lock())
        return self._taking(turn)

    @contextmanager
    def _taking(self, turn: threading.Lock) -> Iterator[None]:
        if not turn.acquire(timeout=A_MOMENT):
            raise TimeoutError("waits for itself")
        try:
            yield
        finally:
            turn.release()


@breaks("a_mark_is_seen_as_long_as_it_is_held")
class HoldIsNotSeen(MemoryBlobs):
    def hold(self, name: str) -> AbstractContextManager[object]:
        return nullcontext()

    def is_held(self, name: str) -> bool | None:
        return False


@breaks("a_mark_is_seen_as_long_as_it_is_held")
class HoldIsSeenForEver(MemoryBlobs):
    def is_held(self, name: str) -> bool | None:
        return True
