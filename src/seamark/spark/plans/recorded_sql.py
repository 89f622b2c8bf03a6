"""The SQL of an expression as it is recorded: the same in every process, and without secrets.

What looks like a secret is hidden. It may as well be a plain value, as in ``token = 'a'``, so a
mark tells whether it is still the same: 16 bits of a digest, too few to find the value by trying.

Tests: ``tests/spark/test_recorded_sql.py``.
"""

from __future__ import annotations

import hashlib
import re
from functools import partial
from typing import Final

from seamark._redaction import redacted

_TEXT: Final = r"'(?:[^'\\]|\\.)*+'"
_CALLS: Final = tuple(
    (re.compile(call), re.compile(rf"{_TEXT}|`[^`]*`|{call}"), kept)
    for call, kept in (
        (r"\b(randn?|uuid)\(-?\d+L?\)", r"\1()"),
        (r"\b((?:shuffle|uniform|randstr)\([^()]*), -?\d+L?\)", r"\1)"),
        (r"\bouter\(([^()]*)#\d+L?\)", r"outer(\1)"),
    )
)
"""Calls with numbers of the process in them, by themselves, and among texts and names; what is kept
of them. A name may be that of a call, and in a text nothing is one."""
_CIPHER: Final = re.compile(r"\b(?:try_)?(?:aes_|hmac|encrypt|decrypt)\w*\(", re.IGNORECASE)
_QUOTED: Final = re.compile(_TEXT)
_MARK: Final = 4
"""Hexadecimal digits of a mark."""


def recorded_sql(sql: str) -> tuple[str, str]:
    """The SQL without what differs at every start and without secrets, and a mark of these.

    The mark is empty when nothing is hidden. Pure.
    """
    for call, among_others, kept in _CALLS:
        sql = among_others.sub(partial(_shorter, call, kept), sql)
    shown = redacted(_QUOTED.sub("'***'", sql) if _CIPHER.search(sql) else sql)
    if shown == sql:
        return sql, ""
    return shown, hashlib.sha256(sql.encode(errors="surrogatepass")).hexdigest()[:_MARK]


def _shorter(call: re.Pattern[str], kept: str, found: re.Match[str]) -> str:
    return found[0] if found[0].startswith("'") else call.sub(kept, found[0])
