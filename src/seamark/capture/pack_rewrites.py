"""Which packs are worth rewriting, because most of their bytes are dead or there are too many.

Tests: ``tests/capture/test_state_moves.py``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from seamark.capture.file_index import FileIndex
from seamark.manifest.facts import SharedObject

MOST_PACKS: Final = 64
"""Packs that one checkpoint refers to; with more of them the smallest are merged."""

_MERGED: Final = 48
_MOSTLY_DEAD: Final = 0.25
_WORTH_IT: Final = 8 << 20
"""Dead bytes that are not worth a rewrite."""


def is_mostly_dead(living: int, size: int) -> bool:
    """Whether so little of a pack is needed that it is worth a rewrite."""
    return living < _MOSTLY_DEAD * size


def packs_to_rewrite(
    index: FileIndex, unreadable: Collection[SharedObject] = ()
) -> dict[SharedObject, list[str]]:
    """Packs whose live files should move together, with these files. Pure."""
    live: dict[SharedObject, list[str]] = {}
    for path, file in index.files.items():
        if file.shared is not None and file.is_packed and file.shared not in unreadable:
            live.setdefault(file.shared, []).append(path)

    def living(pack: SharedObject) -> int:
        return sum(index.files[path].size for path in live[pack])

    dead = {pack for pack in live if is_mostly_dead(living(pack), pack.size)}
    wasted = sum(pack.size - living(pack) for pack in dead)
    if wasted < max(_WORTH_IT, index.size // 10):
        dead = set()
    crowd = sorted(live, key=living)[:_MERGED] if len(live) > MOST_PACKS else []
    return {pack: live[pack] for pack in live if pack in dead or pack in crowd}
