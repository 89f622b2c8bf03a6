"""Whether the files of a plan that was made earlier are still those that it was made of.

Spark opens what a plan names and does not compare the time that it has noted. A file that was
replaced since gives other rows under the same plan: a target that knows the epoch drops them, and
state and other sinks take them.

Tests: ``tests/capture/test_changed_inputs.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from seamark._common.text import time_text
from seamark.capture.planned_files import IF_IT_CANNOT_BE, Modified, is_same_time, planned_files
from seamark.errors import SeamarkError
from seamark.spark.batch_log import Plan

_MOST_NAMED: Final = 3

BRING_BACK: Final = (
    "Bring it back as it was, with the time that it had: the epoch runs again on exactly the rows "
    f"that it was planned for. {IF_IT_CANNOT_BE}"
)


def require_unchanged_files(
    plan: Plan,
    epoch: int,
    listed: Callable[[], Mapping[str, int]],
    modified: Modified,
    hint: str = BRING_BACK,
) -> None:
    """:class:`SeamarkError` when a file of the plan was modified after the epoch was planned.

    ``listed`` tells the times of the files that Spark has found for the batch; only what is not
    among them is asked for. Local files are always looked at. A file that is gone is not looked
    for here.
    """
    changed = list(_changed(plan, listed, modified))
    if not changed:
        return
    more = f" and {len(changed) - _MOST_NAMED} more" if changed[_MOST_NAMED:] else ""
    raise SeamarkError(
        f"a file that epoch {epoch} was planned to read was modified since",
        where=", ".join(changed[:_MOST_NAMED]) + more,
        hint=hint,
    )


def _changed(
    plan: Plan, listed: Callable[[], Mapping[str, int]], modified: Modified
) -> Iterator[str]:
    times: Mapping[str, int] | None = None
    for file in planned_files(plan):
        if file.modified_ms is None:
            continue
        if urlsplit(file.uri).scheme in ("", "file"):
            now = modified(file.uri)
        else:
            times = listed() if times is None else times
            now = times.get(file.uri)
            now = modified(file.uri) if now is None else now
        if now is not None and not is_same_time(file, now):
            was = time_text(file.modified_ms)
            yield f"{file.uri} (modified {time_text(now)}, and {was} in the plan)"
