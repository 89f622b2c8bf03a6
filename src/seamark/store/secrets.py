"""Keeps passwords and keys out of messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

HIDDEN: Final = "***"

_SECRET_NAME: Final = re.compile(
    r"secret|password|passwd|token|sas|credential|private|account_key|access_key$"
    r"|service_account|client_key|customer_key|key_base64|authorization|signature",
    re.IGNORECASE,
)
_IN_TEXT: Final = re.compile(
    # user:password@ in a URL, also a mistyped one with one slash, up to the last @ of a word;
    # a name that tells a secret, with its value bare or in quotes
    r"(?P<keep>:/+[^/\s:@]*:)(?P<hide>[^\s\"']+)(?=@)"
    r"|(?P<name>\b[\w.-]*(?:sig|signature|security-token|credential|accesskeyid|access[_.-]?token"
    r"|password|passwd|secret(?:[_.-]?(?:access)?[_.-]?key)?|account[_.-]?key[\w.-]*"
    r"|access[_.-]?key)[\"']?\s*[=:]\s*|authorization[\"']?\s*[:=]\s*"
    r"(?:(?:bearer|basic|digest|aws4-hmac-sha256)\s+)?)"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s&;,\"'\)\]}]+)",
    re.IGNORECASE,
)
_SHORTEST: Final = 4  # hiding shorter values would garble ordinary words


class Redactor:
    """Replaces the secret values of some options, and what looks like a secret, by ``***``."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._values = sorted(set(_secret_values(options)), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, HIDDEN)
        return _IN_TEXT.sub(lambda found: (found["keep"] or found["name"]) + HIDDEN, text)


def _secret_values(options: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            found += _secret_values(value)
        elif isinstance(value, str) and len(value) >= _SHORTEST and _SECRET_NAME.search(name):
            found.append(value)
    return found
