"""Checks that only read: what a restart would do, whether all bytes are right.

Tests: ``tests/ui/test_checks.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from seamark._common.progress_bars import Bar
from seamark.reports.document import Document
from seamark.reports.recovery_walk import explain_walk
from seamark.reports.store_health import check_store, health_document
from seamark.reports.verification import check_named, verification_document
from seamark.store import CheckpointStore
from seamark.store.consistent_read import until_settled
from seamark.ui.runs import Work

Check = Callable[[CheckpointStore, Bar], Document]


def _explain(store: CheckpointStore, bar: Bar) -> Document:
    del bar  # the search is over when it is over
    return explain_walk(store)


def _verify(store: CheckpointStore, bar: Bar, *, share: float) -> Document:
    look = partial(check_named, store, None, share, 0, bar)
    return verification_document(store.url, until_settled(look, store.url), share) | {"seed": None}


def _doctor(store: CheckpointStore, bar: Bar) -> Document:
    del bar
    document = health_document(store.url, check_store(store, write=False))
    return document | {"read_only": True}


KINDS: Final[Mapping[str, Check]] = {
    "recover": _explain,
    "verify": partial(_verify, share=0.0),
    "verify-data": partial(_verify, share=1.0),
    "doctor": _doctor,
}
"""By the name in the address; the document is what the command of that name prints as JSON."""


def check_of(kind: str, open_it: Callable[[], CheckpointStore]) -> Work:
    """One of :data:`KINDS` as work on a store, which is opened when the work begins."""
    return lambda bar: KINDS[kind](open_it(), bar)
