"""What our own extra fields may hold. A document with a good checksum may still make no sense."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from seamark._common.checks import I64_MAX, I64_MIN
from seamark.limits import LARGEST_GENERATION

if TYPE_CHECKING:
    from seamark.manifest import CheckpointManifest

_Count = Annotated[int, msgspec.Meta(ge=0, le=I64_MAX)]
_TYPES: Final[dict[str, tuple[Any, str]]] = {
    "generation": (_Count, "a number"),
    "timeline": (str, "a text"),
    "state_bytes": (_Count, "a number of bytes"),
    "supersedes": (list[tuple[_Count, _Count]], "a list of ranges"),
    "sink_committables": (dict[str, Any], "an object"),
    "next_watermark": (Annotated[int, msgspec.Meta(ge=I64_MIN, le=I64_MAX)], "a time"),
    "attempt": (str, "a text"),
    "fingerprint": (str, "a text"),
    "structure": (dict[str, Any], "an object"),
    "shown_as": (str, "a text"),
    "abandoned": (list[str], "a list of texts"),
    "leaves": (list[str], "a list of texts"),
    "native": (dict[str, Any], "an object"),
}
"""Fields that recovery, rollback or a restore go by."""
_TOLD: Final[dict[str, tuple[Any, str]]] = {
    "writer": (str, "a text"),
    "timings": (
        dict[str, Annotated[float, msgspec.Meta(ge=0, le=1e9)]],
        "an object of seconds",
    ),
    "sink_guarantees": (dict[str, str], "an object of texts"),
}
"""Fields that are only shown."""


def odd_generation(m: CheckpointManifest) -> str | None:
    """Why the generation is none. Whether a manifest counts depends on it, so it is asked first."""
    value = m.extra.get("generation")
    if value is None or (value.__class__ is int and 0 <= value <= LARGEST_GENERATION):
        return None
    return "its field 'generation' is not a number of a claim"


def senseless(m: CheckpointManifest) -> Iterator[str]:
    """Fields that a restore goes by and that hold what nothing of ours writes: damage."""
    return _odd(m, _TYPES)


def unshowable(m: CheckpointManifest) -> Iterator[str]:
    """Fields that are only shown and cannot be; the checkpoint is as good as any."""
    return _odd(m, _TOLD)


def _odd(m: CheckpointManifest, types: dict[str, tuple[Any, str]]) -> Iterator[str]:
    for name in types.keys() & m.extra.keys():
        kind, words = types[name]
        value = m.extra[name]
        if value is None:
            continue  # as good as not there
        try:
            msgspec.convert(value, kind)
        except (msgspec.ValidationError, OverflowError):
            yield f"its field '{name}' is not {words}"
