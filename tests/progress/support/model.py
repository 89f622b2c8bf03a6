"""A plain model of a progress store, and the steps of a session that change it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from seamark.progress import Session, SourceCheckpoint

QUERIES = ("q", "s")
SOURCES, SPACES = ("s", "s2", "{odd}\n"), ("a", "ab")


@dataclass
class Model:
    """All that is committed, or would be."""

    sequences: dict[str, int] = field(default_factory=dict)
    positions: dict[str, bytes] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    config_hash: int | None = None
    data: dict[str, dict[bytes, bytes]] = field(
        default_factory=lambda: {space: {} for space in SPACES}
    )

    def checkpoints(self) -> dict[str, SourceCheckpoint]:
        return {s: SourceCheckpoint(n, self.positions.get(s)) for s, n in self.sequences.items()}

    def forget_checkpoints(self) -> None:
        self.sequences.clear()
        self.positions.clear()
        self.results.clear()
        self.config_hash = None

    def after(self, steps: list[Step]) -> Model:
        """What it would be after some steps."""
        found = deepcopy(self)
        for step in steps:
            step.change(found)
        return found


@dataclass(frozen=True)
class Step:
    """A method of a session, by its name, with its arguments."""

    method: str
    arguments: tuple[Any, ...] = ()

    def take(self, session: Session) -> None:
        getattr(session, self.method)(*self.arguments)

    def change(self, model: Model) -> None:
        match self.method, *self.arguments:
            case "put", space, key, value:
                model.data[space][key] = value
            case "put_many", space, pairs:
                model.data[space].update(pairs)
            case "delete_many", space, gone:
                model.data[space] = {k: v for k, v in model.data[space].items() if k not in gone}
            case "delete", space, key:
                model.data[space].pop(key, None)
            case "clear", space:
                model.data[space].clear()
            case "clear_position", source:
                model.positions.pop(source, None)
            case "write_result_sequence", query, number:
                model.results[query] = number
            case "stage_config_hash", number:
                model.config_hash = number
            case ["forget_checkpoints"]:
                model.forget_checkpoints()
            case "stage_checkpoint", source, number, position:
                model.sequences[source] = number
                model.positions |= {} if position is None else {source: position}

    def goes_back(self, model: Model) -> bool:
        """Whether it would set a sequence back."""
        if self.method == "stage_checkpoint":
            return bool(self.arguments[1] < model.sequences.get(self.arguments[0], 0))
        if self.method == "write_result_sequence":
            return bool(self.arguments[1] < model.results.get(self.arguments[0], 0))
        return False


queries = st.sampled_from(QUERIES)
sources, spaces = st.sampled_from(SOURCES), st.sampled_from(SPACES)
keys = st.sampled_from([b"", b"a", b"a\x00", b"\xff"])
values = st.sampled_from([b"", b"v", b"a\x00z", b"\xff\n"])
numbers = st.integers(0, 4) | st.sampled_from([2**63, 2**64 - 1])


def _step(method: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.just(method), st.tuples(*arguments))


_COMMON = st.one_of(
    _step("stage_checkpoint", sources, numbers, st.none() | values),
    _step("write_result_sequence", queries, numbers),
    _step("put", spaces, keys, values),
    _step("put_many", spaces, st.lists(st.tuples(keys, values), max_size=4)),
    _step("delete", spaces, keys),
    _step("delete_many", spaces, st.lists(keys, max_size=2)),
)
_RARE = st.one_of(
    _step("clear", spaces),
    _step("clear_position", sources),
    _step("stage_config_hash", numbers),
    _step("forget_checkpoints"),
)
steps = st.lists(st.one_of(_COMMON, _COMMON, _COMMON, _RARE), min_size=1, max_size=8)
