"""Where working copies live: one directory for each generation of writers.

A dying process of the last generation writes into its own directory, which is no longer anybody's.
A pipeline that got or lost a sink reads its sources in another order than its copy has noted.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from seamark._common.files import require_no_link
from seamark._common.json_documents import UNREADABLE
from seamark._common.logs import logger_named
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.capture.declared_inputs import require_declared
from seamark.capture.plans import read_plan
from seamark.checkpoint_dir.places.hadoop_copy import open_working_copy
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.epoch.topic_ids import ids_of, require_topics_of_first_plan
from seamark.pipeline.recovery.carried_plans import (
    carried_plan,
    first_lines_of,
    joined_with_itself,
    reordered,
)
from seamark.spark.batch_log import NO_OFFSET, Plan, parse_offsets
from seamark.spark.session import is_local
from seamark.store import CheckpointStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logger_named("seamark.pipeline")

_GENERATION: Final = re.compile(r"g(\d+)")
_SCRATCH: Final = re.compile(r"[a-z]+-g(\d+)-[0-9a-f]+")
_PLANS: Final = "plans.json"


class _SavedPlans(msgspec.Struct, frozen=True):
    leaves: list[str]
    plans: dict[int, Plan]
    timeline: str = ""
    topics: dict[str, dict[str, str]] = {}


class ReadyNote(msgspec.Struct, frozen=True):
    """What a start writes next to a working copy once it is complete."""

    leaves: list[str]
    """The order in which the sources are read."""
    timeline: str = ""
    """The history that the copy belongs to; empty when an earlier version wrote the note."""
    topics: dict[str, dict[str, str]] = {}
    """By source of Kafka's: the id of each topic at that start."""


def working_place(
    store: CheckpointStore,
    name: str,
    given: str | os.PathLike[str] | None,
    spark: SparkSession,
) -> WorkingCopy:
    """The folder that holds the working copies of a pipeline. Creates nothing.

    Beside a local store by default; for a remote one below the user's cache directory. With
    executors on other machines it has to be given. What is given may be given to other pipelines
    too, or to a fork of this one, so each store has a folder of its own there: generations are
    counted alike, and one start removes the copies of earlier ones.
    """
    address = "/".join(store.backend.address) or store.url  # two services may have one URL
    own = f"{name}-{hashlib.sha256(address.encode()).hexdigest()[:12]}"
    if given is not None or not is_local(spark):
        return open_working_copy(shared_place(given), spark).below(own)
    if isinstance(store.backend, FilesystemBlobs):
        beside = f"{store.url}/working"
        require_no_link(beside)  # whoever made the store may have put it there
        return LocalCopy(beside)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return LocalCopy(f"{cache}/seamark/{own}")


def shared_place(given: str | os.PathLike[str] | None) -> str:
    """The place that the user gives to all executors; there is no default for it."""
    if given is None:
        raise RefusedError(
            "with executors on other machines the working copy must be on a file system that all "
            "of them share",
            where="The default is a local folder, which they would not see.",
            hint="Give one: Pipeline(…, working_copy='hdfs://…'), 's3a://…' or '/shared/path'.",
        )
    return os.fspath(given)


