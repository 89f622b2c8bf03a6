"""A checkpoint by its store and its id in one text: ``s3://bucket/trades@58``.

Tests: ``tests/store/test_checkpoint_address.py``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from seamark._common.checks import U64_MAX, check_text
from seamark.errors import InvalidInputError

_NAMED: Final = re.compile(r"(.+)@(latest|[0-9]{1,20})", re.DOTALL)


@dataclass(frozen=True)
class CheckpointAddress:
    """A store, and one of its checkpoints."""

    store: str
    checkpoint_id: int | None = None
    """None for the newest one that is whole."""

    @classmethod
    def parse(cls, text: str | os.PathLike[str]) -> CheckpointAddress:
        """From ``STORE``, ``STORE@latest`` or ``STORE@ID``; :class:`InvalidInputError`.

        Only digits or ``latest`` after the last ``@`` name a checkpoint. A store whose own name
        ends like that is given with ``@latest`` or an id behind it.

        >>> CheckpointAddress.parse("/data/trades@58")
        CheckpointAddress(store='/data/trades', checkpoint_id=58)
        >>> CheckpointAddress.parse("abfss://c@account.dfs.core.windows.net/trades")
        CheckpointAddress(store='abfss://c@account.dfs.core.windows.net/trades', checkpoint_id=None)
        """
        given = check_text(os.fspath(text), "the address of a checkpoint")
        match = _NAMED.fullmatch(given)
        if match is None:
            return cls(given)
        store, named = match[1], match[2]
        if named == "latest":
            return cls(store)
        number = int(named)
        if not 0 < number <= U64_MAX:
            raise InvalidInputError(f"there is no checkpoint {named}: ids begin with 1")
        return cls(store, number)

    def __str__(self) -> str:
        return f"{self.store}@{self.checkpoint_id or 'latest'}"
