"""Hides passwords and keys in everything that is shown: texts, errors, logs, documents.

This is the only place that knows what a secret looks like. It stands below all other modules, so
that even ``errors`` can use it. All of it is linear in the length of the text: names and messages
come from stores that anybody may have written.

Tests: ``tests/store/test_secrets.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

HIDDEN: Final = "***"
DEEPEST: Final = 100
"""Levels of a document that are shown."""
TOO_DEEP: Final = "(nested too deeply to be shown)"

_LONGEST_NAME: Final = 200  # of a name, only its end is looked at
_SHORTEST: Final = 4  # hiding shorter values would garble ordinary words
_LONG_VALUE: Final = 12  # no ordinary word contains such a value
_ORDINARY_WORDS: Final = frozenset({"true", "false", "none"})
_HARMLESS_OPTION: Final = re.compile(
    r"(?:aws_|google_|azure_)?(?:default_)?(?:region|allow_http|virtual_hosted_style_request"
    r"|conditional_put|copy_if_not_exists|skip_signature|checksum(?:_algorithm)?"
    r"|(?:connect_)?timeout|unsigned_payload|imdsv1_fallback|use_emulator|use_fabric_endpoint)",
    re.IGNORECASE,
)
"""Names of storage options whose values are not secret, and often ordinary words."""

_SECRET_NAME: Final = re.compile(
    r"secret|passw(?:or)?d|passphrase|passcode|credential|authorization|service_account"
    r"|(?:account|access|private|api|client|customer|encryption|master|shared|signing|auth"
    r"|storage|keystore)[._-]?key|key_base64|key[._-]?pem|(?:key|store)pass"
    r"|tokens?$"
    r"|(?:^|[._-])(?:pwd|pass|sas|sig|signature|user[._-]?info)(?:$|[._-])",
    re.IGNORECASE,
)
_IN_SECRET_NAMES: Final = (
    *("secret", "pass", "credential", "authorization", "account", "key", "token"),
    *("pwd", "sas", "sig", "user"),
)
"""Each name that looks like a secret's has one of these. Very many names are looked at."""
_PASSWORD: Final = re.compile(r"secret|passw(?:or)?d|passphrase", re.IGNORECASE)
_PRIVATE_KEY: Final = re.compile(
    r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----).*?(?:-----END [A-Z0-9 ]{0,40}KEY-----|\Z)",
    re.DOTALL,
)
_STATUSES: Final = frozenset({"Committed", "Pending", "Failed"})
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_NAMED: Final = re.compile(r"(?<![\w.-])([\w.-]++)(\\*+[\"']?\s*+[=:]\s*+)")
"""A name and what stands between it and its value: ``password=``, ``"secret.key": ``."""
_VALUE: Final = re.compile(
    r"(?:(?:bearer|basic|digest|negotiate|aws4-hmac-sha256)\s++)?+"
    r"(?:(?P<escaped>\\++[\"'])"
    # a quote that is doubled stands for itself
    r"|(?:\"(?:[^\"\\]|\\.)*+(?:\"|\Z))++|(?:'(?:[^'\\]|\\.)*+(?:'|\Z))++"
    r"|\[[^\]]*+(?:\]|\Z)|\{[^}]*+(?:\}|\Z)"
    r"|[^\s&;,\"'\)\]}]++)",
    re.IGNORECASE | re.DOTALL,
)

