"""The entry of the log that shows an epoch: its files, its record and its app transactions.

Tests: ``tests/sinks/test_delta_modes.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from seamark.sinks.contract import Receipt
from seamark.sinks.delta.actions import StagedFile
from seamark.sinks.delta.log import KEY
from seamark.sinks.delta.place import hooks_after

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable, Transaction

_OVERWRITE: Final = "overwrite"


def epoch_properties(
    receipt: Receipt, transactions: list[Transaction], mode: str
) -> CommitProperties:
    """What makes an entry the one of an epoch."""
    from deltalake.transaction import CommitProperties

    return CommitProperties(
        custom_metadata={KEY: {"shows": msgspec.to_builtins(receipt)}},
        app_transactions=transactions,
        # deltalake tries again with the list of files to replace that it has made before: what a
        # compaction has put in their place meanwhile would stay
        max_commit_retries=0 if mode == _OVERWRITE else None,
    )


def add_files(
    table: DeltaTable,
    files: Iterable[tuple[str, StagedFile]],
    mode: str,
    properties: CommitProperties,
) -> None:
    """Write an entry that adds these files, by their paths; ``overwrite`` removes all others."""
    from deltalake.transaction import AddAction

    now = int(time.time() * 1000)
    table.create_write_transaction(
        [AddAction(path, one.size, one.partition, now, True, one.stats) for path, one in files],
        _OVERWRITE if mode == _OVERWRITE else "append",
        table.schema(),
        table.metadata().partition_columns,
        commit_properties=properties,
        post_commithook_properties=hooks_after(table.version()),
    )
