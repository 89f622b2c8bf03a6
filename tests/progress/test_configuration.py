"""The configuration's hash is stable, and a change of configuration is told in words."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.errors import InvalidInputError
from seamark.progress.configuration import (
    canonical_json,
    config_hash,
    explain_change,
    fnv1a_64,
    hash_text,
)

DRASI_TEXT = (
    '{"query":"MATCH (n) RETURN n","query_language":"Cypher","middleware":[],'
    '"sources":[{"source_id":"s1","nodes":["A"],"relations":[],"pipeline":[]}],"joins":null}'
)

TOPOLOGY: dict[str, Any] = {
    "name": "trades",
    "output_mode": "append",
    "state_partitions": 4,
    "sources": {"trades": {"format": "rate", "options": {"rowsPerSecond": "10"}}},
    "sinks": {
        "bars": {
            "kind": "files",
            "target": "/data/bars",
            "options": {"format": "parquet"},
            "columns": [["k", "int"], ["total", "bigint"]],
        },
        "large": {"kind": "files", "target": "/data/large", "options": {}, "columns": []},
    },
    "operators": ["stateStoreSave", "dedupe"],
}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
finite = scalars.filter(lambda value: not isinstance(value, float) or abs(value) != float("inf"))
structures = st.recursive(
    finite,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(["a", "b", "c"])
parts = st.dictionaries(
    st.sampled_from(["format", "kind", "options", "columns"]),
    st.dictionaries(names, finite, max_size=2)
    | st.lists(st.lists(names, min_size=2, max_size=2), max_size=3)
    | finite,
    max_size=3,
)
topologies = st.dictionaries(
    st.sampled_from(["name", "state_partitions", "sources", "sinks", "operators", "other"]),
    st.dictionaries(names, parts, max_size=3) | st.lists(names, max_size=4) | structures,
    max_size=4,
)


def changed(*path: str, to: Any) -> dict[str, Any]:
    """A copy of the topology with the value at ``path`` replaced."""
    copy: dict[str, Any] = json.loads(json.dumps(TOPOLOGY))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    return copy


def without(*path: str) -> dict[str, Any]:
    """A copy of the topology without the value at ``path``."""
    copy = changed(*path, to=None)
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return copy


def shuffled(value: Any, order: Any) -> Any:
    """The same structure, its dictionaries filled in another order."""
    if isinstance(value, dict):
        keys = list(value)
        order.shuffle(keys)
        return {key: shuffled(value[key], order) for key in keys}
    return [shuffled(item, order) for item in value] if isinstance(value, list) else value


def same_json(left: Any, right: Any) -> bool:
    """Equality that tells 1, 1.0 and True apart, and 0.0 from -0.0, as JSON texts do."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_json, left, right))
    return type(left) is type(right) and repr(left) == repr(right)


def test_the_hash_is_drasis() -> None:
    assert hash_text(DRASI_TEXT) == 15788932903817395036


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)],
)
def test_fnv1a_gives_its_authors_published_values(data: bytes, expected: int) -> None:
    assert fnv1a_64(data) == expected


