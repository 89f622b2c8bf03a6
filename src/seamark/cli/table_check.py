"""Whether Delta and Iceberg tables still have what comes next, for ``seamark sources --check``.

Tests: ``tests/cli/test_table_check.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from seamark.cli.output import Document
from seamark.cli.source_check import not_checked
from seamark.errors import InvalidInputError, PositionUnavailable, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.manifest.described import description_of
from seamark.table_formats.delta_addresses import is_known_address
from seamark.table_formats.iceberg_settings import refuse_catalogs_of_this_folder

if TYPE_CHECKING:
    from seamark.cli.limited_look import LimitedLooks
    from seamark.sources import SequencedSource
    from seamark.sources.sequence_reader import PositionRange

DELTA: Final = "seamark_delta"
FORMATS: Final = (DELTA, "seamark_iceberg")
_LONGEST_SCHEME: Final = 20


class TableCheck:
    """Asks the tables of a checkpoint's sources about their positions.

    ``given`` are options by source: a checkpoint has only those that hold no secret. Whoever made
    the store must not choose a server that is spoken to, so a URL of one is not followed.
    """

    def __init__(
        self, manifest: CheckpointManifest, given: Mapping[str, Mapping[str, str]]
    ) -> None:
        self._tables = {name: _table_of(name, manifest, given) for name in manifest.source_offsets}
        self._limited: LimitedLooks | None = None

    def __call__(self, name: str) -> Document | None:
        """What a table says about the position of a source; None for one of another kind."""
        table = self._tables[name]
        if table is None:
            return None
        if not table.may_be_asked:
            scheme = table.path.strip().partition(":")[0][:_LONGEST_SCHEME]
            why = f"only tables at a path or in a bucket are asked, not {scheme}:"
            return not_checked(name, why)
        facts: Document = {"wanted": None, "oldest": None, "newest": None, "note": None}
        try:
            known = self._asked(name, table)
        except PositionUnavailable as gone:
            facts |= {"status": "gone", "note": str(gone)}
        else:
            facts["status"] = "ok"
            if known is not None:
                facts |= {"wanted": known.wanted, "oldest": known.oldest, "newest": known.newest}
        return {"name": name, "checked": True, "topics": {}, "partitions": [], "table": facts}

    def _asked(self, name: str, table: _Table) -> PositionRange | None:
        """The table's answer. Those that only the store names are read with limits."""
        cls = _class_of(table.kind)
        if table.has_limits:
            return self._limited_looks()(name)
        from seamark.cli.limited_look import damage_told
        from seamark.sources.position_looks import look_at_line

        if table.kind != DELTA:
            refuse_catalogs_of_this_folder()
        with damage_told(table.path or table.options.get("table", "")):
            return look_at_line(name, cls, table.options, table.line)

    def _limited_looks(self) -> LimitedLooks:
        if self._limited is None:
            from seamark.cli import limited_look

            self._limited = limited_look.LimitedLooks(
                {
                    name: limited_look.Question(table.options, table.line)
                    for name, table in sorted(self._tables.items())
                    if table is not None and table.may_be_asked and table.has_limits
                }
            )
        return self._limited


@dataclass(frozen=True)
class _Table:
    """A table that is a source."""

    kind: str
    options: dict[str, str]
    line: str
    is_named: bool
    """Whether the user has said where it is."""

    @property
    def path(self) -> str:
        return self.options.get("path", "")

    @property
    def may_be_asked(self) -> bool:
        return self.kind != DELTA or is_known_address(self.path)

    @property
    def has_limits(self) -> bool:
        """Which table an Iceberg catalog has under a name, the user's own catalog says."""
        return self.kind == DELTA and not self.is_named


def _table_of(
    name: str, manifest: CheckpointManifest, given: Mapping[str, Mapping[str, str]]
) -> _Table | None:
    kind, recorded = _recorded(name, manifest)
    line = manifest.source_offsets[name].metadata.get("line")
    if kind not in FORMATS or not isinstance(line, str):
        return None
    own = given.get(name, {})
    return _Table(kind, {**recorded, **own}, line, "path" in own)


def _recorded(name: str, manifest: CheckpointManifest) -> tuple[str, dict[str, str]]:
    """The format of a source, and which table it reads, as a checkpoint has them.

    Nothing else is taken from a store: it must not choose the server that a login is sent to.
    """
    about = description_of(manifest, "sources", name) or {}
    options = about.get("options")
    if not isinstance(options, dict):
        return "", {}
    return str(about.get("format")), {
        key: str(options[key]) for key in ("path", "table") if key in options
    }


def _class_of(kind: str) -> type[SequencedSource]:
    try:
        from seamark.sources import DeltaSource, IcebergSource
    except ImportError as error:
        raise RefusedError(
            f"a source of the format {kind} is asked with PySpark, which is not installed",
            hint="pip install 'seamark[spark]'.",
        ) from error
    return DeltaSource if kind == DELTA else IcebergSource


def options_by_source(settings: Mapping[str, str], sources: list[str]) -> dict[str, dict[str, str]]:
    """Settings such as ``orders.catalog.uri`` as options of each source. Pure."""
    found: dict[str, dict[str, str]] = {}
    for key, value in settings.items():
        fitting = [name for name in sources if key.startswith(f"{name}.")]
        if not fitting:
            raise InvalidInputError(
                f"{key!r} does not begin with the name of a source and a dot",
                hint=f"The sources of the checkpoint are: {', '.join(sources)}.",
            )
        name = max(fitting, key=len)
        found.setdefault(name, {})[key[len(name) + 1 :]] = value
    return found
