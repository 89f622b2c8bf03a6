"""Which checkpoint a start would choose, and why, as a plain document.

Tests: ``tests/cli/test_recover.py``.
"""

from __future__ import annotations

from typing import Final

from seamark.errors import CheckpointNotFoundError, DamageError
from seamark.reports.checkpoint_document import chain_of, fork_document, operators_of, sinks
from seamark.reports.checkpoint_summary import positions
from seamark.reports.document import Document
from seamark.reports.named_checkpoints import load
from seamark.store import CheckpointStore
from seamark.store.consistent_read import Overtaken, until_settled
from seamark.store.inspection import require_there
from seamark.store.validation import weakest


def explain_walk(store: CheckpointStore) -> Document:
    """What ``seamark recover --explain --json`` prints."""
    return until_settled(lambda: _explained(store), store.url)


def _explained(store: CheckpointStore) -> Document:
    """:class:`Overtaken` when the chosen checkpoint is pruned before it was described."""
    walk = store.recover_latest_validated()
    outcome = "chosen" if walk.chosen_id is not None else "nothing usable"
    if walk.begins_anew:
        outcome = "fresh start"
    document: Document = {
        "store": store.url,
        "outcome": outcome,
        "chosen": None,
        "skipped": [
            {"id": number, "reason": why, "superseded": number in walk.superseded}
            for number, why in walk.skipped
        ],
        "examined": walk.examined,
        "seconds": round(walk.elapsed, 3),
        "warnings": list(walk.warnings),
        "exit_code": DamageError.exit_code if outcome == "nothing usable" else 0,
    }
    if walk.chosen_id is not None:
        try:
            document["chosen"] = _chosen(store, walk.chosen_id)
        except CheckpointNotFoundError:
            raise Overtaken from None
    return document


def _chosen(store: CheckpointStore, checkpoint_id: int) -> Document:
    manifest = load(store, checkpoint_id)
    chain, _ = chain_of(store, manifest)
    operators = operators_of(store, chain)
    require_there(store, checkpoint_id)
    sink_statuses = sinks(manifest)
    return {
        "id": checkpoint_id,
        "epoch": manifest.epoch,
        "timestamp_ms": manifest.timestamp_ms,
        "builds_on": [m.checkpoint_id for m in chain[1:]],
        "files": sum(len(about.files) for about in operators.values()),
        "state_bytes": sum(about.stored_bytes for about in operators.values()),
        "evidence": weakest(chain).value,
        "manifest_sealed": manifest.is_ours,
        "of_pipeline": manifest.attempt is not None,
        "fork": fork_document(manifest),
        "offsets": positions(manifest.source_offsets),
        "sinks": {name: about["status"] for name, about in sink_statuses.items()},
        "commits_again": [
            n for n, about in sink_statuses.items() if about["status"] not in _FINISHED
        ],
    }


_FINISHED: Final = ("Committed", None)
