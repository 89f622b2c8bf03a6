"""Taking from a working copy what an epoch added to it.

To be called inside the batch, after its last action: then version N+1 of every store is complete
on disk, and only ``commits/N`` is missing, which is made here exactly as Spark will make it.

Tests: ``tests/capture/test_capture_and_restore.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from seamark.capture.epoch_files import Captured, EpochFiles, Held
from seamark.capture.file_index import FileIndex, StoredFile
from seamark.capture.movers import Mover
from seamark.capture.state_comparison import compare_changes
from seamark.capture.state_moves import StateMoves
from seamark.capture.uploads import Uploads
from seamark.checkpoint_dir.operators import StatefulOperator, StoreFolder
from seamark.checkpoint_dir.state_files import is_state
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError
from seamark.spark.batch_log import StateIds

Partitions = Callable[[], Mapping[int, int]]


class Capture:
    """Remembers what the chain of checkpoints holds already, so that only new files are taken."""

    def __init__(
        self,
        copy: WorkingCopy,
        mover: Mover,
        index: FileIndex | None = None,
        small: Mapping[str, bytes] | None = None,
        moves: StateMoves | None = None,
        uploads: Uploads | None = None,
    ) -> None:
        self.copy = copy
        self._mover = mover
        self._moves = moves or StateMoves()
        self._uploads = uploads
        self._held = Held(index or FileIndex(), dict(small or {}), is_known=index is not None)
        self._operators: list[StatefulOperator] | None = None
        self._folders: list[tuple[str, StoreFolder]] = []
        self._versions: list[int] = []

    @property
    def index(self) -> FileIndex:
        """Where the files of the newest checkpoint are."""
        return self._held.index

    # an epoch

    def take(
        self,
        batch: int,
        commit: str,
        *,
        full: bool,
        state_ids: StateIds | None = None,
        partitions: Partitions = dict,
    ) -> Captured:
        """The files of the epoch that the chain does not hold yet.

        A full one also takes what the checkpoints of the chain hold themselves, so that it needs
        none of them. ``partitions`` tells how many partitions operators have, where Spark notes
        more of them. :class:`MissingVersion` when a store lacks its version: the batch was not
        read in full.
        """
        operators = self._known_operators(partitions)
        moves = self._moves.arrived()
        # what builds on a checkpoint that refers to a damaged object is damaged as well
        full = full or not self._held.is_known or any(move.heals for move in moves)
        taking = EpochFiles(self.copy, self._mover, self._held, batch + 1, full=full)
        for operator in operators:
            folders = [folder for label, folder in self._folders if label == operator.label]
            ids = state_ids.get(operator.number) if state_ids is not None else None
            taking.operator(operator, folders, ids)
        taking.follow(moves)
        taking.logs(batch, commit)
        return taking.captured(operators)

    def saved(self, captured: Captured, placed: Mapping[str, StoredFile]) -> None:
        """The checkpoint is decided: what was captured need not be taken again.

        ``placed`` says of every small file where it was stored.
        """
        added = {**captured.stored, **placed}
        index = self._held.index.after(captured.removed, added, full=captured.is_full)
        small = {
            path: data
            for contents in captured.files.values()
            for path, data in contents.items()
            if is_state(path) and placed[path].shared is None
        }
        before = {} if captured.is_full else self._held.small
        small = {p: d for p, d in before.items() if p not in captured.removed} | small
        usual = self._held.usual
        self._held = Held(index, small, is_known=True, is_described=True, usual=usual)
        self._versions = captured.versions
        if self._uploads is not None:
            self._uploads.settle()
        self._moves.decided(index, max(captured.versions, default=0))

    def undone(self) -> None:
        """The checkpoint was certainly not saved: what was stored for it is removed."""
        self._moves.undecided()
        if self._uploads is not None:
            self._uploads.discard()

    def moved(self, patience: float) -> Captured | None:
        """What was stored in the background by the end of a run, and no epoch has followed.

        It is waited for, at most so many seconds. None when there is nothing.
        """
        if not self._held.is_known or not self._versions:
            return None
        self._moves.finish(patience)
        moves = [move for move in self._moves.arrived() if not move.heals]
        taking = EpochFiles(self.copy, self._mover, self._held, max(self._versions), full=False)
        taking.follow(moves)
        operators = self._operators or []
        moved = replace(
            taking.captured(operators), files={operator.label: {} for operator in operators}
        )
        if not moved.stored:
            self._moves.undecided()
            return None
        return moved

    def abandon(self) -> None:
        """End as a process does that is killed."""
        self._moves.abandon()

    def check_unchanged(self, placed: Mapping[str, StoredFile]) -> None:
        """:class:`DamageError` when a state file changed since an earlier checkpoint took it."""
        for path, file in placed.items():
            held = self.index.files.get(path)
            if held is not None and held.sha256 != file.sha256 and is_state(path):
                raise DamageError(
                    f"{path} has changed since an earlier checkpoint took it",
                    where=self.copy.root,
                    hint="State files never change. Start again: the working copy is rebuilt.",
                )

    def differences(self, batch: int) -> str:
        """Which state files of a repeated epoch differ from the checkpoint's; empty for none.

        Names with ids of their own (SST files, checkpoint format 2) differ with every run.
        """
        changed = compare_changes(self.copy, self.index.files, batch + 1).differing
        return ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if changed[3:] else "")

    def _known_operators(self, partitions: Partitions) -> list[StatefulOperator]:
        # a running query never changes its operators
        if self._operators is None:
            really = partitions()
            self._operators = [
                op._replace(partitions=min(op.partitions, really.get(op.number) or op.partitions))
                for op in self.copy.operators()
            ]
            self._folders = [(op.label, f) for op in self._operators for f in op.folders()]
            self._moves.watch([folder.path for _, folder in self._folders])
        return self._operators
