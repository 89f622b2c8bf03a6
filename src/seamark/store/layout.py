"""Which key holds what. Both layouts are LaminarDB's; `owner.json` and the rest are additions.

==========  =============================================  ==================================
what        filesystem                                     object store
==========  =============================================  ==================================
manifest    ``checkpoints/checkpoint_000002/manifest.json``  ``manifests/manifest-000002.json``
state       ``checkpoints/checkpoint_000002/state.bin``      ``checkpoints/state-000002.bin``
pointer     ``checkpoints/latest.txt``                       ``manifests/latest.json``
owner       ``owner.json``                                   ``owner.json``
==========  =============================================  ==================================

Ids are padded to six digits and simply grow wider, so names are compared as numbers.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Final

import msgspec

from seamark._common.checks import U64_MAX
from seamark.blobs.contract import Blobs
from seamark.manifest import CheckpointManifest

OWNER_KEY: Final = "owner.json"


class Layout(ABC):
    """Names of keys, and ids back from names. No I/O of its own but the listing of ids."""

    pointer: ClassVar[str]
    states_prefix: ClassVar[str] = "checkpoints/"

    @abstractmethod
    def manifest(self, checkpoint_id: int) -> str:
        """The key of a manifest."""

    @abstractmethod
    def state(self, checkpoint_id: int) -> str:
        """The key of a sidecar."""

    @abstractmethod
    def state_in_parts(self, checkpoint_id: int, generation: int, token: str) -> str:
        """The key of a sidecar that is too large for one create, or lost its own name."""

    @abstractmethod
    def manifest_ids(self, blobs: Blobs) -> list[int]:
        """Ids that have something under their manifest's key, ascending."""

    @abstractmethod
    def state_id(self, key: str) -> int | None:
        """The id of a sidecar's key, or None when the key is not a sidecar's."""

    def foreign_state(self, manifest: CheckpointManifest) -> str | None:
        """What is wrong with the name that a manifest gives to its sidecar; None when nothing is.

        It may only name a sidecar of its own id: anything else would read another checkpoint's
        state, or a file that is none of the store's.
        """
        named = manifest.extra.get("state_object")
        if named is None:
            return None
        if isinstance(named, str) and self.state_id(named) == manifest.checkpoint_id:
            return None
        return f"state_object {named!r} is not a state of checkpoint {manifest.checkpoint_id}"

    @abstractmethod
    def encode_pointer(self, checkpoint_id: int) -> bytes:
        """What the pointer says."""

    @abstractmethod
    def decode_pointer(self, data: bytes) -> int | None:
        """The id that a pointer names, or None when it makes no sense."""


class FilesystemLayout(Layout):
    """One folder per checkpoint."""

    pointer = "checkpoints/latest.txt"

    def manifest(self, checkpoint_id: int) -> str:
        return f"checkpoints/checkpoint_{checkpoint_id:06}/manifest.json"

    def state(self, checkpoint_id: int) -> str:
        return f"checkpoints/checkpoint_{checkpoint_id:06}/state.bin"

    def state_in_parts(self, checkpoint_id: int, generation: int, token: str) -> str:
        return self.state(checkpoint_id)

    def manifest_ids(self, blobs: Blobs) -> list[int]:
        folders = blobs.folders_holding("checkpoints/", "manifest.json")
        return sorted(_ids(folders, _FOLDER))

    def state_id(self, key: str) -> int | None:
        return _id(key, _FOLDER_STATE)

    def encode_pointer(self, checkpoint_id: int) -> bytes:
        return b"checkpoint_%06d" % checkpoint_id

    def decode_pointer(self, data: bytes) -> int | None:
        return _id(data.decode("ascii", "replace").strip(), _FOLDER)


class ObjectLayout(Layout):
    """Manifests together, so that one listing finds them all."""

    pointer = "manifests/latest.json"

    def manifest(self, checkpoint_id: int) -> str:
        return f"manifests/manifest-{checkpoint_id:06}.json"

    def state(self, checkpoint_id: int) -> str:
        return f"checkpoints/state-{checkpoint_id:06}.bin"

    def state_in_parts(self, checkpoint_id: int, generation: int, token: str) -> str:
        return f"checkpoints/state-{checkpoint_id:06}-{generation}-{token}.bin"

    def manifest_ids(self, blobs: Blobs) -> list[int]:
        return sorted(_ids((entry.key for entry in blobs.entries("manifests/")), _MANIFEST))

    def state_id(self, key: str) -> int | None:
        return _id(key, _OBJECT_STATE)

    def encode_pointer(self, checkpoint_id: int) -> bytes:
        return b'{"checkpoint_id":%d}' % checkpoint_id

    def decode_pointer(self, data: bytes) -> int | None:
        try:
            return msgspec.json.decode(data, type=_Pointer).checkpoint_id
        except (msgspec.DecodeError, RecursionError, ValueError):
            return None


class _Pointer(msgspec.Struct):
    checkpoint_id: int


_FOLDER: Final = re.compile(r"checkpoint_([0-9]{1,20})")
_FOLDER_STATE: Final = re.compile(r"checkpoints/checkpoint_([0-9]{1,20})/state\.bin")
_MANIFEST: Final = re.compile(r"manifests/manifest-([0-9]{1,20})\.json")
_OBJECT_STATE: Final = re.compile(r"checkpoints/state-([0-9]{1,20})(?:-[0-9]+-[0-9a-f]+)?\.bin")


def _id(name: str, pattern: re.Pattern[str]) -> int | None:
    match = pattern.fullmatch(name)
    if match is None or not 0 < (number := int(match[1])) <= U64_MAX:
        return None
    # a second spelling of the same number (checkpoint_1) is not one of our names
    return number if match[1] == f"{number:06}" else None


def _ids(names: Iterable[str], pattern: re.Pattern[str]) -> list[int]:
    return [number for name in names if (number := _id(name, pattern)) is not None]
