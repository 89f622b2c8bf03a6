"""What is wrong with the state of many checkpoints that share most of it.

Tests: ``tests/state/test_resolution.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import NamedTuple

from seamark._common.text import shortened
from seamark.limits import LONGEST_LIST, LONGEST_REASON, MOST_MISSING_NAMED
from seamark.state.chains import Link, PartitionKey
from seamark.state.resolution import Resolution, Step, place_text
from seamark.state.shared_rows import WIDTH, Chunk

Judge = Callable[[list[Link]], list[str | None]]
"""What is wrong with each of several links, or None."""


class Findings(NamedTuple):
    """How many things are wrong, and the first ones of them."""

    number: int = 0
    texts: tuple[str, ...] = ()

    @classmethod
    def sum(cls, several: Iterable[Findings]) -> Findings:
        """All of them together."""
        number, texts = 0, list[str]()
        for each in several:
            number += each.number
            texts += each.texts[: max(MOST_MISSING_NAMED - len(texts), 0)]
        return cls(number, tuple(texts)) if number else NOTHING

    def lines(self) -> list[str]:
        """As many texts as one checkpoint may tell, and how many there are besides."""
        ends = accumulate(map(len, self.texts))
        told = [text for text, end in zip(self.texts, ends, strict=True) if end <= LONGEST_LIST]
        more = self.number - len(told)
        return [*told, *([f"and {more} more"] if more > 0 else [])]


NOTHING = Findings()


class Verdicts:
    """What one pass has found. What two checkpoints share is judged once."""

    def __init__(self) -> None:
        self._steps: dict[Step, Findings] = {}
        self._chunks: dict[Chunk[Step], Findings] = {}

    def of(self, resolution: Resolution, judge: Judge) -> Findings:
        """What is wrong with the objects that a checkpoint consists of."""
        chunks = resolution.steps.chunks
        new = [place for place, chunk in enumerate(chunks) if chunk not in self._chunks]
        self._judge(self._unknown(resolution, new), judge)
        for place in new:
            chunk = chunks[place]
            steps = (step for step in chunk.values if step is not None)
            self._chunks[chunk] = Findings.sum(self._steps[step] for step in steps)
        return Findings.sum(self._chunks[chunk] for chunk in chunks)

    def _unknown(self, resolution: Resolution, chunks: list[int]) -> dict[Step, PartitionKey]:
        """The steps that were not judged yet, each before what it builds on."""
        unknown: dict[Step, PartitionKey] = {}
        for place in chunks:
            for offset, newest in enumerate(resolution.steps.chunks[place].values):
                if newest is None or newest in self._steps:
                    continue
                key = resolution.numbers.places[place * WIDTH + offset]
                for step in newest.newest_first():
                    if step in self._steps:
                        break
                    unknown[step] = key
        return unknown

    def _judge(self, unknown: dict[Step, PartitionKey], judge: Judge) -> None:
        links = [link for step in unknown for link in step.links]
        problems = iter(judge(links))
        own = {step: [next(problems) for _ in step.links] for step in unknown}
        for step, key in reversed(unknown.items()):
            texts = tuple(
                f"{place_text(key)}: {shortened(problem, LONGEST_REASON)}"
                for problem in own[step]
                if problem
            )
            below = NOTHING if step.below is None else self._steps[step.below]
            self._steps[step] = Findings.sum([below, Findings(len(texts), texts)])
