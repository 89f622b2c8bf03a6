"""Whether an output fits a Delta table, looked at before the first row and again at each commit.

Others may change the table at any time.

Tests: ``tests/sinks/test_delta_features.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from seamark.errors import RefusedError, StoreUnavailableError
from seamark.sinks.contract import require_own
from seamark.sinks.delta.actions import StagedFile, partition_text
from seamark.sinks.delta.committable import FileList, Prepared
from seamark.sinks.delta.features import facts_of, refuse_features
from seamark.sinks.delta.log import KEY, ColumnsAdded
from seamark.sinks.delta.place import TablePlace
from seamark.sinks.delta.schemas import Columns, Fit, fit, refuse_missing
from seamark.sinks.partition_texts import NULL_FOLDER, reserved_text
from seamark.sinks.tables.parquet_files import WrittenFile

if TYPE_CHECKING:
    from deltalake import DeltaTable, Field

_TRIES: Final = 8


class Target:
    """One table as the place for some columns."""

    def __init__(
        self,
        place: TablePlace,
        mode: str,
        partition_by: Sequence[str],
        columns: Columns,
        output: tuple[str, str] = ("", ""),
        *,
        merges_schema: bool = False,
    ) -> None:
        self._place = place
        self._output = output  # the names of the pipeline and of the sink
        self._mode = mode
        self._partition_by = (*partition_by,)
        self._merges_schema = merges_schema
        self._is_ready = False
        self.columns = columns

    def look(self) -> None:
        """:class:`RefusedError` when the output does not fit; a table need not be there yet."""
        self._place.forget()
        table = self._place.find()
        if table is not None:
            fits = self._fit(table)
            if not self._merges_schema:
                refuse_missing(fits, self._place.url)

    def forget(self) -> None:
        """Columns that were added may be gone."""
        self._is_ready = False

    def make_ready(self) -> None:
        """Make the table where there is none, once; :class:`RefusedError` as of :meth:`look`.

        With ``merges_schema`` columns that the table lacks are added to it.
        """
        if self._is_ready or not self.columns.types:
            return
        table = self._place.find()
        if table is None:
            self._place.create(self.columns.as_table(), self._partition_by)
            table = self._place.look()
        fits = self._fit(table)
        tries = _TRIES if self._merges_schema else 0
        while fits.missing and tries:
            tries -= 1
            try:
                self._add_columns(table, fits.missing)
            except StoreUnavailableError:
                if not tries:
                    raise
            table = self._place.look()  # somebody else may have added them meanwhile
            fits = self._fit(table)
        refuse_missing(fits, self._place.url)
        self._is_ready = True

    def check(self, table: DeltaTable) -> Fit:
        """How the output fits; :class:`RefusedError` when it does not."""
        fits = self._fit(table)
        refuse_missing(fits, self._place.url)
        return fits

    def _fit(self, table: DeltaTable) -> Fit:
        where = self._place.url
        facts = facts_of(table)
        refuse_features(facts, self._mode, where)
        fits = fit(self.columns.types, facts.fields, where)
        partitions = tuple(table.metadata().partition_columns)
        if self._partition_by and partitions != self._partition_by:
            is_now = ", ".join(partitions) or "nothing"
            raise RefusedError(
                f"the table is partitioned by {is_now}, not by {', '.join(self._partition_by)}",
                where=where,
                hint="Give the partition_by of the table, or none.",
            )
        if absent := [name for name in partitions if name not in self.columns.types]:
            raise RefusedError(
                f"the table is partitioned by {absent[0]!r}, which the output lacks", where=where
            )
        return fits

    def _add_columns(self, table: DeltaTable, names: Sequence[str]) -> None:
        from deltalake import CommitProperties, Schema

        wanted = Columns({name: self.columns.types[name] for name in names}).as_table()
        fields: list[Field] = Schema.from_json(msgspec.json.encode(wanted).decode()).fields
        with self._place.translated("adding columns to"):
            # a rollback may take it back, since it is ours
            record = msgspec.to_builtins(ColumnsAdded(*self._output, [*names]))
            properties = CommitProperties(
                custom_metadata={KEY: {"added_columns": record}}, max_commit_retries=0
            )
            table.alter.add_columns(fields, commit_properties=properties)
        self._place.make_durable(self._place.look().version())

    def check_staged(self, table: DeltaTable, prepared: Prepared) -> None:
        """:class:`RefusedError` when the table is not what an epoch was staged for.

        :class:`DamageError` for an epoch of another output, which may write to the same table.
        """
        where = self._place.url
        own = dict(zip(("pipeline", "sink"), self._output, strict=True))
        require_own(msgspec.structs.asdict(prepared), own, self._output[1], where)
        if str(table.metadata().id) != prepared.table_id:
            raise RefusedError(
                f"the table is not the one that epoch {prepared.epoch} was written for",
                where=where,
                hint="Was it dropped and made anew? Roll the pipeline back, or write to a new one.",
            )
        if prepared.mode != self._mode:
            raise RefusedError(
                f"epoch {prepared.epoch} was staged in mode {prepared.mode!r}, not {self._mode!r}",
                where=where,
                hint="Start once with the mode of before, so that the epoch can be finished.",
            )
        columns = self.columns
        merged_by = list(columns.keys), columns.delete_where
        if prepared.keys is not None and (prepared.keys, prepared.delete_where) != merged_by:
            raise RefusedError(
                f"epoch {prepared.epoch} was staged with keys {_listed(prepared.keys)} and "
                f"delete_where {prepared.delete_where}, and not with {_listed(columns.keys)} and "
                f"{columns.delete_where}",
                where=where,
                hint="Start once with those of before, so that the epoch can be finished.",
            )

    def check_columns(self, table: DeltaTable, added: FileList) -> Fit:
        """:class:`RefusedError` when the table no longer takes what was staged."""
        where = self._place.url
        facts = facts_of(table)
        refuse_features(facts, self._mode, where)
        fits = fit(added.columns, facts.fields, where)
        refuse_missing(fits, where)
        if self._mode != "upsert":
            refuse_other_partitions(added.files, table.metadata().partition_columns, where)
            refuse_staged_nulls(added.files, fits.never_null, where)
        return fits


def refuse_other_partitions(
    files: Sequence[StagedFile], partitions: Sequence[str], where: str
) -> None:
    """:class:`RefusedError` when files have other partitions than the table. Pure.

    Their rows would lose a column: a file leaves out what it is partitioned by.
    """
    for file in files:
        if file.partition.keys() != {*partitions}:
            raise RefusedError(
                f"the table is partitioned by {_listed(partitions)}, and was by "
                f"{_listed(file.partition)} when the epoch was staged",
                where=where,
                hint="Give it the partitions of before, or roll the pipeline back to the newest "
                "epoch that the table shows.",
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def refuse_staged_nulls(
    files: Sequence[StagedFile], never_null: frozenset[str], where: str
) -> None:
    """:class:`RefusedError` when the table has come to demand a value that rows lack. Pure."""
    if not never_null:
        return
    for file in files:
        nulls = msgspec.json.decode(file.stats, type=_Nulls).nullCount if file.stats else {}
        for name in sorted(never_null):
            if file.partition.get(name, "") is None or nulls.get(name):
                raise RefusedError(
                    f"the table has come to demand a value for {name!r}, which staged rows lack",
                    where=where,
                    hint="Let it be null again, or roll the pipeline back to the newest epoch that "
                    "the table shows.",
                )


class _Nulls(msgspec.Struct, frozen=True):
    nullCount: dict[str, int] = {}


def refuse_nulls(
    files: Sequence[WrittenFile], never_null: frozenset[str], epoch: int, where: str
) -> None:
    """:class:`RefusedError` when rows lack a value that the table demands, or may lose it. Pure."""
    for file in files:
        for name, value in file.partition.items():
            if value == NULL_FOLDER:
                raise reserved_text(name, epoch, where)
        for name in sorted(never_null):
            facts = file.columns.get(name)
            is_null = name in file.partition and partition_text(file.partition[name]) is None
            if is_null or (facts is not None and facts.nulls):
                is_empty_text = file.partition.get(name) == ""
                raise no_value(name, epoch, where, is_empty_text=is_empty_text)


def no_value(name: str, epoch: int, where: str, *, is_empty_text: bool = False) -> RefusedError:
    """The error for a null that the table does not take."""
    if is_empty_text:
        return RefusedError(
            f"epoch {epoch} has rows with an empty text in {name!r}, which the table is "
            "partitioned by and which needs a value",
            where=where,
            hint="Delta writes an empty text there as null. Filter such rows out, or give them "
            "another value.",
        )
    return RefusedError(
        f"epoch {epoch} has rows without a value for {name!r}, which the table demands",
        where=where,
        hint="Filter them out, or give them a value with coalesce().",
    )
