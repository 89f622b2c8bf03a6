"""What to read of each sink to see exactly an epoch, as its manifest keeps it.

Tests: ``tests/pipeline/test_read_points.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from seamark._common.logs import logger_named
from seamark._redaction import redacted
from seamark.errors import InvalidInputError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.compile import Output
from seamark.sinks.contract import Committable, Sink
from seamark.sinks.read_point import LARGEST, ReadPoint

log = logger_named("seamark.pipeline")


def missing_read_points(
    outputs: Iterable[Output],
    manifest: CheckpointManifest,
    shown: Collection[str],
    shown_timeline: str,
) -> dict[str, Any]:
    """What to read of the ``shown`` sinks, where the manifest of the epoch does not say it yet.

    A sink that cannot tell is left out. That is logged and stops nothing: the epoch is there.
    """
    points: dict[str, Any] = {}
    known, committables = manifest.read_points or {}, manifest.sink_committables or {}
    for output in outputs:
        name, sink = output.name, output.sink
        if name in known or name not in shown or type(sink).read_point is Sink.read_point:
            continue
        try:
            committable = committables.get(name) or _identity(sink, shown_timeline, manifest.epoch)
            point = None if committable is None else sink.read_point(committable)
            if point is not None:
                points[name] = _as_kept(point)
        except Exception as error:  # noqa: BLE001 - whatever a sink raises, the epoch is there
            log.warning("sink %s does not say what to read: %s", name, redacted(str(error)))
    return points


def _identity(sink: Sink, timeline: str, epoch: int) -> Committable | None:
    """What identifies an epoch that a sink showed before it was run again."""
    receipt = sink.committed(timeline, epoch)
    if receipt is None:
        return None
    fields = ("timeline", "epoch", "fingerprint", "attempt")
    return {field: getattr(receipt, field) for field in fields}


def _as_kept(point: ReadPoint) -> Mapping[str, Any]:
    """The JSON of a read point; :class:`InvalidInputError` for one that no manifest may hold."""
    data = msgspec.json.encode(point)
    if len(data) > LARGEST:
        raise InvalidInputError(f"it has {len(data)} bytes, more than {LARGEST}")
    text = data.decode()
    if redacted(text) != text:
        raise InvalidInputError("it holds what looks like a password or key")
    kept: dict[str, Any] = msgspec.json.decode(data)
    return kept
