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
    r"(?P<keep>://[^/\s:@]*:|\b(?:sig|signature|x-amz-signature|x-amz-security-token|"
    r"x-amz-credential|x-goog-signature|x-goog-credential|awsaccesskeyid|access_token|"
    r"password|secret)=|authorization:\s*)(?P<hide>[^\s&@/\"']+)",
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
        return _IN_TEXT.sub(lambda match: match["keep"] + HIDDEN, text)


def _secret_values(options: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            found += _secret_values(value)
        elif isinstance(value, str) and len(value) >= _SHORTEST and _SECRET_NAME.search(name):
            found.append(value)
    return found