class WorkingDirs:
    """The working copies of a pipeline, as one generation of writers sees them.

    ``is_new_history`` says that a rollback, a reset or an upgrade has begun a timeline of which
    nothing is decided yet. Then a copy that does not name its history is taken for an older one.
    ``former`` is the timeline that an upgrade has ended: what was planned there for the next batch
    is what comes next here.
    """

    def __init__(
        self,
        place: WorkingCopy,
        generation: int,
        identity: PipelineIdentity,
        *,
        is_new_history: bool = False,
        former: str = "",
    ) -> None:
        self._place = place
        self._generation = generation
        self._leaves = list(identity.leaves)
        self._first_lines = identity.first_lines
        self._inputs = identity.inputs
        self._topics = identity.topics
        self._is_new_history = is_new_history
        self._former = former
        self.own = place.below(f"g{generation}")
        """The copy of this generation."""

    def copies(self) -> list[WorkingCopy]:
        """The copies of this and earlier generations, newest first.

        One of a later generation belongs to whoever has taken over the store.
        """
        names = self._place.names(".")
        numbered = [(int(m[1]), name) for name in names if (m := _GENERATION.fullmatch(name))]
        return [
            self._place.below(name)
            for number, name in sorted(numbered, reverse=True)
            if number <= self._generation
        ]

    def newest_ready(self) -> tuple[WorkingCopy, ReadyNote] | None:
        """The newest copy that a start has completed, with its note."""
        notes = ((copy, self.note_of(copy)) for copy in self.copies())
        return next(((copy, note) for copy, note in notes if note is not None), None)

    def note_of(self, copy: WorkingCopy) -> ReadyNote | None:
        """The note next to a copy; None when no start has completed the copy.

        A start that dies while it changes a copy leaves it without a note. None too for a copy with
        a link in it, or that is one: no start has made that.
        """
        try:
            data = self._place.read(_note_name(copy))
            note = msgspec.json.decode(data, type=ReadyNote)
        except (FileNotFoundError, *UNREADABLE):
            return None
        if not copy.exists():
            return None
        if (foreign := copy.foreign()) is not None:
            log.warning("a working copy is not used: %s is not a regular file", copy.path(foreign))
            return None
        return note

    def mark_ready(self, timeline: str) -> None:
        """Note that this generation's copy is complete, with its order of sources and history."""
        note = ReadyNote(self._leaves, timeline, ids_of(self._topics))
        self._place.write(_note_name(self.own), msgspec.json.encode(note))

    def mark_unfinished(self, copy: WorkingCopy) -> None:
        """Remove the note before a copy is changed."""
        self._place.remove(_note_name(copy))

    def clear_own(self) -> None:
        """Remove whatever is in the directory of this generation."""
        self.mark_unfinished(self.own)
        self.own.destroy()

    def take_over(self, copy: WorkingCopy) -> None:
        """Move a copy to this generation, away from any process that may still write to it."""
        self.mark_unfinished(copy)
        if copy.root != self.own.root:
            self.own.destroy()
            self._place.rename(_name(copy), _name(self.own))

    def remove_others(self) -> None:
        """Remove the copies of earlier generations, and what a start that died was working on."""
        for copy in self.copies():
            if copy.root != self.own.root:
                self.mark_unfinished(copy)
                copy.destroy()
        for name in self._place.names("."):
            if (match := _SCRATCH.fullmatch(name)) and int(match[1]) <= self._generation:
                self._place.below(name).destroy()

    # plans of batches that were not decided

    def plans_in(
        self, copy: WorkingCopy, note: ReadyNote, after: int, timeline: str
    ) -> dict[int, Plan]:
        """What Spark had planned in a copy after a batch; also saved in case this start dies.

        :class:`PositionUnavailable` when it is the first batch of a source and was for a topic that
        is another one now. No checkpoint tells, and the new topic's rows before the old positions
        would never be read.
        """
        return self._on_same_topics(self._save_plans(copy, note, after, timeline))

    def _save_plans(
        self, copy: WorkingCopy, note: ReadyNote, after: int, timeline: str
    ) -> _SavedPlans:
        plans: dict[int, Plan] = {}
        # a copy of an abandoned history may have been left here
        if self._is_of(note.timeline, timeline):
            plans = {
                batch: plan
                for batch in copy.batches("offsets")
                if batch > after and (plan := self._plan_in(copy, batch, note)) is not None
            }
        begun = _begun(note.leaves, copy.read_text(f"offsets/{after}"))
        topics = {source: ids for source, ids in note.topics.items() if source not in begun}
        saved = _SavedPlans(self._leaves, plans, timeline, topics)
        self._place.write(_PLANS, msgspec.json.encode(saved))
        return saved

    def _plan_in(self, copy: WorkingCopy, batch: int, note: ReadyNote) -> Plan | None:
        """What a copy has planned for a batch; None unless every part of it is whole.

        Spark does not wait for a disk. After a power failure the entry of the offset log may be
        there without the files that it stands for, and nothing of the batch is decided.
        """
        leaves, is_same = note.leaves, note.leaves == self._leaves
        if not is_same and any(number >= len({*leaves}) for number in copy.numbers("sources")):
            return None  # a source was joined with itself: no name leads to that folder
        plan = read_plan(copy, batch, self._first_lines if is_same else first_lines_of(leaves))
        carried = None if plan is None else self._carried(plan, leaves)
        if carried is None:
            return None
        try:
            before = copy.read_text(f"offsets/{batch - 1}")
            if before is not None and not is_same:
                before = reordered(before, leaves, self._leaves)
            require_declared(carried, self._inputs, before)
        except (DamageError, RefusedError) as error:
            # a pipeline that has changed may read other folders or topics now
            is_changed = not is_same or note.timeline == self._former != ""
            if isinstance(error, RefusedError) and not is_changed:
                raise
            log.warning("batch %d is planned again: %s", batch, error.what)
            return None
        return carried

    def _carried(self, plan: Plan, leaves: list[str]) -> Plan | None:
        """A plan that was made for these leaves, for those of now; None where it is not known."""
        if leaves != self._leaves and len(self._first_lines) > len({*self._leaves}):
            return None  # a source has come to be joined with itself
        return carried_plan(plan, leaves, self._leaves)

    def first_plans(self, timeline: str) -> dict[int, Plan]:
        """What Spark had planned for an epoch 1 that was never decided; raises as the others do."""
        saved = self._saved(timeline)
        for copy in self.copies():
            note = self.note_of(copy)
            if note is not None and not copy.batches("commits"):
                saved = self._save_plans(copy, note, -1, timeline)
                break
        return self._on_same_topics(saved)

    def saved_plans(self, timeline: str) -> dict[int, Plan]:
        """The plans that an unfinished start has saved, for the leaves of now.

        Plans of another history would make rows run twice, or never.
        """
        return self._on_same_topics(self._saved(timeline))

    def _on_same_topics(self, saved: _SavedPlans) -> dict[int, Plan]:
        if saved.plans:
            require_topics_of_first_plan(saved.topics, self._topics, self._place.root)
        return saved.plans

    def _saved(self, timeline: str) -> _SavedPlans:
        none = _SavedPlans([], {})
        try:
            saved = msgspec.json.decode(self._place.read(_PLANS), type=_SavedPlans)
        except (FileNotFoundError, *UNREADABLE):
            return none
        if not self._is_of(saved.timeline, timeline):
            return none
        plans = {batch: self._carried(plan, saved.leaves) for batch, plan in saved.plans.items()}
        known = {batch: plan for batch, plan in plans.items() if plan is not None}
        return msgspec.structs.replace(saved, leaves=self._leaves, plans=known)

    def _is_of(self, noted: str, timeline: str) -> bool:
        """Whether what was noted belongs to this history."""
        if not noted:
            return not self._is_new_history
        return noted in (timeline, self._former)

    def forget_plans(self) -> None:
        """Remove the saved plans: the copy is complete and has them itself."""
        self._place.remove(_PLANS)


