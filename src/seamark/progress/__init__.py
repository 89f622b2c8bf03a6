"""How far each source has been read, in one transaction with what was made of it.

::

    from seamark.progress import open_progress

    with open_progress("rocksdb:///data/orders") as store:
        with store.session() as s:
            s.put("totals", b"alice", b"42")
            s.stage_checkpoint("orders", sequence=7, source_position=b"offset 7")

Names are loaded on first use; RocksDB and Redis are needed only to open such a store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seamark._common.lazy import lazy_names

if TYPE_CHECKING:
    from seamark.progress.checkpoints import (
        MAX_POSITION_BYTES,
        ProgressOverview,
        SequenceDedup,
        SourceCheckpoint,
    )
    from seamark.progress.configuration import config_hash, explain_change
    from seamark.progress.ledger import Ledger
    from seamark.progress.policy import (
        Action,
        Decision,
        Policy,
        Reason,
        SourceFacts,
        StartFacts,
        decide_start,
    )
    from seamark.progress.reset import StartingSource, begin_from, start_over
    from seamark.progress.session import Session
    from seamark.progress.store import SourceCheckpointStore
    from seamark.progress.urls import open_progress, rocksdb_url

__all__ = [
    "MAX_POSITION_BYTES",
    "Action",
    "Decision",
    "Ledger",
    "Policy",
    "ProgressOverview",
    "Reason",
    "SequenceDedup",
    "Session",
    "SourceCheckpoint",
    "SourceCheckpointStore",
    "SourceFacts",
    "StartFacts",
    "StartingSource",
    "begin_from",
    "config_hash",
    "decide_start",
    "explain_change",
    "open_progress",
    "rocksdb_url",
    "start_over",
]

_HOMES = {
    "seamark.progress.checkpoints": (
        "MAX_POSITION_BYTES ProgressOverview SequenceDedup SourceCheckpoint"
    ),
    "seamark.progress.configuration": "config_hash explain_change",
    "seamark.progress.ledger": "Ledger",
    "seamark.progress.urls": "open_progress rocksdb_url",
    "seamark.progress.policy": "Action Decision Policy Reason SourceFacts StartFacts decide_start",
    "seamark.progress.reset": "StartingSource begin_from start_over",
    "seamark.progress.session": "Session",
    "seamark.progress.store": "SourceCheckpointStore",
}

if not TYPE_CHECKING:  # otherwise a type checker would accept misspelt names
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, globals())
