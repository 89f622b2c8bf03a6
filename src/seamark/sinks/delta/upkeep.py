"""Merging small files of a Delta table, and removing those that it no longer needs.

Tests: ``tests/sinks/test_delta_upkeep.py``.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from seamark.blobs.conditional_writes import create_once
from seamark.errors import RefusedError
from seamark.limits import LARGEST_DOCUMENT
from seamark.sinks.delta.entries import add_files
from seamark.sinks.delta.log import KEY, entries_from
from seamark.sinks.delta.place import (
    DATA,
    LONGEST_VACUUM_SECONDS,
    VACUUMS,
    TablePlace,
    entry_name,
)
from seamark.sinks.partition_texts import NULL_FOLDER

if TYPE_CHECKING:
    from deltalake import DeltaTable

_DECIMAL: Final = 'PrimitiveType("decimal('
_UNDER_WAY_SECONDS: Final = 3600
"""For so long a file may wait for the entry that names it."""


def compact(place: TablePlace, options: Mapping[str, Any]) -> dict[str, Any]:
    """Merge small files; what ``deltalake`` says it has done."""
    table = place.look()
    refuse_spoiled_partitions(table, place.url)
    with place.translated("compacting"):
        done: dict[str, Any] = table.optimize.compact(**options)
    return done


def refuse_spoiled_partitions(table: DeltaTable, where: str) -> None:
    """:class:`RefusedError` for values of partitions that ``deltalake`` would write as others.

    It writes -1.50 as ``-1.-50``, which nobody can read, and the name that Hive has for null as
    null. So a table that has one is neither merged nor compacted.
    """
    decimals = {
        field.name for field in table.schema().fields if str(field.type).startswith(_DECIMAL)
    }
    for values in table.partitions():
        for name, text in values.items():
            if text and (text == NULL_FOLDER or (name in decimals and text.startswith("-"))):
                raise RefusedError(
                    f"the partition column {name!r} has the value {text!r}, which deltalake would "
                    "write as another one",
                    where=where,
                    hint="Partition the table by another column. Spark can compact it as it is.",
                )


def vacuum(place: TablePlace, retention_hours: int | None, *, dry_run: bool) -> list[str]:
    """Remove what no version within the time of retention needs; the files, below the table.

    A file that no entry has named stays for an hour, however short the time of retention is.
    """
    staged = _staged_folders(place)
    table = place.look()
    with place.translated("looking for old files of"):
        candidates = table.vacuum(
            retention_hours,
            dry_run=True,
            enforce_retention_duration=retention_hours is None,
            full=True,
        )
    # an epoch may have been staged, or shown, while files were looked for
    staged |= _staged_folders(place)
    found = {p for p in candidates if not _is_below(p, staged) and not _is_unfinished(p)}
    waiting = _may_be_on_its_way(place, found)
    # after the entries: a file that one of them names is needed, or was removed by a later one
    needed = _files_of(place.look())
    unneeded = sorted(found - waiting - needed)
    if unneeded and not dry_run:
        with _noted(place):
            unneeded = sorted({*unneeded} - _files_of(place.look()))
            place.delete_files(unneeded)
    return unneeded


@contextmanager
def _noted(place: TablePlace) -> Iterator[None]:
    """Have nobody go back to an earlier version, which may need the files that go.

    Whoever goes back looks at the table, then for the note, and writes the very next entry. If the
    note was not there yet, that entry is before the one that is written here, and so seen by a
    look after it; or the two are in conflict, and the next look finds the note.
    """
    from deltalake.transaction import CommitProperties

    notes = {*place.vacuums(within=math.inf)}
    of_the_dead = notes.difference(place.vacuums(within=LONGEST_VACUUM_SECONDS))
    place.control.delete(sorted(of_the_dead))
    name = f"{VACUUMS}/{uuid.uuid4().hex}.json"
    create_once(place.control, name, b"{}", LARGEST_DOCUMENT)
    try:
        properties = CommitProperties(custom_metadata={KEY: {"vacuums": name}})
        with place.translated("vacuuming", write=True):
            add_files(place.look(), (), "append", properties)
        yield
    finally:
        place.control.delete([name])


def _may_be_on_its_way(place: TablePlace, paths: set[str]) -> set[str]:
    """Files that a merge, a compaction or another writer may be about to name in the log.

    They are young, and no entry has named them. One that an entry has named is not needed again.
    """
    young = place.files_modified_within(_UNDER_WAY_SECONDS, paths)
    if not young:
        return set()
    oldest = min(young.values())
    unnamed = {*young}
    for entry in entries_from(place.log, place.look().version()):
        unnamed.difference_update(entry.added)
        about = place.log.stat(entry_name(entry.version))
        # an entry is written after its files
        if not unnamed or about is None or about.modified < oldest:
            break
    return unnamed


def _staged_folders(place: TablePlace) -> set[str]:
    """Folders of all attempts of all sinks that have a record beside the table."""
    parts = (entry.key.split("/") for entry in place.control.entries(""))
    return {f"{DATA}/{part[0]}/{part[1]}" for part in parts if len(part) > 2}


def _is_below(path: str, folders: set[str]) -> bool:
    return "/".join(path.split("/")[:3]) in folders


def _is_unfinished(path: str) -> bool:
    """A task on a local disk writes here, and gives the file its name when it is whole."""
    return path.startswith(f"{DATA}/tmp/")


def _files_of(table: DeltaTable) -> set[str]:
    paths = table.get_add_actions().column("path").to_pylist()
    return {path for name in paths for path in (name, unquote(name))}
