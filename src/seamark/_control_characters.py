"""Characters that a screen obeys instead of showing them: made visible in what others have written.

Tests: ``tests/cli/test_hostile_text.py``.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Final

_SUSPECT: Final = re.compile(r"[^\x20-\x7e\xa0-\xac\xae-\u05ff]")
_OBEYED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories: control, format (also right-to-left marks), lone surrogates, separators of lines."""
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_controls(text: str, *, lines: bool = False) -> str:
    r"""The text with ``\x1b`` for an escape and so on; ``lines`` leaves line ends as they are."""
    return _SUSPECT.sub(lambda match: _shown(match[0], lines=lines), text)


def escape_controls_in_json(document: str) -> str:
    """The same for a JSON document, which stays one and means what it meant."""
    return _SUSPECT.sub(
        lambda m: json.dumps(m[0])[1:-1] if unicodedata.category(m[0]) in _OBEYED else m[0],
        document,
    )


def _shown(char: str, *, lines: bool) -> str:
    if (lines and char == "\n") or unicodedata.category(char) not in _OBEYED:
        return char
    if char in _SHORT:
        return _SHORT[char]
    number = ord(char)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
