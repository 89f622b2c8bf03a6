"""Data alongside the checkpoints: values as bytes, under bytes, in named spaces."""

from __future__ import annotations

from typing import Any

import pytest

from seamark.errors import InvalidInputError
from seamark.progress import SourceCheckpoint, SourceCheckpointStore
from seamark.testing.conformance.progress_examples import (
    HOSTILE_KEYS,
    HOSTILE_NAMES,
    all_of,
    all_raise,
    commit,
    put,
)


class ProgressData:
    """put, get, delete, clear and the rest."""

    def test_keys_and_values_keep_every_byte(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        expected = {key: key[::-1] for key in HOSTILE_KEYS}
        with store.session() as s:
            for key, value in expected.items():
                s.put("data", key, value)
        for handle in (store, reader):
            assert dict(handle.items("data")) == expected
            assert {key: handle.get("data", key) for key in expected} == expected

    def test_an_empty_value_is_a_value(self, store: SourceCheckpointStore) -> None:
        with store.session() as s:
            s.put("data", b"empty", b"")
            assert s.get("data", b"empty") == b""
        assert store.get("data", b"empty") == b""
        assert [*store.items("data")] == [(b"empty", b"")]

    def test_a_value_of_a_mebibyte_is_kept(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        large = bytes(range(256)) * 4096
        with store.session() as s:
            s.put("data", b"large", large)
        assert reader.get("data", b"large") == large

    def test_thousands_of_keys_fit_into_a_session(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        pairs = [(b"%05d" % number, b"%d" % number) for number in range(2500)]
        with store.session() as s:
            s.put_many("data", pairs)
            s.stage_checkpoint("s", 1)
        assert [*reader.items("data")] == pairs
        with store.session() as s:
            s.delete_many("data", (key for key, _ in pairs[1:]))
        assert [*reader.items("data")] == pairs[:1]

    def test_of_many_values_of_one_key_the_last_counts(self, store: SourceCheckpointStore) -> None:
        with store.session() as s:
            s.put("data", b"a", b"1")
            s.put_many("data", [(b"a", b"2"), (b"b", b"1"), (b"b", b"2")])
            s.put("data", b"c", b"1")
            s.put("data", b"c", b"2")
        assert dict(store.items("data")) == {b"a": b"2", b"b": b"2", b"c": b"2"}

    def test_many_keys_are_read_at_once_in_their_order(self, store: SourceCheckpointStore) -> None:
        pairs = [(b"%05d" % number, b"%d" % number) for number in range(1200)]
        with store.session() as s:
            s.put_many("data", pairs)
        asked = [b"00003", b"never there", b"01199", b"00003", b""]
        with store.session() as s:
            assert s.get_many("data", asked) == [b"3", None, b"1199", b"3", None]
            assert s.get_many("data", [key for key, _ in pairs]) == [value for _, value in pairs]
            assert s.get_many("data", []) == []
            assert s.get_many("elsewhere", asked[:2]) == [None, None]
            s.put("data", b"", b"new")
            s.delete("data", b"00003")
            assert s.get_many("data", asked) == [None, None, b"1199", None, b"new"]
            s.clear("data")
            assert s.get_many("data", asked) == [None] * 5

    def test_deleting_takes_one_key_and_is_harmless_when_it_is_not_there(
        self, store: SourceCheckpointStore
    ) -> None:
        put(store, "data", a="1", b="2")
        with store.session() as s:
            s.delete("data", b"a")
            s.delete("data", b"never there")
            s.delete("no such space", b"a")
            s.put("data", b"c", b"3")
            s.delete("data", b"c")
            s.delete("data", b"d")
            s.put("data", b"d", b"4")
        assert dict(store.items("data")) == {b"b": b"2", b"d": b"4"}

    def test_spaces_do_not_mix(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        expected = {space: {space.encode(): b"%d" % n} for n, space in enumerate(HOSTILE_NAMES)}
        with store.session() as s:
            for space, values in expected.items():
                s.put_many(space, values.items())
        assert all_of(reader, *HOSTILE_NAMES) == ({}, None, expected)

    @pytest.mark.parametrize("wrong", ["", "a\x00b", "x" * 201, "\ud800", b"bytes", None])
    def test_a_name_that_is_no_space_is_refused(
        self, store: SourceCheckpointStore, wrong: Any
    ) -> None:
        with store.session() as s:
            all_raise(
                InvalidInputError,
                "a space",
                lambda: s.put(wrong, b"key", b"value"),
                lambda: s.put_many(wrong, [(b"key", b"value")]),
                lambda: s.delete(wrong, b"key"),
                lambda: s.clear(wrong),
                lambda: s.get(wrong, b"key"),
                lambda: store.get(wrong, b"key"),
                lambda: store.items(wrong),
            )

    @pytest.mark.parametrize("wrong", ["text", 1, None])
    def test_what_is_not_bytes_is_refused(self, store: SourceCheckpointStore, wrong: Any) -> None:
        with store.session() as s:
            all_raise(
                InvalidInputError,
                "must be bytes",
                lambda: s.put("data", wrong, b"value"),
                lambda: s.put("data", b"key", wrong),
                lambda: s.put_many("data", [(b"good", b"value"), (wrong, b"value")]),
                lambda: s.put_many("data", [(b"good", b"value"), (b"key", wrong)]),
                lambda: s.delete("data", wrong),
                lambda: s.delete_many("data", [b"good", wrong]),
                lambda: s.get("data", wrong),
                lambda: s.get_many("data", [b"good", wrong]),
                lambda: store.get("data", wrong),
            )
        assert [*store.items("data")] == []

    def test_clearing_a_space_takes_all_of_it_and_nothing_else(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        for space in ("a", "ab", "b"):
            put(store, space, one="1", two="2")
        commit(store, "a", 1, b"one")
        with store.session() as s:
            s.clear("a")
            s.clear("never used")
            assert s.get("a", b"one") is None
        whole = {b"one": b"1", b"two": b"2"}
        expected = ({"a": SourceCheckpoint(1, b"one")}, None, {"a": {}, "ab": whole, "b": whole})
        assert all_of(reader, "a", "ab", "b") == expected

    def test_what_is_put_after_clearing_stays(self, store: SourceCheckpointStore) -> None:
        put(store, "data", old="1", both="1")
        with store.session() as s:
            s.put("data", b"before", b"1")
            s.clear("data")
            s.put("data", b"both", b"2")
            s.put("data", b"after", b"2")
            assert (s.get("data", b"before"), s.get("data", b"both")) == (None, b"2")
        assert dict(store.items("data")) == {b"both": b"2", b"after": b"2"}

    def test_items_come_in_the_order_of_their_keys(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        with store.session() as s:
            for key in sorted(HOSTILE_KEYS, key=hash):
                s.put("data", key, b"")
        for handle in (store, reader):
            assert [key for key, _ in handle.items("data")] == sorted(HOSTILE_KEYS)

    def test_items_are_those_of_one_moment(self, store: SourceCheckpointStore) -> None:
        pairs = [(b"%03d" % number, b"before") for number in range(300)]
        with store.session() as s:
            s.put_many("data", pairs)
        items = store.items("data")
        read = [next(items)]
        with store.session() as s:
            s.clear("data")
            s.put_many("data", [(b"%03d" % number, b"after") for number in range(0, 600, 2)])
        assert [*read, *items] == pairs
