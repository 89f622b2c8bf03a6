"""A prune that comes between the name ``latest`` and the use of the checkpoint that it names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from seamark.store import CheckpointStore, RecoveryReport


def after_latest(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Have something happen once, right after ``latest`` was looked up."""
    look_up = CheckpointStore.recover_latest_validated
    pending = [happens]

    def recover(store: CheckpointStore, *, read_data: bool = True) -> RecoveryReport:
        found = look_up(store, read_data=read_data)
        if pending:
            pending.pop()()
        return found

    monkeypatch.setattr(CheckpointStore, "recover_latest_validated", recover)
