"""The last step before anything is printed: no secrets, and nothing that a terminal would obey."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from seamark._redaction import redacted_document
from seamark.cli.logs import redactor
from seamark.cli.settings import settings
from seamark.cli.visible import visible


def shown(text: str) -> str:
    """A text on one line: line ends in it are shown as such, so that none can look like a row."""
    return visible(_redact()(text))


def shown_lines(text: str) -> list[str]:
    """A text of several lines, as errors have them."""
    return visible(_redact()(text), lines=True).split("\n")


def without_secrets(document: Any) -> Any:
    """A document made of JSON values, where a member's name can also tell that it is secret."""
    return redacted_document(document, _redact())


def _redact() -> Callable[[str], str]:
    return _redactor(tuple(settings().storage_options.items()))


@lru_cache(maxsize=4)
def _redactor(options: tuple[tuple[str, str], ...]) -> Callable[[str], str]:
    return redactor(dict(options))
