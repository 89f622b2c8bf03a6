"""A checkpoint directory on anything that Hadoop knows, through the file systems of a Spark.

Large files travel by way of a local temporary folder: the bridge to the JVM is slow for bytes.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from seamark._common.files import stream_file
from seamark.blobs.contract import Buffer, check_key
from seamark.blobs.streams import PIECE
from seamark.checkpoint_dir.files import largest_read
from seamark.checkpoint_dir.places.directory import (
    Directory,
    FileEntry,
    local_path_of,
    newest_of,
)
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import (
    CheckpointNotFoundError,
    RefusedError,
    StoreUnavailableError,
)
from seamark.spark.own_session import a_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = ParamSpec("P")
T = TypeVar("T")

_SMALL: Final = 1 << 20
"""Below this the bridge to the JVM carries the bytes itself."""
_CLOSED: Final = ("java.io.EOFException", "java.net.SocketException")
"""What Hadoop's client raises when it uses a connection that the server has closed."""


class _ConnectionClosedError(StoreUnavailableError):
    """The server has closed the connection that a call used; the next call opens a new one."""


def _reading(method: Callable[P, T]) -> Callable[P, T]:
    """Read once more after a closed connection: HDFS's client keeps one while a server restarts."""

    @functools.wraps(method)
    def read(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except _ConnectionClosedError:
            return method(*args, **kwargs)

    return read


class HadoopDirectory(Directory):
    """Files below a URI of any scheme."""

    def __init__(self, uri: str, spark: SparkSession | None = None) -> None:
        self.uri = self.url = uri.rstrip("/")
        self.spark = spark or a_session()
        context = self.spark.sparkContext
        self._jvm = cast("Any", context._jvm)  # its members are made on the fly
        java_context: Any = context._jsc
        self._conf = java_context.hadoopConfiguration()
        self._scratch = tempfile.mkdtemp(prefix="seamark-")
        with _translate_jvm_errors("opening", self.url):
            self._root = self._jvm.org.apache.hadoop.fs.Path(self.uri)
            self._fs = self._root.getFileSystem(self._conf)
            self.base = self._fs.makeQualified(self._root).toString().rstrip("/")

    @_reading
    def listing(self) -> dict[str, FileEntry]:
        if (local := self.local_path()) is not None:
            LocalDirectory(local).listing()  # refuses links, which Hadoop would follow
        files: dict[str, FileEntry] = {}
        with _translate_jvm_errors("listing", self.url):
            if not self._fs.exists(self._root):
                raise CheckpointNotFoundError(f"there is no directory {self.url}")
            rows = self._fs.listFiles(self._root, True)
            while rows.hasNext():
                status = rows.next()
                path = status.getPath().toString().removeprefix(f"{self.base}/")
                modified, size = int(status.getModificationTime()), int(status.getLen())
                files[path] = FileEntry(size, modified / 1000, f"{modified}-{size}")
        return files

    @_reading
    def newest_commit(self) -> int | None:
        with _translate_jvm_errors("listing", f"{self.url}/commits"):
            if not self._fs.exists(self._root):
                raise CheckpointNotFoundError(f"there is no directory {self.url}")
            commits = self._path("commits")
            statuses = self._fs.listStatus(commits) if self._fs.exists(commits) else ()
            return newest_of(str(status.getPath().getName()) for status in statuses)

    @_reading
    def read(self, path: str) -> bytes:
        with _translate_jvm_errors("reading", f"{self.url}/{path}"):
            source = self._path(path)
            status = self._fs.getFileStatus(source)
            if status.isDirectory():
                raise FileNotFoundError(path)
            if (size := int(status.getLen())) < _SMALL:
                return self._small_bytes(source, size)
        with self._local_copy(path, largest_read(path)) as local:
            return local.read_bytes()

    def _small_bytes(self, source: Any, size: int) -> bytes:
        """The bytes of a file, by the bridge itself."""
        opened = self._fs.open(source)
        try:
            return bytes(opened.readNBytes(size + 1))  # one more: it may have grown
        finally:
            opened.close()

    def stream(self, path: str) -> Iterator[Buffer]:
        with self._local_copy(path) as local:
            yield from stream_file(str(local.parent), local.name, PIECE)

    @contextmanager
    def _local_copy(self, path: str, most: int | None = None) -> Iterator[Path]:
        """A file on this machine, for a moment: Python cannot read a stream of the JVM fast."""
        source = self._path(path)
        local = self._local_file()
        with _translate_jvm_errors("reading", f"{self.url}/{path}"):
            if not self._fs.exists(source):
                raise FileNotFoundError(path)
            size = int(self._fs.getFileStatus(source).getLen())
            if most is not None and size > most:
                raise RefusedError(f"{self.url}/{path} has {size} bytes, and {most} is the most")
            target = self._jvm.org.apache.hadoop.fs.Path(local.as_uri())
            self._fs.copyToLocalFile(False, source, target, True)
        try:
            yield local
        finally:
            local.unlink()

    def write(self, path: str, data: bytes) -> None:
        folder, _, name = path.rpartition("/")
        hidden = f".{name[:180]}.{os.urandom(8).hex()}.seamark.tmp"
        hidden = f"{folder}/{hidden}" if folder else hidden
        self.write_stream(hidden, (data,))
        with _translate_jvm_errors("writing", f"{self.url}/{path}"):
            self._put(self._path(hidden), self._path(path))

    def write_stream(self, path: str, pieces: Iterable[Buffer]) -> None:
        """Write a file of any size under its own name: a torn one can be seen meanwhile."""
        local = self._local_file()
        try:
            with local.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
            with _translate_jvm_errors("writing", f"{self.url}/{path}"):
                source = self._jvm.org.apache.hadoop.fs.Path(local.as_uri())
                self._fs.copyFromLocalFile(False, True, source, self._path(path))
        finally:
            local.unlink(missing_ok=True)

    def _put(self, temporary: Any, target: Any) -> None:
        """Give a finished file its name, in place of whatever has it."""
        from py4j.protocol import Py4JJavaError

        try:
            context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
                self._fs.getUri(), self._conf
            )
        except Py4JJavaError:  # a file system without the newer interface cannot replace
            if self._fs.exists(target):
                self._fs.delete(target, False)
            if not self._fs.rename(temporary, target):
                raise StoreUnavailableError(f"writing {target.toString()} failed") from None
            return
        kind = self._jvm.org.apache.hadoop.fs.Options.Rename
        gateway: Any = self.spark.sparkContext._gateway
        options = gateway.new_array(kind, 1)
        options[0] = kind.OVERWRITE
        context.rename(temporary, target, options)

    def remove(self, paths: Iterable[str]) -> None:
        with _translate_jvm_errors("removing files of", self.url):
            for path in paths:
                self._fs.delete(self._path(path), False)

    # what a working copy needs besides

    @_reading
    def size(self, path: str) -> int | None:
        """The bytes of a file; None when there is none."""
        try:
            with _translate_jvm_errors("looking at", f"{self.url}/{path}"):
                status = self._fs.getFileStatus(self._path(path))
                return None if status.isDirectory() else int(status.getLen())
        except FileNotFoundError:
            return None

    @_reading
    def is_folder(self, path: str) -> bool:
        """Whether there is such a folder; ``""`` is the directory itself."""
        try:
            with _translate_jvm_errors("looking at", f"{self.url}/{path}"):
                return bool(self._fs.getFileStatus(self._path(path)).isDirectory())
        except FileNotFoundError:
            return False

    @_reading
    def names(self, folder: str) -> list[str]:
        """What lies directly in a folder; nothing when there is no such folder."""
        try:
            with _translate_jvm_errors("listing", f"{self.url}/{folder}"):
                # one call for all names: each would be a round trip of its own
                statuses = self._fs.listStatus(self._path(folder))
                paths = self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(statuses)
                listed = str(self._jvm.org.apache.commons.lang3.ArrayUtils.toString(paths))
        except FileNotFoundError:
            return []
        above = f"{self.base}/{folder}" if folder else self.base
        # names may have commas in them, but none begins with the whole path
        inside = listed.removeprefix("{").removesuffix("}")
        return f",{inside}".split(f",{above}/")[1:]

    @_reading
    def files_below(self, folder: str) -> list[str]:
        """The relative paths of all files below a folder, hidden ones too."""
        found = []
        try:
            with _translate_jvm_errors("listing", f"{self.url}/{folder}"):
                rows = self._fs.listFiles(self._path(folder), True)
                while rows.hasNext():
                    found.append(str(rows.next().getPath().toString()))
        except FileNotFoundError:
            return []
        return [path.removeprefix(f"{self.base}/") for path in found]

    @_reading
    def sha256(self, path: str) -> bytes | None:
        """The SHA-256 of a file, read by the JVM; None when there is none."""
        try:
            with _translate_jvm_errors("reading", f"{self.url}/{path}"):
                opened = self._fs.open(self._path(path))
                try:
                    hasher = self._jvm.org.apache.commons.codec.digest.DigestUtils
                    return bytes(hasher.sha256(opened))
                finally:
                    opened.close()
        except FileNotFoundError:
            return None

    @_reading
    def local_path(self) -> str | None:
        """The directory's path on a local disk, if a file system of another name leads there."""
        try:
            with _translate_jvm_errors("looking at", self.url):
                resolved = str(self._fs.resolvePath(self._root).toString())
        except FileNotFoundError:
            return None
        return local_path_of(resolved) if resolved.startswith("file:") else None

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it."""
        with _translate_jvm_errors("making", f"{self.url}/{path}"):
            self._fs.mkdirs(self._path(path))

    def rename(self, old: str, new: str) -> None:
        """Give a file or folder a name that is not taken."""
        with _translate_jvm_errors("renaming", f"{self.url}/{old}"):
            if not self._fs.rename(self._path(old), self._path(new)):
                raise StoreUnavailableError(
                    f"renaming {self.url}/{old} failed", where=f"{self.url}/{new}"
                )

    def rename_if_free(self, old: str, new: str) -> bool:
        """Give a folder another name in one step, unless that is taken or the folder is gone."""
        kind = self._jvm.org.apache.hadoop.fs.Options.Rename
        gateway: Any = self.spark.sparkContext._gateway
        options = gateway.new_array(kind, 1)
        options[0] = kind.NONE  # without it, what is renamed onto a folder ends up inside it
        try:
            with _translate_jvm_errors("renaming", f"{self.url}/{old}"):
                files = self._jvm.org.apache.hadoop.fs.FileContext
                context = files.getFileContext(self._fs.getUri(), self._conf)
                context.rename(self._path(old), self._path(new), options)
        except (FileNotFoundError, FileExistsError):
            return False
        return True

    @_reading
    def sizes_below(self, folder: str) -> dict[str, int]:
        """Every file below a folder by its path inside it, hidden ones too, with its size."""
        sizes: dict[str, int] = {}
        start = f"{self.base}/{folder}".rstrip("/") + "/"
        with _translate_jvm_errors("listing", f"{self.url}/{folder}"):
            rows = self._fs.listFiles(self._path(folder), True)
            while rows.hasNext():
                status = rows.next()
                sizes[status.getPath().toString().removeprefix(start)] = int(status.getLen())
        return sizes

    @_reading
    def checksum(self, path: str) -> str:
        """What the file system itself knows about the bytes of a file; empty if it knows nothing.

        HDFS makes it of the checksums beside its blocks, so no byte travels.
        """
        with _translate_jvm_errors("looking at", f"{self.url}/{path}"):
            checksum = self._fs.getFileChecksum(self._path(path))
            return "" if checksum is None else str(checksum.toString())

    def remove_folder(self, path: str) -> None:
        """Remove a folder and everything in it; harmless when there is none."""
        with _translate_jvm_errors("removing", f"{self.url}/{path}"):
            self._fs.delete(self._path(path), True)

    def sibling(self, suffix: str) -> HadoopDirectory:
        return HadoopDirectory(f"{self.uri}{suffix}", self.spark)

    def close(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _local_file(self) -> Path:
        return Path(self._scratch, f"{threading.get_ident()}-{os.urandom(4).hex()}")

    def _path(self, relative: str) -> Any:
        if not relative:
            return self._root
        check_key(relative)  # Hadoop resolves '..' by itself
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.uri}/{relative}")


@contextmanager
def _translate_jvm_errors(doing: str, what: str) -> Iterator[None]:
    """Turn an error of the JVM into one of ours."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        java: Any = error.java_exception
        name = java.getClass().getName()
        if name.endswith("FileNotFoundException"):
            raise FileNotFoundError(what) from None
        if name.endswith("FileAlreadyExistsException"):
            raise FileExistsError(what) from None
        said = str(java.getMessage() or name).splitlines()[0]
        kind = _ConnectionClosedError if name in _CLOSED else StoreUnavailableError
        raise kind(f"{doing} {what} failed: {said}") from None
    except (Py4JError, PySparkException) as error:
        raise StoreUnavailableError(f"{doing} {what} failed: {error}") from None
