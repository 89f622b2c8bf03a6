"""A working copy whose operators and sources get the numbers that they have after an upgrade.

Only names change, so a large state does not come from the store once more. What has become of it
is proven like any working copy, file by file, before it is used.

Tests: ``tests/pipeline/test_upgrades.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seamark.capture.movers import Contents
from seamark.checkpoint_dir.working_copy import WorkingCopy


@dataclass(frozen=True)
class Moves:
    """What an upgrade has given other numbers."""

    operators: Mapping[int, int]
    """By the number of an operator that goes on: the one that it had."""

    def apply(
        self, copy: WorkingCopy, old: Sequence[str], new: Sequence[str], small_state: Contents
    ) -> None:
        """Change the names in a copy; ``old`` and ``new`` are the sources of its leaves.

        ``small_state`` is state that the new checkpoint holds itself.
        """
        had, has = list(dict.fromkeys(old)), list(dict.fromkeys(new))
        sources = {number: had.index(name) for number, name in enumerate(has) if name in had}
        _rename(copy, "state", self.operators)
        _rename(copy, "sources", sources)
        for path, data in small_state.items():
            copy.write(path, data)


def _rename(copy: WorkingCopy, folder: str, numbers: Mapping[int, int]) -> None:
    """Give the folders in a folder other numbers, new → old; one without a new number goes.

    A number that several have gone on from is given to the first of them.
    """
    before = copy.numbers(folder)
    for number in before:
        copy.rename(f"{folder}/{number}", f"{folder}/old-{number}")
    for new, old in numbers.items():
        if copy.has_folder(f"{folder}/old-{old}"):
            copy.rename(f"{folder}/old-{old}", f"{folder}/{new}")
    for number in before:
        copy.below(f"{folder}/old-{number}").destroy()
