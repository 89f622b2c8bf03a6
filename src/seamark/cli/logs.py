"""Log lines of a command: on stderr, and with nothing of the storage options in them."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from seamark.cli.visible import visible

_SHORTEST: Final = 4  # hiding shorter values would garble ordinary words
_LONG: Final = 12  # longer ones are in no ordinary word
_ORDINARY: Final = frozenset({"true", "false", "none"})
_HARMLESS: Final = re.compile(
    r"(?:aws_|google_|azure_)?(?:default_)?(?:region|allow_http|virtual_hosted_style_request"
    r"|conditional_put|copy_if_not_exists|skip_signature|checksum(?:_algorithm)?"
    r"|(?:connect_)?timeout|unsigned_payload|imdsv1_fallback|use_emulator|use_fabric_endpoint)",
    re.IGNORECASE,
)
"""Names of options whose values are no secret, and often ordinary words."""


def redactor(options: Mapping[str, str]) -> Callable[[str], str]:
    """What hides the value of every storage option that may be one, and any other secret.

    A short value of a name that tells no secret is hidden where it stands as a word of its own.
    """
    from seamark._redaction import HIDDEN, Redactor

    values = {v for name, v in options.items() if _may_be_secret(name, v)}
    patterns = [_pattern(value) for value in sorted(values, key=len, reverse=True)]
    known = Redactor(options)

    def redact(text: str) -> str:
        for pattern in patterns:
            text = pattern.sub(HIDDEN, text)
        return known(text)

    return redact


def _may_be_secret(name: str, value: str) -> bool:
    if len(value) < _SHORTEST or value.lower() in _ORDINARY:
        return False
    return not _HARMLESS.fullmatch(name)


def _pattern(value: str) -> re.Pattern[str]:
    bare = re.escape(value)
    return re.compile(bare if len(value) >= _LONG else rf"(?<!\w){bare}(?!\w)")


class _Lines(logging.Handler):
    """Writes ``warning: …`` to whatever stderr is now."""

    def __init__(self) -> None:
        super().__init__()
        self.options: Mapping[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; what cannot be written is given up, as logging does."""
        try:
            line = f"{record.levelname.lower()}: {self.format(record)}"
            told = visible(redactor(self.options)(line), lines=True)
            # a second line never looks like one of its own
            sys.stderr.write(told.replace("\n", "\n  ") + "\n")
        except Exception:  # noqa: BLE001 - logging's own way of telling
            self.handleError(record)


_lines: Final = _Lines()


def hide(options: Mapping[str, str]) -> None:
    """Keep these storage options out of every log line from here on."""
    _lines.options = options


@contextmanager
def log_lines() -> Iterator[None]:
    """Have Seamark's log lines shown for as long as a command runs: warnings, unless asked."""
    logger = logging.getLogger("seamark")
    before = logger.level
    hide({})
    logger.setLevel(logging.WARNING)
    logger.addHandler(_lines)
    try:
        yield
    finally:
        logger.removeHandler(_lines)
        logger.setLevel(before)
