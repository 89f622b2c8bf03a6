"""Every public name and every option of a command has its place in the reference."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from seamark import errors
from seamark.cli.app import app

ROOT: Final = Path(__file__).resolve().parents[2]
MODULES: Final = (
    "seamark",
    "seamark.manifest",
    "seamark.progress",
    "seamark.sinks",
    "seamark.sources",
    "seamark.state",
    "seamark.store",
    "seamark.testing",
)
COMMON: Final = {"--json", "--quiet", "--verbose", "--storage-option", "--help", "--version"}
"""Options of every command; they are at the top of the page."""


def documented() -> dict[str, Any]:
    """Every object that a page of the reference shows, by its name there."""
    pages = [path.read_text(encoding="utf-8") for path in ROOT.glob("docs/reference/*.md")]
    names = [name for page in pages for name in re.findall(r"^::: ([\w.]+)$", page, re.M)]
    assert len(names) == len(set(names)), "a name is shown twice"
    return {name: named(name) for name in names}


def named(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def public_errors() -> list[str]:
    found = vars(errors).items()
    return [name for name, value in found if inspect.isclass(value) and not name.startswith("_")]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    shown = documented()
    for name in importlib.import_module(module).__all__:
        path = f"{module}.{name}"
        value = named(path)
        elsewhere = any(value is each for each in shown.values() if not isinstance(each, int | str))
        assert path in shown or elsewhere, f"docs/reference lacks {path}"


def test_every_error_is_in_the_reference() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    missing = [name for name in public_errors() if f"::: seamark.errors.{name}\n" not in page]
    assert missing == []
    tree = (errors.__doc__ or "").partition("::\n")[2].partition("\nAn error says")[0]
    assert [line.strip() for line in tree.splitlines() if line.strip()] == [
        line.strip() for line in re.findall(r"^```\n(.*?)^```$", page, re.S | re.M)[0].splitlines()
    ]


def every_command(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from every_command(command, (*words, name))
        else:
            yield (*words, name)


def command_of(words: tuple[str, ...]) -> click.Command:
    found: click.Command = app
    for word in words:
        assert isinstance(found, click.Group)
        below = found.get_command(click.Context(found), word)
        assert below is not None, f"there is no command {' '.join(words)}"
        found = below
    return found


def options_of(command: click.Command) -> set[str]:
    longest = [max(each.opts, key=len) for each in command.params if isinstance(each, click.Option)]
    return set(longest) - COMMON


@pytest.mark.parametrize("words", list(every_command(app)), ids=" ".join)
def test_every_option_of_a_command_is_in_its_section(words: tuple[str, ...]) -> None:
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    name = " ".join(words)
    sections = re.findall(rf"^### `seamark {name}(?: [^`]*)?`\n.*?(?=^##|\Z)", page, re.M | re.S)
    assert len(sections) == 1, f"docs/cli.md has {len(sections)} sections of {name}"
    missing = [each for each in options_of(command_of(words)) if each not in sections[0]]
    assert missing == [], f"docs/cli.md does not say what these do: seamark {name}"


def test_every_option_that_a_section_names_exists() -> None:
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    known = COMMON.union(*(options_of(command_of(words)) for words in every_command(app)))
    named_there = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page))
    assert named_there - known == set()


def test_the_site_has_two_plugins_fetches_no_font_and_minds_dead_links() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    site = yaml.safe_load(re.sub(r"!!python/\S+", "", text))  # only MkDocs makes objects
    assert [each if isinstance(each, str) else next(iter(each)) for each in site["plugins"]] == [
        "search",
        "mkdocstrings",
    ]
    assert site["theme"]["font"] is False
    assert {*site["validation"]["links"].values(), *site["validation"]["nav"].values()} == {"warn"}
