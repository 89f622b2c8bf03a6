"""The rows of a live view, staged until their commit and kept for a while after it.

::

    {folder}/_seamark/staging/{attempt}/epoch=000042/    staged, not committed
    {folder}/_seamark/kept/{attempt}/epoch=000042/       committed, for a view that falls behind
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from seamark._common.files import read_file, require_inside, sync_folder, write_file
from seamark._common.json_documents import UNREADABLE
from seamark._common.os_errors import translate_os_errors
from seamark.errors import DamageError, SeamarkError
from seamark.limits import LARGEST_DOCUMENT
from seamark.progress.ledger import SessionOvertaken
from seamark.sinks.epoch_folder import (
    drop_litter,
    epoch_of,
    find_damage,
    folder_name,
    read_record,
    seal_epoch,
)
from seamark.sinks.folders import (
    check_token,
    is_there,
    is_token,
    lost_the_race,
    make_durable_folder,
    make_folder_below,
    names_in,
    remove_tree,
)
from seamark.sinks.keyvalue.view import StagedEpoch, Step, ViewVersion
from seamark.sinks.staged_epochs import attempt_folder, making_durable, staging_folder

_KEPT: Final = "_seamark/kept"
_ABOUT: Final = "epoch.json"


Way = dict[ViewVersion | None, Step]
"""What to apply after what."""


class Staging:
    """The staged and kept epochs of one view."""

    def __init__(self, path: str, keep: int) -> None:
        self._given = path
        self.keep = keep
        """Epochs that stay after their commit."""
        self.below = ""
        """The part of the folder that is this view's alone."""

    @property
    def path(self) -> str:
        """The view's own folder."""
        return f"{self._given}/{self.below}" if self.below else self._given

    def check(self) -> None:
        """:class:`StoreUnavailableError` when a link leads to the folder."""
        with translate_os_errors("looking at", self.path):
            require_inside(self._given, f"{self.path}/")

    def make(self) -> None:
        """Make the folder so that its name survives a power cut."""
        with translate_os_errors("making", self.path):
            make_folder_below(self._given, self.path)

    def folder(self, attempt: str, epoch: int) -> str:
        """Where an attempt's rows are staged."""
        return staging_folder(self.path, attempt, epoch)

    def seal(self, staged: StagedEpoch) -> str:
        """Make what was staged durable, with what there is to know about it; its digest."""
        with making_durable(self.path, staged.receipt) as folder:
            drop_litter(folder, empty_files=False)
            write_file(f"{folder}/{_ABOUT}", msgspec.json.encode(staged), durable=False)
            sealed, _ = seal_epoch(folder, staged.receipt)
        return sealed.digest

    def find(self, version: ViewVersion) -> str | None:
        """The folder of an epoch, staged or kept, or None when it is gone."""
        kept = f"{self.path}/{_KEPT}/{check_token(version.attempt, 'an attempt')}"
        for folder in (
            self.folder(version.attempt, version.epoch),
            f"{kept}/{folder_name(version.epoch)}",
        ):
            require_inside(self._given, f"{folder}/")
            if is_there(folder):
                return folder
        return None

    def read(self, folder: str, step: Step) -> StagedEpoch:
        """What a folder holds of an epoch, after every byte of it was checked."""
        with translate_os_errors("reading", folder):
            sealed = read_record(folder)
            if sealed is None:
                raise _not_usable(folder, "it was staged, but never prepared")
            if step.digest not in (None, sealed.digest):
                raise _not_usable(folder, "its record is not the one that the checkpoint knows")
            if damage := find_damage(folder, sealed.record):
                raise _not_usable(folder, damage)
            staged = _decoded(folder)
            if step.version != staged.version or staged.receipt != sealed.record.receipt:
                raise _not_usable(folder, "it is of another epoch")
            return staged

    def epochs(self, attempt: str) -> list[int]:
        """What is staged under a token; by name, as a record may be torn or not there yet."""
        folder = attempt_folder(self.path, attempt)
        require_inside(self._given, f"{folder}/")
        return [n for name in names_in(folder) if (n := epoch_of(name))]

    def way(self, now: ViewVersion | None, until: Step | None) -> Way:
        """What to apply after what, to bring a view from ``now`` to ``until``, by kept epochs.

        It leads as far back as they do, so ``now`` may be missing in it.
        """
        steps: Way = {}
        while until is not None and now not in steps:
            folder = self.find(until.version)
            if folder is None:
                break
            with overtaken_without(folder):
                staged = self.read(folder, until)
            if staged.after in steps:
                raise _not_usable(folder, "the kept epochs follow each other in a circle")
            steps[staged.after] = until
            until = staged.before
        return steps

    def put_aside(self, attempt: str) -> None:
        """Keep a committed attempt, and remove what has been kept for long enough."""
        folder, kept = attempt_folder(self.path, attempt), f"{self.path}/{_KEPT}"
        with translate_os_errors("keeping", folder):
            make_durable_folder(kept, self.path)
            try:
                os.rename(folder, f"{kept}/{attempt}")
            except OSError as error:
                if not lost_the_race(error):
                    raise
            # a server that loses the epoch in the same power cut needs it; whoever has renamed it
            # may have died before this
            sync_folder(kept)
            self._prune(kept)

    def _prune(self, kept: str) -> None:
        ages = sorted((epoch, name) for name, epoch in _attempts_in(kept).items())
        for _, name in ages[: max(len(ages) - self.keep, 0)]:
            remove_tree(f"{kept}/{name}")

    def kept_after(self, epoch: int) -> list[str]:
        """Attempts of later epochs that are kept.

        Their history is over when the view shows ``epoch`` after this look: what is kept later
        than that may be of a process that has gone on.
        """
        kept = f"{self.path}/{_KEPT}"
        with translate_os_errors("listing", kept):
            require_inside(self.path, f"{kept}/")
            return [name for name, newest in _attempts_in(kept).items() if newest > epoch]

    def forget(self, attempts: Iterable[str]) -> None:
        """Remove what is kept of these attempts."""
        kept = f"{self.path}/{_KEPT}"
        with translate_os_errors("removing epochs kept in", kept):
            require_inside(self.path, f"{kept}/")
            for name in attempts:
                remove_tree(f"{kept}/{name}")


def _attempts_in(kept: str) -> dict[str, int]:
    """The newest epoch of each attempt that is kept. Whatever else is there is not ours."""
    newest = {name: _newest_epoch(f"{kept}/{name}") for name in names_in(kept) if is_token(name)}
    return {name: epoch for name, epoch in newest.items() if epoch}


@contextmanager
def overtaken_without(folder: str) -> Iterator[None]:
    """When a folder has vanished, another process has committed it and put it aside."""
    try:
        yield
    except (SeamarkError, OSError):
        if is_there(folder):
            raise
        raise SessionOvertaken(f"{folder} is gone") from None


def _newest_epoch(folder: str) -> int:
    return max((epoch_of(name) or 0 for name in names_in(folder)), default=0)


def _not_usable(folder: str, damage: str) -> DamageError:
    return DamageError(
        f"the staged epoch cannot be applied: {damage}",
        where=folder,
        hint="Nothing was shown. Restore the folder from a copy, or start the view over.",
    )


def _decoded(folder: str) -> StagedEpoch:
    try:
        return msgspec.json.decode(read_file(folder, _ABOUT, LARGEST_DOCUMENT), type=StagedEpoch)
    except UNREADABLE as error:
        raise DamageError(f"{folder}/{_ABOUT} cannot be read: {error}") from None
