"""Docstrings as Markdown, for the reference on the documentation site; an extension of Griffe.

They are written for a terminal and an editor. Three marks of theirs are not Markdown: the roles
(``:class:`Pipeline```), the two colons before an indented example, and doctests without a fence.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([\w.]+)`")
_EXAMPLE = re.compile(r"::\n\n((?: {4}.*(?:\n|\Z)|\n(?= {4}))+)")
_ALONE = re.compile(r"^:(?=\n)", re.M)
_DOCTEST = re.compile(r"^( *)>>> .*(?:\n\1\S.*)*", re.M)
_TESTS = re.compile(r"\n+Tests: ``[^`]+``(?:, ``[^`]+``)*\.?\s*\Z")


def as_markdown(docstring: str) -> str:
    """The same text without marks that Markdown does not know."""
    text = _TESTS.sub("", docstring)
    text = _ROLE.sub(r"`\1`", text)
    text = _EXAMPLE.sub(_fenced_example, text)
    return _DOCTEST.sub(_fenced_doctest, _ALONE.sub("", text))


def _fenced_example(found: re.Match[str]) -> str:
    lines = [line.removeprefix("    ") for line in found[1].rstrip("\n").split("\n")]
    language = "python" if any("(" in line or "import" in line for line in lines) else "text"
    return ":\n\n" + "\n".join([f"```{language}", *lines, "```"]) + "\n"


def _fenced_doctest(found: re.Match[str]) -> str:
    return f"{found[1]}```pycon\n{found[0]}\n{found[1]}```"


class MarkdownDocstrings(Extension):
    """Have every docstring that is collected in Markdown."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Griffe calls it for each object that it has collected."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
