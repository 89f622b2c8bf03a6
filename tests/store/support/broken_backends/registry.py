"""Which backend breaks which rule."""

from __future__ import annotations

from collections.abc import Callable

from seamark.blobs.memory import MemoryBlobs

Broken = type[MemoryBlobs]
BREAKS: dict[str, list[Broken]] = {}
A_MOMENT = 0.02


def breaks(rule: str) -> Callable[[Broken], Broken]:
    """Note that the decorated backend breaks the rule of that name."""

    def note(backend: Broken) -> Broken:
        BREAKS.setdefault(f"test_{rule}", []).append(backend)
        return backend

    return note
