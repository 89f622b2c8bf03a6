"""What Spark says when a query fails, in words that a user can act on."""

from __future__ import annotations

import re
from typing import Final, TypeGuard

from seamark.errors import RefusedError, SeamarkError
from seamark.spark.crossing import arrived
from seamark.store.secrets import Redactor

_LONGEST: Final = 600

_redacted: Final = Redactor({})

_KNOWN: Final[tuple[tuple[re.Pattern[str], str, str], ...]] = (
    (
        re.compile(
            r"failOnDataLoss|OffsetOutOfRange|KafkaDataLoss"
            r"|data may (?:have been|be) (?:lost|missed)"
        ),
        "rows that the next epoch needs are gone from a source",
        "The source has deleted them. Restore its data, or start anew from what is left with a new "
        "store or policy='auto_reset'.",
    ),
    (
        re.compile(r"FAILED_READ_FILE|FileNotFoundException|PATH_NOT_FOUND|does not exist"),
        "a file that an epoch was planned to read is gone",
        "Bring the file back: the epoch runs again on exactly the rows that it was planned for.",
    ),
    (
        re.compile(r"STATE_STORE_(?:KEY|VALUE|\w*)_?SCHEMA_NOT_COMPATIBLE|STATE_SCHEMA_"),
        "the state in the checkpoint does not fit what the pipeline computes now",
        "Spark cannot load state of another shape. Undo the change of keys, functions or columns, "
        "or give the changed pipeline a store of its own, or start anew with policy='auto_reset'.",
    ),
    (
        re.compile(r"CANNOT_LOAD_STATE_STORE|STATE_STORE_"),
        "Spark cannot load its state",
        "Start again: the working copy is compared with the checkpoint and rebuilt if it differs.",
    ),
    (
        re.compile(r"No space left on device"),
        "a disk is full",
        "Make room and start again; nothing is lost.",
    ),
)


def explained(error: Exception) -> SeamarkError:
    """An error of Spark's as one of ours, with what happened and what to do next.

    One of ours that was raised in a Python process of Spark's comes back as it was.
    """
    raised = arrived(str(error), _redacted)
    if raised is not None:
        raised.__cause__ = error
        return raised
    text = _redacted(str(error))
    for pattern, what, hint in _KNOWN:
        if pattern.search(text):
            found = SeamarkError(what, where=_short(text), hint=hint)
            break
    else:
        found = SeamarkError(
            "Spark stopped the query",
            where=_short(text),
            hint="Nothing decided is lost. Mend the cause and start again.",
        )
    found.__cause__ = error
    return found


def is_of_spark(error: BaseException) -> TypeGuard[Exception]:
    """Whether an error comes from Spark or its JVM."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JError)


def refused(error: Exception) -> RefusedError:
    """What Spark refuses to plan, in words."""
    found = RefusedError(
        "Spark cannot run these outputs as one query",
        where=_short(_redacted(str(error))),
        hint="A pipeline has one output mode for all its outputs. append takes joins, "
        "deduplication, and aggregations with a watermark; update takes inner joins and "
        "aggregations; complete takes aggregations. Outputs that need another mode belong into a "
        "pipeline of their own.",
    )
    found.__cause__ = error
    return found


def _short(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    plain = [line for line in lines if not line.startswith(("at ", "...", "=== "))]
    joined = " ".join(plain)
    return joined if len(joined) <= _LONGEST else joined[: _LONGEST - 1] + "…"
