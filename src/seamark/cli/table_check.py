"""Whether Delta and Iceberg tables still have what comes next, for ``seamark sources --check``.

Tests: ``tests/cli/test_table_check.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from seamark.cli.output import Document
from seamark.cli.source_check import not_checked
from seamark.errors import InvalidInputError, PositionUnavailable, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.table_formats.delta_addresses import is_known_address

if TYPE_CHECKING:
    from seamark.sources import SequencedSource
    from seamark.sources.sequence_reader import PositionRange

FORMATS: Final = ("seamark_delta", "seamark_iceberg")
_LONGEST_SCHEME: Final = 20


def checked_table(
    name: str, manifest: CheckpointManifest, given: Mapping[str, Mapping[str, str]]
) -> Document | None:
    """What a table says about the position of a source; None for a source of another kind.

    ``given`` are options by source: a checkpoint has only those that hold no secret. Whoever made
    the store must not choose a server that is spoken to, so a URL of one is not followed.
    """
    kind, recorded = _recorded(name, manifest)
    options = {**recorded, **given.get(name, {})}
    line = manifest.source_offsets[name].metadata.get("line")
    if kind not in FORMATS or not isinstance(line, str):
        return None
    if kind == "seamark_delta" and not is_known_address(path := options.get("path", "")):
        scheme = path.strip().partition(":")[0][:_LONGEST_SCHEME]
        return not_checked(name, f"only tables at a path or in a bucket are asked, not {scheme}:")
    facts: Document = {"wanted": None, "oldest": None, "newest": None, "note": None}
    try:
        known = _asked(name, kind, options, line, is_named="path" in given.get(name, {}))
    except PositionUnavailable as gone:
        facts |= {"status": "gone", "note": str(gone)}
    else:
        facts["status"] = "ok"
        if known is not None:
            facts |= {"wanted": known.wanted, "oldest": known.oldest, "newest": known.newest}
    return {"name": name, "checked": True, "topics": {}, "partitions": [], "table": facts}


def _asked(
    name: str, kind: str, options: Mapping[str, str], line: str, *, is_named: bool
) -> PositionRange | None:
    """The table's answer. One that only the store names is read with limits.

    Which table an Iceberg catalog has under a name, the user's own catalog says.
    """
    cls = _class_of(kind)
    if kind == "seamark_delta" and not is_named:
        from seamark.cli.limited_look import look_within_limits

        return look_within_limits(name, options, line)
    from seamark.sources.position_looks import look_at_line

    return look_at_line(name, cls, options, line)


def _recorded(name: str, manifest: CheckpointManifest) -> tuple[str, dict[str, str]]:
    """The format of a source, and which table it reads, as a checkpoint has them.

    Nothing else is taken from a store: it must not choose the server that a login is sent to.
    """
    sources = (manifest.structure or {}).get("sources")
    described = sources.get(name) if isinstance(sources, dict) else None
    if not isinstance(described, dict) or not isinstance(described.get("options"), dict):
        return "", {}
    options = described["options"]
    return str(described.get("format")), {
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
    return DeltaSource if kind == "seamark_delta" else IcebergSource


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
