"""What differs between two pipeline topologies, described for the person who changed it.

Tests: ``tests/progress/test_policy.py``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

_ORDER: Final = ("name", "output_mode", "state_partitions", "sources", "operators", "sinks")
_NAMED_THINGS: Final = {"sources": "source", "sinks": "sink"}
_LONGEST: Final = 60
_PLAIN_KEY: Final = re.compile(r"[\w.-]+")


def changes(old: Any, new: Any) -> Iterator[str]:
    """A sentence for each difference of two parsed structures, in a stable order."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        yield from _value("the structure", old, new)
        return
    for key in sorted(old.keys() | new.keys(), key=_rank):
        # an empty group and none at all differ, which only the general sentence can say
        before, after = old.get(key, {}), new.get(key, {})
        if key in _NAMED_THINGS and _are_groups(before, after) and before != after:
            yield from _group(_NAMED_THINGS[key], before, after)
        elif key not in old or key not in new:
            yield _one_sided(_key(key), old, new, key)
        elif key == "operators" and _are_texts(before) and _are_texts(after):
            yield from _operators(before, after)
        else:
            yield from _value(_key(key), before, after)


def _rank(key: str) -> tuple[int, str]:
    """What a reader looks for first comes first; keys that are not known come last, sorted."""
    return (_ORDER.index(key) if key in _ORDER else len(_ORDER), key)


def _group(kind: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """Sources or sinks: which came, which went, and what changed in those that stayed."""
    for name in sorted(old.keys() - new.keys()):
        yield f"{kind} {name!r} was removed"
    for name in sorted(new.keys() - old.keys()):
        yield f"{kind} {name!r} was added"
    for name in sorted(old.keys() & new.keys()):
        yield from (f"{kind} {name!r}: {change}" for change in _details(old[name], new[name]))


def _details(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """What changed in one source or one sink."""
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key, {}), new.get(key, {})
        if key == "options" and _are_mappings(before, after) and before != after:
            yield from _members("option ", before, after)
        elif key not in old or key not in new:
            yield _one_sided(_key(key), old, new, key)
        elif key == "columns" and _are_columns(before) and _are_columns(after):
            yield from _columns(before, after)
        else:
            yield from _value(_key(key), before, after)


def _columns(old: Any, new: Any) -> Iterator[str]:
    """Columns by name and type; their order counts as well."""
    before: dict[str, str] = dict(old)
    after: dict[str, str] = dict(new)
    for name in before:
        if name not in after:
            yield f"column {name!r} was removed"
    for name, kind in after.items():
        if name not in before:
            yield f"column {name!r} was added ({kind})"
        elif before[name] != kind:
            yield f"column {name!r} was {before[name]}, is {kind}"
    kept_before = [name for name in before if name in after]
    kept_after = [name for name in after if name in before]
    if kept_before != kept_after:
        yield f"columns were in the order {', '.join(before)}, are {', '.join(after)}"


def _operators(old: list[str], new: list[str]) -> Iterator[str]:
    """Stateful operators: Spark knows each by its place in the plan, so the order counts."""
    gone, came = Counter(old) - Counter(new), Counter(new) - Counter(old)
    for name in sorted(gone.elements()):
        yield f"operator {name!r} was removed"
    for name in sorted(came.elements()):
        yield f"operator {name!r} was added"
    kept_before = _kept(old, gone)
    kept_after = _kept(new, came)
    if kept_before != kept_after:
        yield f"operators were in the order {', '.join(old)}, are {', '.join(new)}"


def _kept(names: list[str], dropped: Counter[str]) -> list[str]:
    """The names without those that were dropped; of equal ones the last are dropped."""
    left = dropped.copy()
    kept = []
    for name in reversed(names):
        if left[name]:
            left[name] -= 1
        else:
            kept.append(name)
    return kept[::-1]


def _members(prefix: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for key in sorted(old.keys() | new.keys()):
        place = prefix + _key(key)
        if key in old and key in new:
            yield from _value(place, old[key], new[key])
        else:
            yield _one_sided(place, old, new, key)


def _value(place: str, old: Any, new: Any) -> Iterator[str]:
    """Any two values: into the depth as long as both are of one kind."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _members(f"{place}.", old, new)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            item = f"{place}[{index}]"
            if index >= len(new):
                yield f"{item} was removed (it was {_shown(old[index])})"
            elif index >= len(old):
                yield f"{item} was added ({_shown(new[index])})"
            else:
                yield from _value(item, old[index], new[index])
    elif _text(old) != _text(new):  # not by ==, for which 1, 1.0 and true are the same
        yield f"{place} was {_shown(old)}, is {_shown(new)}"


def _one_sided(place: str, old: dict[str, Any], new: dict[str, Any], key: str) -> str:
    """The sentence for a member that only one side has."""
    if key in new:
        return f"{place} was added ({_shown(new[key])})"
    return f"{place} was removed (it was {_shown(old[key])})"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _shown(value: Any) -> str:
    """A value for people; only of a collection the end may be left out."""
    if isinstance(value, str):
        return repr(value)
    text = _text(value)
    if isinstance(value, dict | list) and len(text) > _LONGEST:
        return f"{text[: _LONGEST - 1]}…"
    return text


def _key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else repr(key)


def _are_groups(*values: Any) -> bool:
    """Whether each is a mapping of names to mappings."""
    return _are_mappings(*values) and all(_are_mappings(*value.values()) for value in values)


def _are_mappings(*values: Any) -> bool:
    return all(isinstance(value, dict) for value in values)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _are_columns(value: Any) -> bool:
    """Whether it is a list of (name, type) whose names differ."""
    pairs = isinstance(value, list) and all(_are_texts(i) and len(i) == 2 for i in value)
    return pairs and len({name for name, _ in value}) == len(value)
