"""What Seamark writes into an index, it can read, however well that shrinks."""

from __future__ import annotations

import pytest

from seamark import CheckpointManifest, open_store
from seamark.capture.checkpoint_contents import Chain, Sizes, place
from seamark.capture.epoch_files import Captured
from seamark.capture.file_index import FileIndex, StoredFile
from seamark.manifest.facts import SharedObject
from seamark.store.index_parts import LOG

LONG = "a-name-that-somebody-has-given-to-a-state-store-and-that-is-long"


@pytest.mark.parametrize("name", ["left-keyWithIndexToValue", LONG])
def test_an_index_of_very_many_equal_files_can_be_read(name: str) -> None:
    """The empty changes of an idle join: equal hashes, and names that differ in a digit."""
    pack = SharedObject("1-" + "a" * 32, 1000, "b" * 64)
    files = {
        f"state/0/{partition}/{name}/{version}.delta": StoredFile(46, b"\1" * 32, pack, True)
        for partition in range(50)
        for version in range(1000, 1200)
    }
    captured = Captured(files={LOG: {"offsets/0": b"v1"}}, stored=files, is_full=True)
    with open_store("memory://") as store:
        store.backend.create(f"shared/{pack.name}", bytes(pack.size))
        placed = place(captured, Sizes(), store.shared_objects, FileIndex())
        saved = store.save_with_state(
            CheckpointManifest.new(
                1,
                1,
                operator_states=placed.operator_states,
                shared_objects=[list(each) for each in placed.shared_objects],
            ),
            placed.chunks,
        )
        index = Chain.load(store, saved, with_contents=False).index
    assert index is not None
    assert {path: file for path, file in index.files.items() if file.shared} == files
