"""Where working copies live: one directory for each generation of writers.

A dying process of the last generation writes into its own directory, which is no longer anybody's.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from seamark._common.files import create_beside, read_file
from seamark._common.json_documents import UNREADABLE
from seamark._common.os_errors import translate_os_errors
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import RefusedError
from seamark.spark.batch_log import Plan
from seamark.store import CheckpointStore

_GENERATION: Final = re.compile(r"g(\d+)")
_PLANS: Final = "plans.json"


class _SavedPlans(msgspec.Struct, frozen=True):
    leaves: list[str]
    plans: dict[int, Plan]
    timeline: str = ""


class Note(msgspec.Struct, frozen=True):
    """What a start that was finished has noted about its copy."""

    leaves: list[str]
    """The order in which the sources are read."""
    timeline: str = ""
    """The history that it belongs to; empty when an earlier version has written the note."""

    def is_of(self, timeline: str) -> bool:
        """Whether what is planned there is planned for this history, as far as is known."""
        return self.timeline in ("", timeline)


def working_root(
    store: CheckpointStore, name: str, given: str | os.PathLike[str] | None, *, is_local: bool
) -> str:
    """The folder that holds the working copies of a pipeline.

    Beside a local store by default; for a remote one below the user's cache directory. With
    executors on other machines it has to be given: all of them read and write it.
    """
    if given is not None:
        return os.path.abspath(given)
    if not is_local:
        raise RefusedError(
            "with executors on other machines the working copy must be on a file system that all "
            "of them share",
            where="The default is a local folder, which they would not see.",
            hint="Give one: Pipeline(…, working_copy='/shared/path').",
        )
    if isinstance(store.backend, FilesystemBlobs):
        return f"{store.url}/working"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    digest = hashlib.sha256(store.url.encode()).hexdigest()[:12]
    return f"{cache}/seamark/{name}-{digest}"


def generations(root: str, up_to: int) -> list[WorkingCopy]:
    """The working copies of this and earlier generations, newest first.

    One of a later generation belongs to whoever has taken the store over.
    """
    try:
        names = os.listdir(root)
    except FileNotFoundError:
        return []
    found = [(int(m[1]), name) for name in names if (m := _GENERATION.fullmatch(name))]
    return [
        WorkingCopy(f"{root}/{name}")
        for number, name in sorted(found, reverse=True)
        if number <= up_to
    ]


def ready_for(copy: WorkingCopy) -> Note | None:
    """What was noted about a copy; None when no start has finished it.

    A start that dies while it changes a copy leaves it without this note.
    """
    try:
        told = read_file(*os.path.split(f"{copy.root}.json"))
        return msgspec.json.decode(told, type=Note)
    except (FileNotFoundError, *UNREADABLE):
        return None


def mark_ready(copy: WorkingCopy, leaves: Sequence[str], timeline: str) -> None:
    """Note that a copy is finished, for which order of sources and for which history."""
    _put(f"{copy.root}.json", msgspec.json.encode(Note(list(leaves), timeline)))


def _put(path: str, data: bytes) -> None:
    with translate_os_errors("writing", path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd, temporary = create_beside(path)
        with open(fd, "wb") as file:
            file.write(data)
        os.replace(temporary, path)


def mark_unfinished(copy: WorkingCopy) -> None:
    """Take the note back, before a copy is changed."""
    with suppress(FileNotFoundError):
        os.unlink(f"{copy.root}.json")


def save_plans(root: str, leaves: Sequence[str], timeline: str, plans: Mapping[int, Plan]) -> None:
    """Keep what Spark had planned while a copy is changed, in case the start dies on the way."""
    kept = _SavedPlans(list(leaves), dict(plans), timeline)
    _put(f"{root}/{_PLANS}", msgspec.json.encode(kept))


def saved_plans(root: str, leaves: Sequence[str], timeline: str) -> dict[int, Plan]:
    """The plans that an unfinished start has kept, when they are for the same sources.

    Those of another history would have rows run twice, or never.
    """
    try:
        found = msgspec.json.decode(read_file(root, _PLANS), type=_SavedPlans)
    except (FileNotFoundError, *UNREADABLE):
        return {}
    fits = found.leaves == list(leaves) and found.timeline in ("", timeline)
    return found.plans if fits else {}


def forget_plans(root: str) -> None:
    """The copy is finished, and has the plan itself."""
    with suppress(FileNotFoundError):
        os.unlink(f"{root}/{_PLANS}")


def own_copy(root: str, generation: int) -> WorkingCopy:
    """The directory of a generation."""
    return WorkingCopy(f"{root}/g{generation}")


def take_over(old: WorkingCopy, mine: WorkingCopy) -> None:
    """Move a directory to its new generation, away from whoever may still write to it."""
    mark_unfinished(old)
    if old.root != mine.root:
        mine.destroy()
        os.makedirs(os.path.dirname(mine.root), exist_ok=True)
        os.rename(old.root, mine.root)


def remove_others(root: str, generation: int, mine: WorkingCopy) -> None:
    """Remove what earlier generations left."""
    for copy in generations(root, generation):
        if copy.root != mine.root:
            mark_unfinished(copy)
            shutil.rmtree(copy.root, ignore_errors=True)
