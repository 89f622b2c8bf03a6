"""What a backend promises about replacing: exactly the version that was seen, or not at all."""

from __future__ import annotations

import pytest

from seamark.blobs.contract import Blob, Blobs, TagMismatch
from seamark.testing.conformance.blob_values import KEY, LIMIT, content


def blob_of(blobs: Blobs) -> Blob:
    """What is stored under :data:`KEY`."""
    blob = blobs.read(KEY, LIMIT)
    assert blob is not None
    return blob


class BlobConditions:
    """Conditional replaces and the tags that they need."""

    def test_the_version_that_was_read_can_be_replaced(self, blobs: Blobs) -> None:
        blobs.create(KEY, b"one")
        blobs.replace(KEY, b"two", blob_of(blobs).tag)
        assert content(blobs) == b"two"

    def test_a_hint_is_replaced_too(self, blobs: Blobs) -> None:
        tag = blobs.create(KEY, b"one")
        blobs.replace(KEY, b"two", tag, durable=False)
        assert content(blobs) == b"two"

    def test_another_value_has_another_tag(self, blobs: Blobs) -> None:
        blobs.create(KEY, b"one")
        before = blob_of(blobs).tag
        assert blob_of(blobs).tag == before, "reading does not make a new version"
        blobs.replace(KEY, b"two", before)
        assert blob_of(blobs).tag != before

    def test_a_stale_tag_is_refused_and_changes_nothing(self, blobs: Blobs) -> None:
        blobs.create(KEY, b"one")
        stale = blob_of(blobs).tag
        blobs.replace(KEY, b"two", stale)
        with pytest.raises(TagMismatch):
            blobs.replace(KEY, b"three", stale)
        assert content(blobs) == b"two"

    def test_a_missing_value_is_not_brought_back_by_a_replace(self, blobs: Blobs) -> None:
        tag = blobs.create(KEY, b"one")
        blobs.delete([KEY])
        with pytest.raises(TagMismatch):
            blobs.replace(KEY, b"two", tag)
        assert content(blobs) is None

    def test_the_tag_of_a_create_serves_a_replace(self, blobs: Blobs) -> None:
        tag = blobs.create(KEY, b"one")
        blobs.replace(KEY, b"two", tag)
        assert content(blobs) == b"two"

    def test_the_tag_of_a_replace_serves_the_next_one(self, blobs: Blobs) -> None:
        tag = blobs.create(KEY, b"one")
        tag = blobs.replace(KEY, b"two", tag)
        blobs.replace(KEY, b"three", tag)
        assert content(blobs) == b"three"

    def test_a_tag_dies_with_its_value(self, blobs: Blobs) -> None:
        tag = blobs.create(KEY, b"one")
        blobs.delete([KEY])
        blobs.create(KEY, b"two")
        with pytest.raises(TagMismatch):
            blobs.replace(KEY, b"three", tag)
        assert content(blobs) == b"two"

    def test_the_version_of_a_write_is_the_one_that_stat_tells(self, blobs: Blobs) -> None:
        tag = blobs.create(KEY, b"one")
        for data in (b"two", b"three"):
            entry = blobs.stat(KEY)
            assert entry is not None
            assert blobs.version_of(tag) in (None, entry.version)
            tag = blobs.replace(KEY, data, tag)
