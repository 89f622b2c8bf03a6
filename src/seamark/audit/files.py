"""What a folder of epochs shows.

Tests: ``tests/audit/test_files.py``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from seamark._common.os_errors import translate_os_errors
from seamark._common.retry import TRIES
from seamark._common.text import first_line
from seamark.audit.declared_rows import as_declared, declared_schema
from seamark.audit.epoch_listing import EpochListing, SharedFolders
from seamark.audit.expectations import EpochRows, SinkHistory
from seamark.audit.limited_targets import option_naming
from seamark.audit.type_texts import has_too_many_types
from seamark.audit.untried_files import may_take_long, reading_untried
from seamark.audit.verdicts import Shown, verdict_of
from seamark.errors import DamageError, StoreUnavailableError
from seamark.sinks.epoch_folder import find_damage, folder_name, read_record, require_only_files
from seamark.sinks.epoch_ranges import (
    all_epochs,
    moved_too_often,
    ranges_in,
    read_merged,
    version_at,
)
from seamark.sinks.folders import is_hdfs, local_folder
from seamark.sinks.hdfs_folder import HdfsFolder
from seamark.sinks.json_texts import can_be_read_back
from seamark.sinks.read_point import needed_to_read
from seamark.spark.failures import is_of_spark
from seamark.spark.row_digests import RowDigest, digests_by
from seamark.spark.silent_servers import require_answer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_EPOCH: Final = "epoch"
_EXACT: Final = ("parquet", "orc")
"""Formats that keep every value as it was."""
_COUNTED: Final = "only counted: Spark cannot read the keys of a map back that are not texts"
_GLOB: Final = re.compile(r"[{}\[\]*?\\]")
_NO_SERVER: Final = re.compile(r"hdfs:/(?://)?[^/]", re.IGNORECASE)
"""A folder on whichever HDFS the settings of Hadoop name."""
_SEVERAL: Final = 64
"""Folders that are read by one job."""


@dataclass(frozen=True)
class _Unit:
    """Epochs that can only be told apart from others: one, or those of a merged range."""

    first: int
    last: int
    folders: tuple[int, ...]
    """The numbers of the folders that hold their rows."""


def read_files(
    spark: SparkSession,
    history: SinkHistory,
    *,
    is_named: bool,
    folders: SharedFolders | None = None,
    is_limited: bool = False,
) -> Iterator[Shown]:
    """What the folder shows of each epoch that the checkpoints know, and of older ones together.

    Spark is given some time only if ``is_limited``: nobody knows what its files take to read.

    A server of HDFS is only asked if the user has named it (``is_named``): the one in a checkpoint
    may be anybody's. A URL without a server means that of the user's own settings.

    Epochs may be merged or taken back meanwhile. So whatever looks damaged is listed again, and
    read again if it has moved. What was listed and read of the same folder for other sinks is taken
    from ``folders``.
    """
    if not is_named and is_hdfs(history.target) and not _NO_SERVER.match(history.target):
        note = f"say where its folder is: {option_naming(history.sink)}hdfs://…"
        yield Shown(first=history.since, last=history.newest.epoch, note=note)
        return
    folder = (folders or SharedFolders()).at(history.target, partial(_listed, history.target))
    listing = folder.listing()
    is_limited = is_limited or (not is_named and may_take_long(history))
    reader = _FolderReader(spark, listing.path, history, is_limited=is_limited)
    reader = folder.reader(reader.key, reader)
    for _ in range(TRIES):
        before = reader.jobs
        try:
            shown = _read_as_listed(reader, history, listing)
        except _UnreadableTypes:
            note = "the types of its columns cannot be read from the checkpoint"
            yield Shown(first=history.since, last=history.newest.epoch, note=note)
            return
        folder.is_sure = folder.is_sure and reader.jobs == before
        damaged = [each for each in shown if verdict_of(each, history).result.is_damage]
        now = folder.listed_again() if damaged else listing
        moved = [each for each in damaged if listing.has_moved(now, each)]
        if not moved:
            break
        reader.forget_failures()
        listing = now
    if moved and len(moved) == len(damaged):
        raise moved_too_often(history.target)
    yield from shown
    yield from _strangers(history, listing.folders)


def _read_as_listed(
    reader: _FolderReader, history: SinkHistory, listing: EpochListing
) -> list[Shown]:
    parts = list(_parts(history, listing.folders, listing.merged))
    wanted = sorted({number for _, _, numbers in parts for number in numbers})
    found = reader.digests(listing, wanted)
    known = {each.epoch: each for each in history.epochs}
    return [
        _shown(history, first, last, numbers, found, listing.folders, known, reader.is_counting)
        for first, last, numbers in parts
    ]


def _listed(target: str) -> EpochListing:
    """The folders of epochs that there are now, and which epochs were merged."""
    if is_hdfs(target):
        folder = HdfsFolder(target)
        try:
            return EpochListing(target, {n: f"{target}/{folder_name(n)}" for n in folder.epochs()})
        finally:
            folder.close()
    path = local_folder(target)
    with translate_os_errors("listing", path):
        folders = all_epochs(path)
        versions = {number: version_at(folder) for number, folder in folders.items()}
        return EpochListing(path, folders, versions, _merged(path))


def _merged(path: str) -> list[tuple[int, int]]:
    """The first and last epoch of each merged range."""
    ranges = []
    for folder in ranges_in(path).values():
        record = read_merged(folder)
        if record is not None and record.receipts:
            ranges.append((record.receipts[0].epoch, record.receipts[-1].epoch))
    return ranges


def _parts(
    history: SinkHistory, folders: Mapping[int, str], merged: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int, list[int]]]:
    """Epochs whose rows can be compared together, and the folders that hold them.

    What is left at the end cannot be compared: it was merged with epochs that no checkpoint counts.
    """
    first: int | None = None
    numbers: list[int] = []
    for unit in _units(history, folders, merged):
        if first is None:
            first, numbers = unit.first, []
        numbers += unit.folders
        if history.expected(first, unit.last) is not None:
            yield first, unit.last, numbers
            first = None
    if first is not None:
        yield first, unit.last, []


def _units(
    history: SinkHistory, folders: Mapping[int, str], merged: Sequence[tuple[int, int]]
) -> Iterator[_Unit]:
    """All epochs that have a digest, by themselves or as part of a total.

    What a checkpoint says may be wrong, so nothing is counted up to its numbers but what is there.
    """
    last = history.newest.epoch
    known = {each.epoch for each in history.epochs}
    # of those that are only known together the ends too: all of their folders may be gone
    ends = (number for stretch in history.stretches() for number in stretch)
    numbers = sorted({n for n in (*folders, *known, *ends) if history.since <= n <= last})
    ranges = sorted(merged)
    begins = [begin for begin, _ in ranges]
    inside: dict[tuple[int, int], list[int]] = {}
    alone: list[int] = []
    for number in numbers:
        at = bisect_right(begins, number) - 1  # ranges are next to each other
        if at >= 0 and number <= ranges[at][1]:
            inside.setdefault(ranges[at], []).append(number)
        else:
            alone.append(number)
    units = [_Unit(n, n, (n,) if n in folders else ()) for n in alone]
    for (begin, end), held in inside.items():
        there = tuple(n for n in held if n in folders)
        units.append(_Unit(max(begin, history.since), end, there))
    yield from sorted(units, key=lambda unit: unit.first)


def _shown(
    history: SinkHistory,
    first: int,
    last: int,
    numbers: Sequence[int],
    found: Mapping[int, RowDigest | str],
    folders: Mapping[int, str],
    known: Mapping[int, EpochRows],
    is_counting: bool = False,
) -> Shown:
    expected = history.expected(first, last)
    if expected is None:
        note = "merged with newer epochs, and no checkpoint counts the rows of all of them yet"
        return Shown(first=first, last=last, note=note)
    total, damage = RowDigest.empty(), ""
    for number in numbers:
        digest = found.get(number, RowDigest.empty())
        if isinstance(digest, str):
            damage = damage or digest
        else:
            total += digest
    if damage:
        return Shown(first=first, last=last, expected=expected, damage=damage)
    proven = False
    is_single = first == last and list(numbers) == [first]
    # partitions are texts, and one of them may stand for null
    is_exact = history.options.get("format") in _EXACT and not history.options.get("partition_by")
    # what was written and is read as another number of rows is lost, or there twice, to all readers
    if total.rows == expected.rows and total != expected and is_single and not is_exact:
        proven = _is_as_written(folders[first], known.get(first))
    if is_single and (only := known.get(first)) is not None and only.prepared is not None:
        is_counting = False  # the bytes say more
    return Shown(
        first=first,
        last=last,
        expected=expected,
        found=total,
        is_proven=proven,
        is_counted=is_counting,
        note=_COUNTED if is_counting else "",
    )


def _is_as_written(folder: str, known: EpochRows | None) -> bool:
    """Whether the files are byte for byte those of which the checkpoint has the hash."""
    if known is None or known.prepared is None:
        return False
    try:
        sealed = read_record(folder)
        return (
            sealed is not None
            and sealed.digest == known.prepared
            and find_damage(folder, sealed.record) is None
        )
    except (DamageError, OSError):
        return False


def _strangers(history: SinkHistory, folders: Mapping[int, str]) -> Iterator[Shown]:
    """Epochs that the checkpoints do not know."""
    if early := [number for number in folders if number < history.since]:
        note = f"from epoch {history.since} on there are digests"
        yield Shown(first=early[0], last=early[-1], note=note)
    if late := [number for number in folders if number > history.newest.epoch]:
        note = "no checkpoint has committed it; a running pipeline may have since"
        yield Shown(first=late[0], last=late[-1], note=note)


class _UnreadableTypes(Exception):
    """Nothing says which types the rows had, or they have too many."""


class _FolderReader:
    """Reads the folders of epochs by Spark."""

    def __init__(
        self, spark: SparkSession, path: str, history: SinkHistory, *, is_limited: bool
    ) -> None:
        self._spark = spark
        self._path = path
        self._schema = declared_schema(history.columns)
        self._format = history.file_format
        point = history.newest.point
        options = point.at.get("options") if point is not None else None
        found = options if isinstance(options, dict) else {}
        self._options = needed_to_read(self._format, found)
        self.is_counting = False
        """Whether rows are only counted: Spark cannot read the types that JSON was written of."""
        if self._format == "json" and self._schema is not None:
            readable = _readable_in_json(self._schema)
            self.is_counting = readable != self._schema
            self._schema = readable
        self._option = f"{option_naming(history.sink)}…" if is_limited else None
        texts = repr(sorted(self._options.items()))
        self.key = (self._format, history.columns, texts, is_limited)
        """The same for sinks whose rows are read in the same way."""
        self.jobs = 0
        self._known: dict[tuple[str, object], RowDigest | str] = {}
        """Of folders that need not be read again."""

    def forget_failures(self) -> None:
        """Have folders read again that could not be read."""
        known = self._known.items()
        self._known = {key: found for key, found in known if not isinstance(found, str)}

    def digests(self, listing: EpochListing, numbers: Sequence[int]) -> dict[int, RowDigest | str]:
        """By epoch: the digest of its rows, or why they cannot be read."""
        keys = {n: (listing.folders[n], listing.versions.get(n)) for n in numbers}
        found: dict[int, RowDigest | str] = {
            number: self._known[key] for number, key in keys.items() if key in self._known
        }
        found |= self._unsafe({n: listing.folders[n] for n in numbers if n not in found})
        waiting = [number for number in numbers if number not in found]
        while waiting:
            several, waiting = waiting[:_SEVERAL], waiting[_SEVERAL:]
            found |= self._some({number: listing.folders[number] for number in several})
        self._known |= {key: found.get(n, RowDigest.empty()) for n, key in keys.items()}
        return found

    def _unsafe(self, folders: Mapping[int, str]) -> dict[int, str]:
        """Epochs that Spark may not read, and why; :class:`StoreUnavailableError` for a link."""
        found: dict[int, str] = {}
        for number, folder in folders.items():
            if is_hdfs(folder):
                continue
            try:
                with translate_os_errors("listing", folder):
                    require_only_files(folder)
            except DamageError as error:
                found[number] = error.what
        return found

    def _some(self, folders: Mapping[int, str]) -> dict[int, RowDigest | str]:
        self.jobs += 1
        places = list(folders.values())
        try:
            with reading_untried(self._spark, places, self._path, self._option):
                return dict(digests_by(self._rows(places), _EPOCH))
        except StoreUnavailableError:
            raise
        except DamageError as error:
            problem = str(error)
        except Exception as error:
            if not is_of_spark(error):
                raise
            require_answer(error, self._path)
            problem = first_line(error)[:300]
        if len(folders) == 1:
            return dict.fromkeys(folders, problem)
        return {
            number: digest
            for each, folder in folders.items()
            for number, digest in self._some({each: folder}).items()
        }

    def _rows(self, folders: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as f
        from pyspark.sql.types import LongType, StructType

        reader: Any = self._spark.read.format(self._format).options(**self._options)
        reader = reader.option("basePath", _url(self._path))
        schema: StructType | None = self._schema
        if schema is not None:
            reader = reader.schema(StructType([*schema.fields]).add(_EPOCH, LongType()))
        elif self._format in _EXACT:
            reader = reader.option("mergeSchema", "true")
        else:
            raise _UnreadableTypes
        rows: DataFrame = reader.load([_url(_GLOB.sub(_escaped, folder)) for folder in folders])
        if schema is None:
            if has_too_many_types(rows.schema):
                raise _UnreadableTypes
            return rows.withColumn(_EPOCH, f.col(_EPOCH).cast("long"))
        return as_declared(rows, schema, keep=[_EPOCH])


def _readable_in_json(schema: StructType) -> StructType:
    """The same columns, as texts where Spark cannot read them back."""
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType(
        [
            field if can_be_read_back(field.dataType) else StructField(field.name, StringType())
            for field in schema.fields
        ]
    )


def _url(folder: str) -> str:
    return f"file://{folder}" if folder.startswith("/") else folder


def _escaped(match: re.Match[str]) -> str:
    return f"\\{match[0]}"
