"""Keeps passwords and keys out of messages. What a secret looks like is told in one place."""

from seamark._secrets import (
    HIDDEN,
    Redactor,
    has_password,
    is_broken_url,
    redacted,
    redacted_document,
    without_user,
)

__all__ = [
    "HIDDEN",
    "Redactor",
    "has_password",
    "is_broken_url",
    "redacted",
    "redacted_document",
    "without_user",
]
