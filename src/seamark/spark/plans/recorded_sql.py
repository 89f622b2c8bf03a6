"""The SQL of an expression as it is recorded: the same in every process, and without secrets.

What looks like a secret is hidden. It may as well be a plain value, as in ``token = 'a'``, so a
mark tells whether it is still the same: 16 bits of a digest, too few to find the value by trying.

Tests: ``tests/spark/test_recorded_sql.py``.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from seamark._redaction import redacted

_SEEDED: Final = re.compile(r"\b(randn?|uuid)\(-?\d+L?\)")
_LAST_SEED: Final = re.compile(r"\b((?:shuffle|uniform|randstr)\([^()]*), -?\d+L?\)")
_OUTER: Final = re.compile(r"\bouter\(([^()]*)#\d+L?\)")
_CIPHER: Final = re.compile(r"\b(?:try_)?(?:aes_|hmac|encrypt|decrypt)\w*\(", re.IGNORECASE)
_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.)*'")
_MARK: Final = 4
"""Hexadecimal digits of a mark."""


def recorded_sql(sql: str) -> tuple[str, str]:
    """The SQL without what differs at every start and without secrets, and a mark of these.

    The mark is empty when nothing is hidden. Pure.
    """
    sql = _LAST_SEED.sub(r"\1)", _SEEDED.sub(r"\1()", sql))
    sql = _OUTER.sub(r"outer(\1)", sql)
    shown = redacted(_QUOTED.sub("'***'", sql) if _CIPHER.search(sql) else sql)
    if shown == sql:
        return sql, ""
    return shown, hashlib.sha256(sql.encode(errors="surrogatepass")).hexdigest()[:_MARK]
