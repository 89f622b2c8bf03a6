"""One number for a pipeline's configuration, and what differs between two of them.

The hash is FNV-1a 64 over canonical JSON and one byte 0xFF, as drasi computes it: the same on every
machine and in every version. Python's own ``hash`` differs from process to process.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from seamark._common.text import shortened
from seamark.errors import InvalidInputError
from seamark.limits import LONGEST_PREFIX

_OFFSET_BASIS: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3
_MASK: Final = 2**64 - 1
_ORDER: Final = ("name", "output_mode", "state_partitions", "sources", "operators", "sinks")
_LONGEST: Final = 60
_Described = Mapping[str, tuple[Callable[[Any], bool], Callable[[Any, Any], Iterator[str]]]]
"""Members that are described in their own way, where both sides are as that expects."""
_PLAIN_KEY: Final = re.compile(r"[\w.-]+")


def fnv1a_64(data: bytes) -> int:
    """The FNV-1a hash of some bytes, from 0 to 2**64 - 1."""
    value = _OFFSET_BASIS
    for byte in data:
        value = (value ^ byte) * _PRIME & _MASK
    return value


def hash_text(text: str) -> int:
    """The hash of a text: FNV-1a 64 over its UTF-8 bytes and one byte 0xFF.

    The last byte is what Rust appends when it hashes a string; no UTF-8 text contains it.
    """
    try:
        return fnv1a_64(text.encode() + b"\xff")
    except UnicodeEncodeError:
        raise InvalidInputError("a text to be hashed is not valid Unicode") from None


def canonical_json(structure: Any) -> str:
    """The one JSON text of a structure: compact, keys sorted, nothing escaped that need not be.

    Tuples are written as lists. :class:`InvalidInputError` with the place of anything else that
    JSON does not have; the value itself is not shown, for it may be a secret.
    """
    try:
        _check(structure, "")
        return json.dumps(
            structure, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
        )
    except RecursionError:
        raise InvalidInputError("the structure contains itself, or is nested too deeply") from None


def config_hash(structure: Any) -> int:
    """The hash of a structure's canonical JSON, whatever the order of its keys."""
    return hash_text(canonical_json(structure))


def explain_change(old: Any, new: Any) -> list[str]:
    """What differs between two structures, a sentence each; empty when their hashes are equal.

    A structure is JSON values or, when it is a ``str``, a JSON text::

        >>> explain_change({"state_partitions": 4}, '{"state_partitions":8}')
        ['state_partitions was 4, is 8']
    """
    before, after = _parsed(old), _parsed(new)
    if isinstance(before, dict) and isinstance(after, dict):
        return list(_members("", before, after, _TOPOLOGY))
    return list(_value("the structure", before, after))


def _parsed(structure: Any) -> Any:
    """The structure made of nothing but what JSON gives back, from values or from a text."""
    text = structure if isinstance(structure, str) else canonical_json(structure)
    try:
        parsed = json.loads(text)
        # Python reads NaN, lone surrogates and numbers too large for a float; JSON has none
        _check(parsed, "")
    except RecursionError:
        raise InvalidInputError("the JSON text is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"not a JSON text: {error.msg} (character {error.pos})") from None
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidInputError(f"not a JSON text of a structure: {error}") from None
    return parsed


def _check(value: Any, place: str) -> None:
    """Refuse what JSON does not have, and what ``json`` would quietly turn into something else."""
    match value:
        case None | bool() | int():
            return
        case str():
            _check_unicode(value, f"the text{_at(place)}")
        case float():
            if not math.isfinite(value):
                raise InvalidInputError(f"the number{_at(place)} is not finite")
        case list() | tuple():
            for index, item in enumerate(value):
                _check(item, _place(place, f"[{index}]"))
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise InvalidInputError(
                        f"a key{_at(place)} must be a text, not {type(key).__name__}"
                    )
                _check_unicode(key, f"a key{_at(place)}")
                _check(item, _place(place, f".{key}" if place else key))
        case _:
            raise InvalidInputError(f"{type(value).__name__}{_at(place)} is not a JSON value")


def _check_unicode(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{what} is not valid Unicode") from None


def _at(place: str) -> str:
    return f" at {place}" if place else ""


# what differs


def _members(
    prefix: str, old: dict[str, Any], new: dict[str, Any], described: _Described | None = None
) -> Iterator[str]:
    """A sentence for each difference of two mappings, in a stable order."""
    for key in sorted(old.keys() | new.keys(), key=_rank if described is _TOPOLOGY else None):
        # an empty group and none at all differ, which only the general sentence can say
        before, after = old.get(key, {}), new.get(key, {})
        expects, describe = (described or {}).get(key, (None, None))
        place = _place(prefix, _key(key))
        if expects and describe and expects(before) and expects(after) and before != after:
            yield from describe(before, after)
        elif key in old and key in new:
            yield from _value(place, before, after)
        elif key in new:
            yield f"{place} was added ({_shown(after)})"
        else:
            yield f"{place} was removed (it was {_shown(before)})"


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
        changes = _members("", old[name], new[name], _SOURCE_OR_SINK)
        place = f"{kind} {_place('', name)!r}"
        yield from (f"{place}: {change}" for change in changes)


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


def _value(place: str, old: Any, new: Any) -> Iterator[str]:
    """Any two values: into the depth as long as both are of one kind."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _members(f"{place}.", old, new)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            item = _place(place, f"[{index}]")
            if index >= len(new):
                yield f"{item} was removed (it was {_shown(old[index])})"
            elif index >= len(old):
                yield f"{item} was added ({_shown(new[index])})"
            else:
                yield from _value(item, old[index], new[index])
    elif _text(old) != _text(new):  # not by ==, for which 1, 1.0 and true are the same
        yield f"{place} was {_shown(old)}, is {_shown(new)}"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _shown(value: Any) -> str:
    """A value for people; only of a collection the end may be left out."""
    if isinstance(value, str):
        return repr(value)
    text = _text(value)
    return shortened(text, _LONGEST) if isinstance(value, dict | list) else text


def _place(before: str, part: str) -> str:
    """Where a member is, for people; of a long place the beginning is left out."""
    place = f"{before}{part}"
    return place if len(place) <= LONGEST_PREFIX else f"…{place[-LONGEST_PREFIX:]}"


def _key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else repr(key)


def _is_group(value: Any) -> bool:
    """Whether it is a mapping of names to mappings."""
    return _is_mapping(value) and all(map(_is_mapping, value.values()))


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _are_columns(value: Any) -> bool:
    """Whether it is a list of (name, type) whose names differ."""
    pairs = isinstance(value, list) and all(_are_texts(i) and len(i) == 2 for i in value)
    return pairs and len({name for name, _ in value}) == len(value)


_TOPOLOGY: Final[_Described] = {
    "sources": (_is_group, partial(_group, "source")),
    "operators": (_are_texts, _operators),
    "sinks": (_is_group, partial(_group, "sink")),
}
_SOURCE_OR_SINK: Final[_Described] = {
    "options": (_is_mapping, partial(_members, "option ")),
    "columns": (_are_columns, _columns),
}