_WORD: Final = re.compile(r"[^\s\"'<>]++")
_KNOWN: Final = (
    r"(?:s3[an]?|gs|az|azure|adl|abfss?|wasbs?|rediss?|https?|hdfs|jdbc|postgres(?:ql)?|mysql"
    r"|mariadb|mongodb(?:\+srv)?|amqps?|s?ftp|kafka|rocksdb|memory|file)"
)
_SCHEME: Final = re.compile(
    # with a slash anything may be a scheme; without one, as a mistyped URL has it, only these
    rf"(?<![\w+.-])(?:[A-Za-z][\w+.-]*+:/++|{_KNOWN}:(?!/))",
    re.IGNORECASE,
)
_BROKEN_URL: Final = re.compile(rf"[A-Za-z][\w+.-]++:/(?!/)|{_KNOWN}:(?!/)", re.IGNORECASE)
_WITH_PASSWORD: Final = re.compile(r"[A-Za-z][\w+.-]*+:/*+[^/?#:@]*+:[^@]*+@")
_USER_IS_SECRET: Final = re.compile(r"https?:", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether the value of an option, setting or field of this name should not be shown."""
    return _ends_as_secret(name[-_LONGEST_NAME:])


@lru_cache(maxsize=1024)
def _ends_as_secret(end: str) -> bool:
    """The same by the end of a name; documents repeat few names very many times."""
    if end.isascii() and not any(map(end.lower().__contains__, _IN_SECRET_NAMES)):
        return False
    return _SECRET_NAME.search(end) is not None or (
        not end.isupper() and _SECRET_NAME.search(_CAMEL.sub("_", end)) is not None
    )


def redacted(text: str) -> str:
    """The text with ``***`` for the password of a URL and for values with the name of a secret."""
    if "@" in text:
        text = _WORD.sub(lambda word: _without_user(word[0]), text)
    if "PRIVATE KEY-----" in text:
        text = _PRIVATE_KEY.sub(rf"\1{HIDDEN}", text)
    return _without_named(text) if "=" in text or ":" in text else text


def without_user(url: str) -> str:
    """A URL, however mistyped, without user and password: these may hold any character."""
    at = url.rfind("@")
    scheme = re.match(r"[A-Za-z][\w+.-]*+:/*+", url)
    if scheme is None or at < scheme.end():
        return redacted(url)
    return redacted(f"{scheme[0]}{HIDDEN}{url[at:]}")


def is_broken_url(text: str) -> bool:
    """Whether a text was meant as a URL and has lost its slashes, as one does in a ``Path``."""
    return _BROKEN_URL.match(text) is not None


def has_password(url: str) -> bool:
    """Whether a URL carries user and password, also when these hold a slash."""
    return _WITH_PASSWORD.match(url) is not None


def _without_user(word: str) -> str:
    at = word.rfind("@")
    scheme = _SCHEME.search(word, 0, at) if at > 0 else None
    if scheme is None:
        return word
    user = word[scheme.end() : at]
    if ":" not in user and not (user and _USER_IS_SECRET.match(scheme[0])):
        return word
    return f"{word[: scheme.end()]}{HIDDEN}{word[at:]}"


def _without_named(text: str) -> str:
    parts: list[str] = []
    done = 0
    for name in _NAMED.finditer(text):
        if name.start() < done or not is_secret_name(name[1]):
            continue
        value = _VALUE.match(text, name.end())
        if value is None:
            continue
        end = value.end()
        if mark := value["escaped"]:  # JSON inside of JSON
            close = text.find(mark, end)
            end = close + len(mark) if close >= 0 else len(text)
        parts += [text[done : name.end()], HIDDEN]
        done = end
    return "".join([*parts, text[done:]]) if parts else text


class Redactor:
    """Hides the secret values of some options wherever they appear, and what looks like one."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        forms = {form for value in _secret_values(options) for form in _forms(value)}
        self._values = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, HIDDEN)
        return redacted(text)


def _forms(value: str) -> set[str]:
    """How a value may be written down: as it is, in a URL, in JSON, by ``repr``."""
    return {value, quote(value), quote(value, safe=""), json.dumps(value)[1:-1], repr(value)[1:-1]}


def _secret_values(options: Mapping[str, Any]) -> list[str]:
    values: list[str] = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            values += _secret_values(value)
        elif isinstance(value, str) and len(value) >= _SHORTEST and is_secret_name(name):
            values.append(value)
    return values


def storage_option_redactor(options: Mapping[str, str]) -> Callable[[str], str]:
    """Hides the value of every storage option that may be a secret, and any other secret.

    A short value whose name does not suggest a secret is hidden only where it is a whole word.
    """
    values = {value for name, value in options.items() if _may_be_secret(name, value)}
    patterns = [_value_pattern(value) for value in sorted(values, key=len, reverse=True)]
    known = Redactor(options)

    def redact(text: str) -> str:
        for pattern in patterns:
            text = pattern.sub(HIDDEN, text)
        return known(text)

    return redact


def _may_be_secret(name: str, value: str) -> bool:
    if len(value) < _SHORTEST or value.lower() in _ORDINARY_WORDS:
        return False
    return not _HARMLESS_OPTION.fullmatch(name)


def _value_pattern(value: str) -> re.Pattern[str]:
    bare = re.escape(value)
    return re.compile(bare if len(value) >= _LONG_VALUE else rf"(?<!\w){bare}(?!\w)")


def redacted_document(
    document: Any, redact: Callable[[str], str] = redacted, depth: int = 0
) -> Any:
    """A document made of JSON values without secrets, which are also known by their members' names.

    What is nested deeper than any document of ours is left out.
    """
    if isinstance(document, str):
        return redact(document)
    if isinstance(document, Mapping | list | tuple) and depth >= DEEPEST:
        return TOO_DEEP
    if isinstance(document, Mapping):
        return {
            redact(str(name)): HIDDEN
            if _is_secret(str(name), value)
            else redacted_document(_without_texts(str(name), value), redact, depth + 1)
            for name, value in document.items()
        }
    if isinstance(document, list | tuple):
        return [redacted_document(item, redact, depth + 1) for item in document]
    return document


def _without_texts(name: str, value: Any) -> Any:
    """A list of passwords with none of them; it stays a list, and anything else as it is."""
    if isinstance(value, list | tuple) and _PASSWORD.search(name[-_LONGEST_NAME:]):
        return [HIDDEN if isinstance(item, str) else item for item in value]
    return value


def _is_secret(name: str, value: object) -> bool:
    if isinstance(value, str):
        # a sink may be called 'tokens', and its status is not a secret
        return value not in _STATUSES and is_secret_name(name)
    # nor is the watermark of such a source
    return isinstance(value, int | float) and _PASSWORD.search(name[-_LONGEST_NAME:]) is not None
