"""Tests for a backend, a sink or a progress store of your own, and crashes for a pipeline.

The conformance suites need pytest and are loaded on first use; nothing else here does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seamark.testing.conformance import (
        BlobsConformance,
        MakeFrame,
        OpenSink,
        OpenStore,
        ProgressSuite,
        ReadRows,
        SinkSuite,
    )

__all__ = [
    "BlobsConformance",
    "MakeFrame",
    "OpenSink",
    "OpenStore",
    "ProgressSuite",
    "ReadRows",
    "SinkSuite",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load a conformance suite on first use."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from seamark.testing import conformance

        return getattr(conformance, name)
