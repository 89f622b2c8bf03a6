"""A checkpoint directory on anything that Hadoop knows, through the file systems of a Spark.

Files travel by way of a local temporary folder: the bridge to the JVM is slow for bytes.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from seamark._common.logs import logger_named
from seamark.blobs.contract import check_key
from seamark.checkpoint_dir.places.directory import Directory, FileEntry, newest_of
from seamark.errors import (
    CheckpointNotFoundError,
    RefusedError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.limits import LARGEST_FILE
from seamark.spark.java import use_java
from seamark.spark.session import installed_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logger_named("seamark.spark")


def a_session() -> SparkSession:
    """The Spark session of this process, or a small local one with the installation's settings."""
    installed_spark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    use_java()
    builder = SparkSession.builder.appName("seamark")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    if "SPARK_REMOTE" not in os.environ and "MASTER" not in os.environ:
        builder = builder.master("local[2]")
    with _quiet_start():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def _quiet_start() -> Iterator[None]:
    """Keep to ourselves what a JVM says while it starts, unless it does not start."""
    if log.isEnabledFor(logging.INFO):
        yield
        return
    before = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)  # the JVM keeps it for life
        try:
            yield
        except Exception as error:
            said.seek(0)
            last = said.read().decode(errors="replace").strip().splitlines()[-3:]
            raise SeamarkError(
                f"Spark does not start: {str(error).splitlines()[0]}",
                where=" ".join(last) or None,
                hint="'seamark version' shows what is installed; -v shows all that Spark says.",
            ) from error
        finally:
            os.dup2(before, 2)
            os.close(before)


class HadoopDirectory(Directory):
    """Files below a URI of any scheme."""

    def __init__(self, uri: str, spark: SparkSession | None = None) -> None:
        self.uri = self.url = uri.rstrip("/")
        self._spark = spark or a_session()
        context = self._spark.sparkContext
        self._jvm = cast("Any", context._jvm)  # its members are made on the fly
        java_context: Any = context._jsc
        self._conf = java_context.hadoopConfiguration()
        self._scratch = tempfile.mkdtemp(prefix="seamark-")
        with _translate_jvm_errors("opening", self.url):
            self._root = self._jvm.org.apache.hadoop.fs.Path(self.uri)
            self._fs = self._root.getFileSystem(self._conf)
            self._base = self._fs.makeQualified(self._root).toString().rstrip("/")

    def listing(self) -> dict[str, FileEntry]:
        files: dict[str, FileEntry] = {}
        with _translate_jvm_errors("listing", self.url):
            if not self._fs.exists(self._root):
                raise CheckpointNotFoundError(f"there is no directory {self.url}")
            rows = self._fs.listFiles(self._root, True)
            while rows.hasNext():
                status = rows.next()
                path = status.getPath().toString().removeprefix(f"{self._base}/")
                modified, size = int(status.getModificationTime()), int(status.getLen())
                files[path] = FileEntry(size, modified / 1000, f"{modified}-{size}")
        return files

    def newest_commit(self) -> int | None:
        with _translate_jvm_errors("listing", f"{self.url}/commits"):
            if not self._fs.exists(self._root):
                raise CheckpointNotFoundError(f"there is no directory {self.url}")
            commits = self._path("commits")
            statuses = self._fs.listStatus(commits) if self._fs.exists(commits) else ()
            return newest_of(str(status.getPath().getName()) for status in statuses)

    def read(self, path: str) -> bytes:
        source = self._path(path)
        local = self._local_file()
        with _translate_jvm_errors("reading", f"{self.url}/{path}"):
            if not self._fs.exists(source):
                raise FileNotFoundError(path)
            size = int(self._fs.getFileStatus(source).getLen())
            if size > LARGEST_FILE:
                raise RefusedError(
                    f"{self.url}/{path} has {size} bytes, and {LARGEST_FILE} is the most"
                )
            target = self._jvm.org.apache.hadoop.fs.Path(local.as_uri())
            self._fs.copyToLocalFile(False, source, target, True)
        try:
            return local.read_bytes()
        finally:
            local.unlink()

    def write(self, path: str, data: bytes) -> None:
        local = self._local_file()
        local.write_bytes(data)
        folder, _, name = path.rpartition("/")
        hidden = f".{name[:180]}.{os.urandom(8).hex()}.seamark.tmp"
        hidden = f"{folder}/{hidden}" if folder else hidden
        try:
            with _translate_jvm_errors("writing", f"{self.url}/{path}"):
                source = self._jvm.org.apache.hadoop.fs.Path(local.as_uri())
                target, temporary = self._path(path), self._path(hidden)
                self._fs.mkdirs(target.getParent())
                self._fs.copyFromLocalFile(False, True, source, temporary)
                self._put(temporary, target)
        finally:
            local.unlink()

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
        gateway: Any = self._spark.sparkContext._gateway
        options = gateway.new_array(kind, 1)
        options[0] = kind.OVERWRITE
        context.rename(temporary, target, options)

    def remove(self, paths: Iterable[str]) -> None:
        with _translate_jvm_errors("removing files of", self.url):
            for path in paths:
                self._fs.delete(self._path(path), False)

    def sibling(self, suffix: str) -> HadoopDirectory:
        return HadoopDirectory(f"{self.uri}{suffix}", self._spark)

    def close(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _local_file(self) -> Path:
        return Path(self._scratch, f"{threading.get_ident()}-{os.urandom(4).hex()}")

    def _path(self, relative: str) -> Any:
        check_key(relative)  # Hadoop resolves '..' by itself
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.uri}/{relative}")


@contextmanager
def _translate_jvm_errors(doing: str, what: str) -> Iterator[None]:
    """Turn an error of the JVM into one of ours."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        java: Any = error.java_exception
        name = java.getClass().getName()
        if name.endswith("FileNotFoundException"):
            raise FileNotFoundError(what) from None
        said = str(java.getMessage() or name).splitlines()[0]
        raise StoreUnavailableError(f"{doing} {what} failed: {said}") from None
    except Py4JError as error:
        raise StoreUnavailableError(f"{doing} {what} failed: {error}") from None
