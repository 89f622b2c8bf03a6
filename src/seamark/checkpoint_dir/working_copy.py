"""The contract of a working copy: Spark's checkpoint directory, as files that can be changed.

The store is the truth and a working copy is disposable, so nothing here has to be durable. A local
folder and whatever Hadoop knows each have a module of their own in ``places``.

Tests: ``tests/checkpoint_dir/test_working_copies.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator

from seamark._common.files import Buffer
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.checkpoint_dir.schema_paths import with_root
from seamark.checkpoint_dir.state_files import version_of


class WorkingCopy(CheckpointFiles):
    """Spark's checkpoint directory. Paths are relative to it; safe to use from several threads.

    Errors: FileNotFoundError for a file that is not there; :class:`StoreUnavailableError` when the
    file system does not answer.
    """

    root: str
    """Where it is, as Spark and messages name it."""

    def path(self, relative: str) -> str:
        """The full path of a file inside."""
        return f"{self.root}/{relative}"

    @abstractmethod
    def below(self, name: str) -> WorkingCopy:
        """The folder of that name, as a copy of its own."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is anything."""

    @abstractmethod
    def make(self) -> None:
        """Make the folder; harmless when it is there."""

    @abstractmethod
    def destroy(self) -> None:
        """Remove everything; harmless when there is nothing."""

    @abstractmethod
    def write(self, relative: str, data: bytes) -> None:
        """Put a file in place of whatever is there, whole or not at all."""

    @abstractmethod
    def write_stream(self, relative: str, pieces: Iterable[Buffer]) -> None:
        """Write a file of any size. An error while the pieces are produced leaves no whole file."""

    @abstractmethod
    def remove(self, relative: str) -> None:
        """Remove a file and Hadoop's checksum of it; harmless when there is none."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Give a file or folder a name that is not taken."""

    @abstractmethod
    def digests(self, paths: Collection[str]) -> Iterator[tuple[str, bytes | None]]:
        """The SHA-256 of each file, read once and several at a time; None for one that is gone."""

    @abstractmethod
    def foreign(self) -> str | None:
        """The first link, pipe or the like, which Spark never makes here; None for none."""

    @abstractmethod
    def remove_where(self, relative: str, is_meant: Callable[[str], bool]) -> None:
        """Remove all files below a folder whose name is meant, hidden ones too."""

    def remove_hadoop_checksums(self) -> None:
        """Remove the hidden checksum files that Hadoop puts next to every file on a local disk."""

    def close(self) -> None:
        """Give back what is held."""

    # bringing it to an epoch

    def forget_after(self, batch: int) -> None:
        """Remove every trace of later batches: commits, plans after the next one, newer state.

        Spark would prefer a newer snapshot of an abandoned history, and its fast file manager
        keeps an existing file instead of replacing it. Both give wrong results without an error.
        """
        for commit in self.batches("commits"):
            if commit > batch:
                self.remove(f"commits/{commit}")
        for offset in self.batches("offsets"):
            if offset > batch + 1:
                self.remove(f"offsets/{offset}")
        self.forget_versions_above(batch + 1)

    def forget_versions_above(self, version: int) -> None:
        """Remove state that is newer than a version, whatever wrote it."""
        self.remove_where("state", lambda name: (version_of(name) or 0) > version)

    def rewrite_root(self) -> None:
        """Make absolute paths inside Spark's files lead here, after a move or a restore.

        :class:`DamageError` for one that leads to anything but a schema of its operator.
        """
        for relative in self.descriptions():
            if "/_metadata/v2/" not in relative:
                continue
            data = self.read(relative)
            if (moved := with_root(relative, data, self.uri)) != data:
                self.write(relative, moved)
