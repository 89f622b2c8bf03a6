"""What can be wrong with a checkpoint directory, each by a code that stays what it is.

============================ ========= ===========================================================
code                         severity  what it says
============================ ========= ===========================================================
metadata-missing             damage    the file with the query's id is not there
metadata-unreadable          damage    it is there and cannot be read
offsets-unreadable           damage    an entry of the offset log is empty, torn or something else
offsets-gap                  damage    an entry between others is not there
offsets-previous-missing     damage,   the entry before the newest one is not there; a warning
                             warning   where asynchronous progress tracking may leave it out
offsets-backwards            warning   a source stands before where an earlier batch had it
commit-unreadable            damage    an entry of the commit log is empty, torn or something else
commits-gap                  warning   an entry between others is not there
commit-without-offsets       damage    a batch was committed that the offset log does not know
source-log-missing           damage    the offsets name an entry that the source's log lacks
source-log-gap               damage    an entry that a restart reads is not there
source-log-damaged           damage    an entry of a source's log cannot be read
source-log-disagrees         warning   an entry says something else than a later compaction
source-log-interval          damage    a restart looks for entries under other names
operator-metadata-missing    damage,   Spark's description of a stateful operator is not there; a
                             warning   warning where Spark writes it again
operator-metadata-unreadable damage    it is there and cannot be read
schema-elsewhere             warning   a schema is named by a path into another directory
schema-missing               damage    a schema file that is named is not there
batch-not-consumed           damage    a committed batch has not written the state of every store
state-missing                damage,   a state file that the newest batch needs is not there; a
                             warning   warning for one that only a rollback would need
state-empty                  damage    a state file has no bytes
state-unreadable             damage    a state file is torn, or its own checksums differ
sst-missing                  damage    a RocksDB snapshot names a file that is not there
sst-size                     damage    such a file has another size than the snapshot says
zip-unreadable               damage    a RocksDB snapshot cannot be unpacked
state-duplicated             damage    a state file equals one of another partition
state-repeated               warning   a state file equals one of another version, and its time or
                                       a checksum tells that Spark did not write it
state-out-of-order           warning   state files were not written when their batches ran
key-in-two-partitions        damage    two partitions have state for one and the same key
state-newer-than-log         damage,   state of batches that were never planned: an abandoned
                             warning,  history that Spark would take for its own; a warning for
                             info      changes, only info in checkpoint format 2
snapshot-disagrees           damage    a snapshot is not what its own deltas make
snapshot-stale               warning   a snapshot is older than the batch that it is of
hadoop-checksum              warning   a file differs from the hidden checksum next to it, which
                                       only Spark's FileSystem-based file manager looks at
spark-checksum               damage    a file differs from the checksum that Spark put next to it
repartition-unfinished       damage    a change of the number of partitions was not finished
rollback-unfinished          damage    a rollback by Seamark was started and not finished
temporary-files              info      files of writes that were never finished
============================ ========= ===========================================================

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from seamark._redaction import redacted

_LONGEST: Final = 500


class Severity(StrEnum):
    """How bad it is; damage is what makes a command fail."""

    DAMAGE = "damage"
    WARNING = "warning"
    INFO = "info"


class Code(StrEnum):
    """What a finding is; see the table above."""

    METADATA_MISSING = "metadata-missing"
    METADATA_UNREADABLE = "metadata-unreadable"
    OFFSETS_UNREADABLE = "offsets-unreadable"
    OFFSETS_GAP = "offsets-gap"
    OFFSETS_PREVIOUS_MISSING = "offsets-previous-missing"
    OFFSETS_BACKWARDS = "offsets-backwards"
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
    HADOOP_CHECKSUM = "hadoop-checksum"
    SPARK_CHECKSUM = "spark-checksum"
    REPARTITION_UNFINISHED = "repartition-unfinished"
    ROLLBACK_UNFINISHED = "rollback-unfinished"
    TEMPORARY_FILES = "temporary-files"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong, where it is, and what to do about it."""

    code: Code
    severity: Severity
    path: str
    """Relative to the directory; a folder where a whole store is meant."""
    message: str
    advice: str = ""
    stops: str | None = None
    """What a restart of the query would fail with; None when it would not notice."""


def damage(
    code: Code, path: str, message: str, advice: str = "", stops: str | None = None
) -> Finding:
    """A finding that proves that something is wrong or lost."""
    return Finding(
        code=code, severity=Severity.DAMAGE, path=path, message=message, advice=advice, stops=stops
    )


def warning(code: Code, path: str, message: str, advice: str = "") -> Finding:
    """A finding that may have an innocent reason."""
    return Finding(code=code, severity=Severity.WARNING, path=path, message=message, advice=advice)


def info(code: Code, path: str, message: str, advice: str = "") -> Finding:
    """A finding that does no harm."""
    return Finding(code=code, severity=Severity.INFO, path=path, message=message, advice=advice)


def shown(text: str) -> str:
    """A text from a directory, fit to be printed: no secrets, nothing that moves a cursor."""
    plain = "".join(char if char.isprintable() else "?" for char in text[: 40 * _LONGEST])
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
