"""What a restored directory has Spark read that its checkpoint's batch had not read.

Spark reads every entry of a file source's log that is beyond the offsets of the last batch, whoever
wrote it. Whole directories have such entries only of a batch that was planned and not decided, and
those are put back from its plan.

Tests: ``tests/capture/test_unread_entries.py``.
"""

from __future__ import annotations

import re
from typing import Final

from seamark.capture.declared_inputs import Inputs, file_position, require_declared
from seamark.capture.plans import (
    install_plan,
    newest_entries,
    read_by_lines,
    read_plan,
    read_up_to,
)
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError
from seamark.spark.batch_log import OffsetLogEntry, Plan, log_lines, parse_offsets

_ENTRY: Final = re.compile(r"(0|[1-9][0-9]{0,17})(\.compact)?")
_FOLDER: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_LINE: Final = re.compile(
    r'\{"path":"(?:[^"\\]|\\.)*+","timestamp":-?[0-9]{1,19},"batchId":([0-9]{1,18})\}'
)


def forget_unread(copy: WorkingCopy, batch: int, inputs: Inputs) -> None:
    """Remove what file sources have noted after a batch, and prove the rest of their logs.

    :class:`DamageError` for an entry with lines of a later one, which Spark would read as that.
    What the batch itself reads is checked when it is to run again.
    """
    entry = _entry(copy, batch)
    folders = sorted(copy.names("sources"))
    for folder, at in read_by_lines(folders, entry.lines, _first_lines(inputs)).items():
        number = int(folder) if _FOLDER.fullmatch(folder) else len(inputs)
        declared = inputs[number] if number < len(inputs) else None
        if declared is not None and declared.folder is not None and declared.lines:
            _forget_files(copy, folder, file_position(entry.lines, declared))
        elif at is not None:
            _forget_after(copy, folder, at)
    if copy.read_text(f"commits/{batch}") is None:
        require_declared_batch(copy, batch, inputs)


def plan_again(copy: WorkingCopy, batch: int, plan: Plan, inputs: Inputs) -> None:
    """Put a plan that was made earlier in the place of what Spark has planned for a batch.

    Spark may have noted files that the plan leaves to a later batch, or has under another number.
    """
    copy.forget_after(batch - 1)
    copy.remove(f"offsets/{batch}")  # first: a plan without its files is none
    if batch > 0:
        forget_unread(copy, batch - 1, inputs)
    else:
        for path in copy.source_entries():
            copy.remove(path)
    install_plan(copy, batch, plan, inputs)


def forget_undeclared(copy: WorkingCopy, batch: int) -> None:
    """The same for the directory of any query, of which nothing is declared."""
    for folder, at in read_up_to(newest_entries(copy), _entry(copy, batch)).items():
        if at is not None:
            _forget_after(copy, folder, at)


def require_declared_batch(files: CheckpointFiles, batch: int, inputs: Inputs) -> None:
    """Check what Spark reads when it runs a batch that is planned in a directory.

    :class:`RefusedError` for what is not declared; :class:`DamageError` when it is not all there.
    """
    plan = read_plan(files, batch, _first_lines(inputs))
    if plan is None:
        raise DamageError(f"what batch {batch} reads is not known", where=files.uri)
    require_declared(plan, inputs, files.read_text(f"offsets/{batch - 1}"))


def _first_lines(inputs: Inputs) -> list[int]:
    known = [each.lines[0] for each in inputs if each is not None and each.lines]
    return known if len(known) == len(inputs) else []


def _entry(copy: WorkingCopy, batch: int) -> OffsetLogEntry:
    text = copy.read_text(f"offsets/{batch}")
    if text is None:
        raise DamageError(f"the checkpoint lacks 'offsets/{batch}'")
    return parse_offsets(text)


def _forget_after(copy: WorkingCopy, folder: str, at: int) -> None:
    for name in copy.source_entry_names(folder):
        if int(name.partition(".")[0]) > at:
            copy.remove(f"sources/{folder}/{name}")


def _forget_files(copy: WorkingCopy, folder: str, at: int) -> None:
    here = f"sources/{folder}/"
    for path in list(copy.files_below(here.rstrip("/"))):
        match = _ENTRY.fullmatch(path.removeprefix(here))
        # Java takes more names for numbers than Spark ever writes
        if match is None or int(match[1]) > at:
            copy.remove(path)
        else:
            _check(path, copy.read_text(path), int(match[1]), is_compacted=bool(match[2]))


def _check(path: str, text: str | None, number: int, *, is_compacted: bool) -> None:
    """Whether an entry holds lines as Spark writes them, and no line of a later entry."""
    if text is None:
        raise DamageError(f"{path} is not a text in UTF-8")
    for line in log_lines(text)[1:]:
        match = _LINE.fullmatch(line)
        if match is None:
            raise DamageError(f"{path} holds a line that is not one of a file source's log")
        if int(match[1]) > number or (not is_compacted and int(match[1]) != number):
            raise DamageError(f"{path} holds a line of entry {match[1]}")
