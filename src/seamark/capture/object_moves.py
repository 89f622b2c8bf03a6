"""Storing files again that are in the store already: from another object, or the working copy.

Tests: ``tests/capture/test_scrub.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from seamark.capture.background_budget import Budget
from seamark.capture.file_index import FileIndex, StoredFile, objects_of
from seamark.capture.movers import PACK_BYTES, Contents, store_alone, store_packed
from seamark.capture.packed_files import entries_of
from seamark.capture.uploads import Uploads, discard
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError
from seamark.manifest.facts import SharedObject
from seamark.state.pack import read_index, unpack_all
from seamark.store.shared_objects import SharedObjects

Damaged = tuple[SharedObject, str]
"""An object, and what is wrong with it."""


class ObjectMoves:
    """Writes new objects at a limited rate. Objects never change, so nothing is overwritten."""

    def __init__(self, copy: WorkingCopy, shared: SharedObjects, budget: Budget) -> None:
        self._copy = copy
        self._shared = shared
        self._budget = budget

    def packed(self, contents: Contents, uploads: Uploads) -> dict[str, StoredFile]:
        """Store files as one object."""
        if not contents:
            return {}
        self._budget.spend(sum(map(len, contents.values())))
        return store_packed(uploads, contents)

    def rewritten(
        self, packs: Mapping[SharedObject, list[str]], index: FileIndex, uploads: Uploads
    ) -> tuple[dict[str, StoredFile], Damaged | None]:
        """Store the live files of packs in new ones, up to the first pack that is damaged."""
        stored: dict[str, StoredFile] = {}
        contents: Contents = {}
        for shared, paths in packs.items():
            try:
                contents |= self._live_files(shared, paths, index)
            except DamageError as error:
                return stored, (shared, error.what)
            if sum(map(len, contents.values())) >= PACK_BYTES:
                stored |= self.packed(contents, uploads)
                contents = {}
        return stored | self.packed(contents, uploads), None

    def _live_files(self, shared: SharedObject, paths: list[str], index: FileIndex) -> Contents:
        """Files of a pack, from the store: Spark may have removed them from its directory."""
        pack = self._shared.read_pack(shared, self._budget.spent_on)
        unpacked = {entry.key: data for entry, data in unpack_all(pack)}
        found = entries_of({path: index.files[path] for path in paths}, read_index(pack, len(pack)))
        return {path: unpacked[entry.key] for path, entry in found}

    def from_copy(self, files: Mapping[str, StoredFile], uploads: Uploads) -> dict[str, StoredFile]:
        """Store those files again that the working copy has, with the same SHA-256."""
        stored: dict[str, StoredFile] = {}
        contents: Contents = {}
        for path, file in files.items():
            try:
                if file.is_packed:
                    data = self._copy.read(path)
                    if sha256(data).digest() == file.sha256:
                        contents[path] = data
                else:
                    again = store_alone(uploads, self._budget.spent_on(self._copy.stream(path)))
                    if again.sha256 == file.sha256:
                        stored[path] = again
                    else:
                        discard(self._shared, objects_of([again]))
            except (FileNotFoundError, NotADirectoryError):
                continue
        return stored | self.packed(contents, uploads)
