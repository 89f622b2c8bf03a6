"""Numbers of operators: what Spark calls an operator, and its files when it gets another number.

Tests: ``tests/pipeline/test_upgrades.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from seamark._common.json_documents import decode_foreign
from seamark.errors import DamageError, RefusedError
from seamark.spark.batch_log import log_text

STATE_PATH: Final = re.compile(r"state/([0-9]+)/(.+)")
"""A file of an operator: its number, and the rest of the path."""
_KINDS: Final[Mapping[str, str]] = {
    "stateStoreSave": "aggregation",
    "sessionWindowStateStoreSaveExec": "aggregation",
    "dedupe": "deduplication",
    "dedupeWithinWatermark": "deduplication within the watermark",
    "symmetricHashJoin": "stream-stream join",
    "globalLimit": "limit",
    "flatMapGroupsWithState": "flatMapGroupsWithState",
    "applyInPandasWithState": "applyInPandasWithState",
    "transformWithStateExec": "transformWithState",
    "transformWithStateInPandasExec": "transformWithState",
    "transformWithStateInPySparkExec": "transformWithState",
}
"""What Spark calls its operators where it describes them."""


def require_kinds(declared: Iterable[str], numbered: Mapping[int, str], where: str) -> None:
    """:class:`RefusedError` unless the operators of a plan are numbered as they are declared."""
    kinds = [str(text).partition(": ")[2] for text in declared]
    found = [_KINDS.get(numbered[number], numbered[number]) for number in sorted(numbered)]
    expected = [
        kind.replace("transformWithStateInPandas", "transformWithState").replace(
            "aggregation for except", "aggregation"
        )
        for kind in kinds
    ]
    if sorted(numbered) != list(range(len(kinds))) or found != expected:
        raise RefusedError(
            f"it is not known which state belongs to which operator in {where}",
            where=f"declared: {', '.join(expected) or 'none'}; found: {', '.join(found) or 'none'}",
            hint="Nothing was changed. Undo the change, or give the changed pipeline a store of "
            "its own.",
        )


def renumbered(path: str, old: str, data: bytes) -> bytes:
    """A file whose operator has got another number: its description names that.

    :class:`DamageError` for one that describes no operator.
    """
    before, after = STATE_PATH.fullmatch(old), STATE_PATH.fullmatch(path)
    if before is None or after is None or before[1] == after[1]:
        return data
    if not after[2].startswith("_metadata/"):
        return data
    head, _, body = log_text(old, data).partition("\n")
    try:
        fields = decode_foreign(body.replace(f"/state/{before[1]}/", f"/state/{after[1]}/"))
        fields["operatorInfo"]["operatorId"] = int(after[1])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise DamageError(f"{old} does not describe an operator: {error!r}") from None
    return f"{head}\n{json.dumps(fields, separators=(',', ':'))}".encode()
