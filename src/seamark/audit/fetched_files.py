"""Whether files can be fetched at all: only of those is it known that their rows cannot be read.

A server that does not answer, or refuses a login, says nothing about what it keeps. What libraries
raise for it looks the same as what they raise for a wrong byte.

Tests: ``tests/audit/test_damaged_lists.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from seamark._common.text import first_line
from seamark._redaction import redacted
from seamark.errors import StoreUnavailableError

_PIECE: Final = 4 << 20


def require_fetched(open_file: Callable[[str], Any], paths: Iterable[str]) -> None:
    """:class:`StoreUnavailableError` for a file that is not gone, and whose bytes do not come."""
    for path in paths:
        try:
            with open_file(path) as file:
                while file.read(_PIECE):
                    pass
        except FileNotFoundError:
            continue
        except Exception as error:  # noqa: BLE001 - whatever a client of a server raises
            raise StoreUnavailableError(
                f"a file of the table cannot be fetched: {redacted(first_line(error))[:300]}",
                where=redacted(path),
                hint="This says nothing about its rows. Try again.",
            ) from None
