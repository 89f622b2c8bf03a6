"""Texts that a regular expression may be slow for: what each of its repeats takes, very often."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any, Final, NamedTuple

import seamark

_CANDIDATES: Final = "a0A:/.-_ =@{[(\"'\n\\,;#%+"
_ENDLESS: Final = 1_000
_PIECES: Final = (
    *("a", "a.", "/", '"', "\n", " ", "0", "=", "a://", "://", "a=", "{", "[", "(", "-", "\\", "%"),
    *("e\u0301", "@", ":", "a/", "a:", ".0"),
)
_NOT_TRIED: Final = {
    "seamark.spark.java._HOME": "what the user's own Java prints",
    "seamark.spark.plans.plan_reader._LINE": "what our own class prints, and only matched",
    "seamark.spark.plans.plan_reader._EVICTION": "the same",
}
_REPEATS: Final = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
_SEARCHING: Final = {"search", "sub", "subn", "finditer", "findall", "split"}


class Pattern(NamedTuple):
    """A regular expression of the package."""

    name: str
    compiled: re.Pattern[Any]
    searches: bool
    """Whether it is searched for, and not only matched at a place."""

    def run(self, text: str) -> None:
        """Look for it as the package does."""
        data: Any = text if isinstance(self.compiled.pattern, str) else text.encode()
        self.compiled.match(data)
        self.compiled.fullmatch(data)
        if self.searches:
            for _ in self.compiled.finditer(data):
                pass

    def texts(self, size: int) -> Iterator[str]:
        """What may be slow, of about so many characters."""
        source = self.compiled.pattern
        shown = source if isinstance(source, str) else source.decode("latin-1")
        tree = parser.parse(shown, self.compiled.flags & ~re.UNICODE)
        for repeat in _repeats(tree):
            body = _sample(repeat) or "a"
            many = max(size // len(body), 1)
            whole = _sample(tree, repeat, many)
            yield from (whole, f"{whole}\0", whole[:-1], body * many + "\0")
            once = _sample(tree, repeat, 1)
            yield from (each * (size // max(len(each), 1)) for each in (once, once[:-1] or "a"))
        for piece in _PIECES:
            yield piece * (size // len(piece))


def patterns() -> list[Pattern]:
    """All that the modules of the package keep."""
    found: dict[tuple[Any, int], Pattern] = {}
    for info in pkgutil.walk_packages(seamark.__path__, "seamark."):
        if info.name.endswith("__main__") or ".testing" in info.name:
            continue
        module = import_module(info.name)
        searched = _searched(module)
        for name, value in vars(module).items():
            for one in _kept(value):
                key = one.pattern, one.flags
                if f"{info.name}.{name}" in _NOT_TRIED:
                    continue
                searches = name in searched or (key in found and found[key].searches)
                found[key] = Pattern(f"{info.name}.{name}", one, searches)
    return list(found.values())


def _kept(value: Any) -> Iterator[re.Pattern[Any]]:
    values = value.values() if isinstance(value, dict) else value
    for each in values if isinstance(values, Iterable) and not isinstance(values, str) else [value]:
        if isinstance(each, re.Pattern):
            yield each


def _searched(module: ModuleType) -> set[str]:
    """Names in a module whose patterns are searched for, and names that are given elsewhere."""
    tree = ast.parse(inspect.getsource(module))
    matched: set[str] = set()
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            (used if node.attr in _SEARCHING else matched).add(node.value.id)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return used | (names - matched)


# what a parsed expression takes


def _repeats(tree: Any) -> Iterator[Any]:
    for code, value in tree:
        if code in _REPEATS:
            if value[1] is codes.MAXREPEAT or value[1] > _ENDLESS:
                yield value[2]
            yield from _repeats(value[2])
        else:
            for inner in _inside(code, value):
                yield from _repeats(inner)


def _inside(code: Any, value: Any) -> list[Any]:
    if code is codes.SUBPATTERN:
        return [value[-1]]
    if code is codes.BRANCH:
        return list(value[1])
    if code in (codes.ASSERT, codes.ASSERT_NOT):
        return [value[1]]
    return [value] if code is codes.ATOMIC_GROUP else []


def _holds(tree: Any, pumped: Any) -> bool:
    return tree is pumped or any(each is pumped for each in _repeats(tree))


def _sample(tree: Any, pumped: Any = None, times: int = 0) -> str:
    return "".join(_part(code, value, pumped, times) for code, value in tree)


def _part(code: Any, value: Any, pumped: Any, times: int) -> str:
    if code is codes.LITERAL:
        return chr(value)
    if code in (codes.IN, codes.NOT_LITERAL, codes.ANY):
        return _character(code, value)
    if code in _REPEATS:
        least, most, inner = value
        if inner is pumped:
            return _sample(inner) * times
        here = pumped is not None and _holds(inner, pumped)
        return _sample(inner, pumped, times) * (1 if here else max(least, min(most, 1)))
    if code is codes.ASSERT_NOT:
        return ""
    inside = _inside(code, value)
    chosen = next((each for each in inside if _holds(each, pumped)), inside[0] if inside else [])
    return _sample(chosen, pumped, times)


def _character(code: Any, value: Any) -> str:
    if code is codes.ANY:
        return "a"
    if code is codes.NOT_LITERAL:
        return "b" if value == ord("a") else "a"
    wanted = parser.SubPattern(parser.State(), [(code, value)])
    matches = _matcher(wanted)
    literals = [chr(v) for c, v in value if c is codes.LITERAL]
    ranges = [chr(v[0]) for c, v in value if c is codes.RANGE]
    return next((c for c in (*_CANDIDATES, *literals, *ranges) if matches(c)), "a")


def _matcher(tree: Any) -> Any:
    from re import _compiler  # type: ignore[attr-defined]

    return _compiler.compile(tree).fullmatch
