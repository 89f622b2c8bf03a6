"""What to read of a sink to see exactly the epochs up to one, as data that a checkpoint keeps.

What ``at`` holds, by kind:

- ``files``: ``format``, ``epoch``, ``partition_by``, ``epochs_per_folder``, and ``options`` of the
  reader
- ``delta``: ``version``
- ``iceberg``: ``table`` (with dots), ``snapshot_id`` as a text, since few programs that read JSON
  keep all 64 bits of a number; where known, ``catalog`` and ``metadata_location``;
  ``catalog_is_configured`` is false when the name of the catalog alone does not open it
- ``postgres``: ``table`` with every name quoted, ``epoch``; ``condition`` such as ``"epoch" <= 7``
  if rows have the epoch in a column
- ``kafka``: ``bootstrap``, ``topic``, ``end_offsets`` (partition: the offset after its last record)
- ``kafka-topics``: the same without ``topic``, and with the end offsets of each topic
- ``key-value``: ``epoch``, ``namespace``

A sink of your own takes a kind of its own: it is listed as it is, without ready-made calls.

Tests: ``tests/sinks/test_reader_calls.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

LARGEST: Final = 64 << 10
"""Bytes of JSON; a larger one is not kept."""
_NEEDED_TO_READ: Final = frozenset(
    "header sep delimiter quote escape charToEscapeQuoteEscaping encoding charset lineSep "
    "nullValue emptyValue dateFormat timestampFormat timestampNTZFormat".lower().split()
)


class ReadPoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """What to read of a sink to see exactly the epochs up to one. Small, JSON, no secrets."""

    kind: str
    target: str
    """Where the rows are, as :class:`seamark.sinks.Description` has it: without secrets."""
    at: dict[str, Any] = {}
    """What selects the epochs; the names depend on the kind."""
    only_newest: bool = False
    """True when the target shows nothing but its newest epoch, so that a later epoch takes this
    one away from readers; ``at["epoch"]`` is this one."""


def needed_to_read(file_format: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of Spark's reader without which the files would be read in another way.

    Of its writer's options those that a reader needs too. A value of csv may have several lines,
    which are rows of their own to a reader that is not told; and one that is not told what ends a
    row takes a carriage return for it where it comes to one first.
    """
    needed = {name: value for name, value in options.items() if name.lower() in _NEEDED_TO_READ}
    if file_format != "csv":
        return needed
    ends_rows = {} if "linesep" in map(str.lower, needed) else {"lineSep": "\n"}
    return needed | ends_rows | {"multiLine": "true"}


def read_point_in(value: object) -> ReadPoint | None:
    """The read point that a checkpoint keeps; None for anything else."""
    try:
        return msgspec.convert(value, ReadPoint)
    except (msgspec.ValidationError, OverflowError):
        return None
