"""Backends that break a rule about many keys."""

from __future__ import annotations

from collections.abc import Sequence

from seamark.blobs.contract import Entry
from seamark.blobs.memory import MemoryBlobs
from tests.store.support.broken_backends.registry import breaks


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
