"""When state files were written, against when their batches were planned and finished.

Batch N writes version N+1 of every store after ``offsets/N`` and before ``commits/N``. A file that
was put there by something else has another time, unless that was forged. A directory that was
copied or restored as a whole has other times too, so a file only counts as strange among others
whose times are right.

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

from seamark.checkpoint_dir.state_files import StateFile
from seamark.native.inspect.cached_listing import CachedListing
from seamark.native.inspect.findings import Code, Finding, numbers_text, warning
from seamark.native.inspect.state import Store

_FEWEST: Final = 3
"""Files of one store whose times have to be right before the others' mean anything."""


class StrangeTime(StrEnum):
    """How the time of a file does not fit its batch."""

    EARLY = "early"
    """It is older than the plan of its batch."""
    LATE = "late"
    """It was written after its batch was finished."""


def strange_times(listing: CachedListing, stores: Iterable[Store]) -> dict[str, StrangeTime]:
    """The files of changes that were not written when their batches ran, by their paths."""
    by_store = [(store, _times(listing, store)) for store in stores]
    right = {
        (store.folder.operator, version)
        for store, times in by_store
        for version, (_, strange) in times.items()
        if strange is None
    }
    count = Counter(store.folder.operator for store, _ in by_store)
    by_path: dict[str, StrangeTime] = {}
    for store, times in by_store:
        strange = {version: why for version, (_, why) in times.items() if why is not None}
        oldest = min(times, default=None)
        # what a restore put there is the beginning of a history
        if oldest in strange or len(times) - len(strange) < max(_FEWEST, len(strange)):
            continue
        operator = store.folder.operator
        for version, why in strange.items():
            # what was done to a directory as a whole was done to all of its stores
            if count[operator] == 1 or (operator, version) in right:
                by_path[store.path(times[version][0])] = why
    return by_path


def _times(listing: CachedListing, store: Store) -> dict[int, tuple[StateFile, StrangeTime | None]]:
    """Version → the file that its batch wrote and what is strange about it, where that is known."""
    kinds = {file.extension for files in store.files.values() for file in files}
    kind = next((kind for kind in ("changelog", "delta", "zip") if kind in kinds), None)
    by_version: dict[int, tuple[StateFile, StrangeTime | None]] = {}
    for version, files in store.files.items():
        own = [file for file in files if file.extension == kind]
        planned = listing.entries.get(f"offsets/{version - 1}")
        if len(own) != 1 or planned is None:
            continue
        done = listing.entries.get(f"commits/{version - 1}")
        written = listing.entries[store.path(own[0])].modified
        strange = None
        if written < planned.modified:
            strange = StrangeTime.EARLY
        elif done is not None and written > done.modified:
            strange = StrangeTime.LATE
        by_version[version] = own[0], strange
    return by_version


def order_findings(
    stores: Iterable[Store], strange: Mapping[str, StrangeTime], known: Iterable[str]
) -> Iterator[Finding]:
    """Stores whose changes do not have the order in which they were written.

    One file that is younger than its batch may have been put back after a loss: that is right.
    """
    reported = set(known)
    for store in stores:
        odd = sorted(
            (file.version, store.path(file))
            for files in store.files.values()
            for file in files
            if store.path(file) in strange and store.path(file) not in reported
        )
        early = [path for _, path in odd if strange[path] == StrangeTime.EARLY]
        if not early and len(odd) < 2:
            continue
        versions = numbers_text([version for version, _ in odd])
        when = "before its batch was planned" if early else "after their batches were finished"
        yield warning(
            Code.STATE_OUT_OF_ORDER,
            early[0] if early else odd[0][1],
            f"operator {store.folder.operator}, partition {store.folder.partition}: version "
            f"{versions} {'were' if len(odd) > 1 else 'was'} not written when the others were: "
            f"{(early or [path for _, path in odd])[0]} is from {when}. Were files exchanged? "
            "Spark would not notice",
            "If they were not put there on purpose, roll back to a batch before them.",
        )