def scratch_name(what: str, generation: int) -> str:
    """The name of a new folder, next to the copies, for work that one start does.

    The first start after one that has died there removes it.
    """
    return f"{what}-g{generation}-{uuid.uuid4().hex[:12]}"


def _begun(leaves: Sequence[str], offsets: str | None) -> set[str]:
    """The sources that were read by an entry of the offset log; a checkpoint has their topics."""
    try:
        lines = () if offsets is None else parse_offsets(offsets).lines
    except DamageError:
        lines = ()
    return {name for name, line in zip(leaves, lines, strict=False) if line != NO_OFFSET}


def _name(copy: WorkingCopy) -> str:
    return copy.root.rpartition("/")[2]


def _note_name(copy: WorkingCopy) -> str:
    return f"{_name(copy)}.json"


def reorder_sources(
    copy: WorkingCopy, chosen: CheckpointManifest, identity: PipelineIdentity
) -> None:
    """Make Spark's logs in a working copy fit the order in which the sources are read now.

    The offset log has one line for each leaf of the plan; ``sources/`` one folder for each source,
    numbered by its first appearance.
    """
    old = list(identity.leaves if chosen.leaves is None else chosen.leaves)
    new = list(identity.leaves)
    if old == new:
        return
    old_order, new_order = list(dict.fromkeys(old)), list(dict.fromkeys(new))
    if set(new_order) - set(old_order):
        raise RefusedError("a source was added, and Spark cannot start it in the middle")
    _require_plain(copy, old_order)
    paths = [f"offsets/{batch}" for batch in copy.batches("offsets")]
    texts = {path: text for path in paths if (text := copy.read_text(path)) is not None}
    for path, changed in {p: reordered(text, old, new) for p, text in texts.items()}.items():
        copy.write(path, changed.encode())
    _rename_folders(copy, old_order, new_order)


def _require_plain(copy: WorkingCopy, sources: Sequence[str]) -> None:
    if any(number >= len(sources) for number in copy.numbers("sources")):
        raise joined_with_itself()


def _rename_folders(copy: WorkingCopy, old: Sequence[str], new: Sequence[str]) -> None:
    moves = {old.index(name): number for number, name in enumerate(new)}
    present = [n for n in range(len(old)) if copy.has_folder(f"sources/{n}")]
    if all(moves.get(n) == n for n in present):
        return
    for number in present:
        copy.rename(f"sources/{number}", f"sources/old-{number}")
    for number in present:
        if number in moves:
            copy.rename(f"sources/old-{number}", f"sources/{moves[number]}")
