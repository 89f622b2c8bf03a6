"""What a backend promises about many keys: listed completely, deleted exactly."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from seamark.blobs.contract import Blobs
from seamark.testing.conformance.blob_values import KEY, content


def keys_of(blobs: Blobs, prefix: str) -> list[str]:
    """The keys of a listing, sorted."""
    return sorted(entry.key for entry in blobs.entries(prefix))


class BlobListings:
    """Listing and deleting."""

    many_keys: ClassVar[int]

    def test_a_listing_is_complete_at_once(self, blobs: Blobs) -> None:
        written: list[str] = []
        for name in ("b", "a", "c/d", "c/e/f"):
            written.append(f"manifests/{name}")
            blobs.create(written[-1], b"x")
            assert keys_of(blobs, "manifests/") == sorted(written)

    def test_a_listing_holds_nothing_from_other_folders(self, blobs: Blobs) -> None:
        for key in ("a/1", "ab/2", "a.json", "b/a/3", "a-/4"):
            blobs.create(key, b"x")
        assert keys_of(blobs, "a/") == ["a/1"]

    def test_a_folder_without_values_lists_as_empty(self, blobs: Blobs) -> None:
        assert blobs.entries("manifests/") == []
        blobs.create(KEY, b"x")
        blobs.delete([KEY])
        assert blobs.entries("manifests/") == []

    def test_a_listing_tells_size_and_time(self, blobs: Blobs) -> None:
        sizes = {"checkpoints/a": 0, "checkpoints/b": 1, "checkpoints/c/d": 70_000}
        for key, size in sizes.items():
            blobs.create(key, b"x" * size)
        entries = blobs.entries("checkpoints/")
        assert {entry.key: entry.size for entry in entries} == sizes
        assert all(abs(entry.modified - time.time()) < 3600 for entry in entries)

    def test_a_version_changes_when_the_value_is_written_again(self, blobs: Blobs) -> None:
        tag = blobs.create(KEY, b"one")
        [before] = blobs.entries("manifests/")
        assert blobs.stat(KEY) == before
        blobs.replace(KEY, b"two", tag)
        [after] = blobs.entries("manifests/")
        assert after.version != before.version
        assert hash(after.version) is not None

    def test_folders_holding_a_name_are_found(self, blobs: Blobs) -> None:
        for key in (
            "checkpoints/one/manifest.json",
            "checkpoints/two/manifest.json",
            "checkpoints/without/state.bin",
            "checkpoints/deep/er/manifest.json",
            "checkpoints/manifest.json",
            "elsewhere/three/manifest.json",
        ):
            blobs.create(key, b"{}")
        assert sorted(blobs.folders_holding("checkpoints/", "manifest.json")) == ["one", "two"]
        assert blobs.folders_holding("nowhere/", "manifest.json") == []

    def test_delete_removes_exactly_the_given_keys(self, blobs: Blobs) -> None:
        keys = [f"manifests/{name}" for name in ("a", "ab", "b", "b.json", "c/d")]
        for key in keys:
            blobs.create(key, key.encode())
        blobs.delete(["manifests/a", "manifests/b"])
        left = ["manifests/ab", "manifests/b.json", "manifests/c/d"]
        assert keys_of(blobs, "manifests/") == left
        assert [content(blobs, key) for key in left] == [key.encode() for key in left]

    def test_deleting_what_is_not_there_is_fine(self, blobs: Blobs) -> None:
        blobs.create("manifests/b", b"x")
        blobs.create("manifests/d", b"x")
        blobs.delete(["manifests/a", "manifests/b", "manifests/c", "manifests/d", "no/such"])
        assert blobs.entries("manifests/") == []
        blobs.delete([])

    def test_more_than_a_page_of_keys_is_listed_and_deleted(self, blobs: Blobs) -> None:
        keys = [f"manifests/manifest-{number:06}.json" for number in range(1, self.many_keys + 1)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: blobs.create(key, b"{}"), keys))
        assert keys_of(blobs, "manifests/") == keys
        blobs.delete(keys[1:])
        assert [entry.key for entry in blobs.entries("manifests/")] == keys[:1]