def test_the_hash_is_the_same_in_another_process() -> None:
    code = (
        "import json, sys; from seamark.progress.configuration import config_hash;"
        "print(config_hash(json.load(sys.stdin)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(TOPOLOGY),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == config_hash(TOPOLOGY) == 346128143866930092


def test_canonical_json_is_compact_sorted_and_readable() -> None:
    assert canonical_json({"b": [1, 2.5, None], "a": {"ü": True}}) == (
        '{"a":{"ü":true},"b":[1,2.5,null]}'
    )
    assert config_hash({"b": 1, "a": "ü"}) == hash_text('{"a":"ü","b":1}')


def test_a_tuple_hashes_like_the_list_that_it_becomes() -> None:
    assert config_hash({"columns": [("k", "int")]}) == config_hash({"columns": [["k", "int"]]})


@given(structures, st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(structure: Any, order: Any) -> None:
    assert canonical_json(shuffled(structure, order)) == canonical_json(structure)


@given(structures)
def test_canonical_json_reads_back_as_what_it_was(structure: Any) -> None:
    assert same_json(json.loads(canonical_json(structure)), structure)


@given(structures | topologies, structures | topologies)
def test_different_structures_have_different_texts(left: Any, right: Any) -> None:
    assert (canonical_json(left) == canonical_json(right)) is same_json(left, right)


def test_the_order_of_a_list_matters() -> None:
    assert config_hash(["a", "b"]) != config_hash(["b", "a"])


def endless() -> list[Any]:
    """A list that contains itself."""
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (float("nan"), "the number at sinks.bars.options.x is not finite"),
        (float("inf"), "not finite"),
        (b"bytes", "bytes at sinks.bars.options.x is not a JSON value"),
        ({1, 2}, "set at"),
        (object(), "object at"),
        ({1: "one"}, "a key at sinks.bars.options.x must be a text, not int"),
        ({True: 1}, "must be a text, not bool"),
        ({"\ud800": 1}, "a key at sinks.bars.options.x is not valid Unicode"),
        ([0, "\ud800"], r"the text at sinks.bars.options.x\[1\] is not valid Unicode"),
        (endless(), "contains itself"),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_what_json_does_not_have_is_refused_with_its_place(value: Any, complaint: str) -> None:
    structure = {"sinks": {"bars": {"options": {"x": value}}}}
    with pytest.raises(InvalidInputError, match=complaint):
        canonical_json(structure)
    with pytest.raises(InvalidInputError, match=complaint):
        config_hash(structure)


def test_a_refusal_does_not_show_the_value() -> None:
    with pytest.raises(InvalidInputError) as caught:
        canonical_json({"password": b"hunter2"})
    assert "hunter2" not in str(caught.value)


def test_text_that_is_no_unicode_cannot_be_hashed() -> None:
    with pytest.raises(InvalidInputError, match="not valid Unicode"):
        hash_text("\ud800")


@pytest.mark.parametrize(
    ("new", "sentences"),
    [
        (TOPOLOGY, []),
        (changed("state_partitions", to=8), ["state_partitions was 4, is 8"]),
        (changed("name", to="quotes"), ["name was 'trades', is 'quotes'"]),
        (without("output_mode"), ["output_mode was removed (it was 'append')"]),
        (without("sinks", "large"), ["sink 'large' was removed"]),
        (changed("sources", "quotes", to={"format": "rate"}), ["source 'quotes' was added"]),
        (
            changed("sinks", "bars", "options", "format", to="json"),
            ["sink 'bars': option format was 'parquet', is 'json'"],
        ),
        (
            changed("sinks", "bars", "options", "partition_by", to=["k"]),
            ["sink 'bars': option partition_by was added ([\"k\"])"],
        ),
        (
            without("sources", "trades", "options"),
            ["source 'trades': option rowsPerSecond was removed (it was '10')"],
        ),
        (
            without("sinks", "large", "options"),
            ["sink 'large': options was removed (it was {})"],
        ),
        (
            changed("sinks", "bars", "target", to="/data/other"),
            ["sink 'bars': target was '/data/bars', is '/data/other'"],
        ),
        (
            changed("sinks", "bars", "columns", to=[["total", "double"], ["k", "int"]]),
            [
                "sink 'bars': column 'total' was bigint, is double",
                "sink 'bars': columns were in the order k, total, are total, k",
            ],
        ),
        (
            changed("sinks", "bars", "columns", to=[["k", "int"], ["day", "date"]]),
            [
                "sink 'bars': column 'total' was removed",
                "sink 'bars': column 'day' was added (date)",
            ],
        ),
        (changed("operators", to=["stateStoreSave"]), ["operator 'dedupe' was removed"]),
        (
            changed("operators", to=["dedupe", "dedupe", "stateStoreSave"]),
            [
                "operator 'dedupe' was added",
                "operators were in the order stateStoreSave, dedupe, "
                "are dedupe, dedupe, stateStoreSave",
            ],
        ),
    ],
)
def test_a_change_is_told_in_words(new: Any, sentences: list[str]) -> None:
    assert explain_change(TOPOLOGY, new) == sentences
    assert explain_change(canonical_json(TOPOLOGY), canonical_json(new)) == sentences


def test_several_changes_come_in_the_order_in_which_a_reader_looks() -> None:
    new = changed("sinks", "bars", "kind", to="memory")
    new["state_partitions"] = 8
    new["sources"] = {"quotes": {"format": "rate"}}
    new["zone"] = {"of day": [1]}
    assert explain_change(TOPOLOGY, new) == [
        "state_partitions was 4, is 8",
        "source 'trades' was removed",
        "source 'quotes' was added",
        "sink 'bars': kind was 'files', is 'memory'",
        'zone was added ({"of day":[1]})',
    ]


def test_any_other_place_is_named_by_its_path() -> None:
    old = {"a": {"b c": [1, {"d": None}], "e": 1}}
    new = {"a": {"b c": [1, {"d": False}, 2], "e": 1.0}}
    assert explain_change(old, new) == [
        "a.'b c'[1].d was null, is false",
        "a.'b c'[2] was added (2)",
        "a.e was 1, is 1.0",
    ]
    assert explain_change([1], {"a": 1}) == ['the structure was [1], is {"a":1}']


def test_a_long_collection_is_cut_and_a_long_text_is_not() -> None:
    (sentence,) = explain_change({"x": list(range(100))}, {"x": "y" * 100})
    assert sentence == f"x was [{','.join(map(str, range(100)))}"[:65] + f"…, is '{'y' * 100}'"


@given(topologies | structures, topologies | structures)
def test_no_change_goes_untold_and_none_is_invented(old: Any, new: Any) -> None:
    before, after = canonical_json(old), canonical_json(new)
    assert bool(explain_change(before, after)) is (before != after)


@given(topologies)
def test_a_structure_has_not_changed_against_itself(structure: Any) -> None:
    assert explain_change(structure, canonical_json(structure)) == []


@pytest.mark.parametrize("text", ["", "{", "[NaN]", "[1e999]", "[" * 100_000])
def test_a_text_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        explain_change(text, {})
