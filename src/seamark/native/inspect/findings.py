"""What can be wrong with a checkpoint directory, each by a code that stays what it is.

The codes are explained in ``docs/native.md``.

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Final

from seamark._redaction import redacted

CANNOT_LOAD: Final = "CANNOT_LOAD_STATE_STORE"
ROLL_BACK: Final = "Roll back to a batch before it, or restore a snapshot of the directory."
ROLL_BACK_EARLIER: Final = "Roll back to an earlier batch, or restore a snapshot of the directory."
_LONGEST: Final = 500


class Severity(StrEnum):
    """How bad it is; damage is what makes a command fail."""

    DAMAGE = "damage"
    WARNING = "warning"
    INFO = "info"


class Code(StrEnum):
    """What a finding is; see the table in ``docs/native.md``."""

    METADATA_MISSING = "metadata-missing"
    METADATA_UNREADABLE = "metadata-unreadable"
    OFFSETS_UNREADABLE = "offsets-unreadable"
    OFFSETS_GAP = "offsets-gap"
    OFFSETS_PREVIOUS_MISSING = "offsets-previous-missing"
    OFFSETS_BACKWARDS = "offsets-backwards"
    SETTINGS_FOREIGN = "settings-foreign"
    COMMIT_UNREADABLE = "commit-unreadable"
    COMMITS_GAP = "commits-gap"
    COMMIT_WITHOUT_OFFSETS = "commit-without-offsets"
    SOURCE_LOG_MISSING = "source-log-missing"
    SOURCE_LOG_GAP = "source-log-gap"
    SOURCE_LOG_DAMAGED = "source-log-damaged"
    SOURCE_LOG_DISAGREES = "source-log-disagrees"
    SOURCE_LOG_INTERVAL = "source-log-interval"
    OPERATOR_METADATA_MISSING = "operator-metadata-missing"
    OPERATOR_METADATA_UNREADABLE = "operator-metadata-unreadable"
    SCHEMA_ELSEWHERE = "schema-elsewhere"
    SCHEMA_MISSING = "schema-missing"
    BATCH_NOT_CONSUMED = "batch-not-consumed"
    STATE_MISSING = "state-missing"
    STATE_EMPTY = "state-empty"
    STATE_UNREADABLE = "state-unreadable"
    SST_MISSING = "sst-missing"
    SST_SIZE = "sst-size"
    ZIP_UNREADABLE = "zip-unreadable"
    STATE_DUPLICATED = "state-duplicated"
    STATE_REPEATED = "state-repeated"
    STATE_OUT_OF_ORDER = "state-out-of-order"
    KEY_IN_TWO_PARTITIONS = "key-in-two-partitions"
    STATE_NEWER_THAN_LOG = "state-newer-than-log"
    SNAPSHOT_DISAGREES = "snapshot-disagrees"
    SNAPSHOT_STALE = "snapshot-stale"
    SNAPSHOT_NOT_COMPARED = "snapshot-not-compared"
    HADOOP_CHECKSUM = "hadoop-checksum"
    SPARK_CHECKSUM = "spark-checksum"
    REPARTITION_UNFINISHED = "repartition-unfinished"
    ROLLBACK_UNFINISHED = "rollback-unfinished"
    TEMPORARY_FILES = "temporary-files"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, where it is, and what to do about it."""

    code: Code
    severity: Severity = field(kw_only=True)
    path: str
    """Relative to the directory; a folder where a whole store is meant."""
    message: str
    advice: str = ""
    stops: str | None = None
    """What a restart of the query would fail with; None when it would not notice."""


damage: Final = partial(Finding, severity=Severity.DAMAGE)
"""A finding that proves that something is wrong or lost."""
warning: Final = partial(Finding, severity=Severity.WARNING)
"""A finding that may have an innocent reason."""
info: Final = partial(Finding, severity=Severity.INFO)
"""A finding that does no harm."""


def shown(text: str) -> str:
    """A text from a directory, fit to be printed: no secrets, nothing that moves a cursor."""
    plain = text[: 40 * _LONGEST]
    if not plain.isprintable():
        plain = "".join(char if char.isprintable() else "?" for char in plain)
    hidden = redacted(plain)
    return hidden if len(hidden) <= _LONGEST else f"{hidden[:_LONGEST]}…"


def cleaned(finding: Finding) -> Finding:
    """The same finding with all of its texts fit to be printed."""
    return replace(
        finding,
        path=shown(finding.path),
        message=shown(finding.message),
        advice=shown(finding.advice),
    )


def numbers_text(numbers: list[int]) -> str:
    """``3``, ``3 to 7``, ``1, 4, 5 and 12 more``."""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    text = ", ".join(map(str, numbers[:3]))
    return text if len(numbers) <= 3 else f"{text} and {len(numbers) - 3} more"
