"""Files on Hadoop, read and written by tasks on executors.

Spark gives Python on an executor no access to Hadoop. So the JVM of the executor reads and writes
the files, and passes their bytes from and to the Python worker beside it, a piece at a time. The
driver sees names only.

Tests: ``tests/checkpoint_dir/test_working_copies.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from seamark.blobs.streams import PIECE
from seamark.spark.executor_classes import executor_object

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

T = TypeVar("T")

_HERE: Final = __package__ or ""


def dealt(items: Sequence[T], shares: int) -> list[T]:
    """The same items in an order whose equal shares each have some of the first and the last."""
    return [item for first in range(shares) for item in items[first::shares]]


def frames_of(spark: SparkSession, root: str, names: Sequence[str], tasks: int) -> RDD[bytes]:
    """Files of a folder, read by so many tasks; :func:`files_in` takes what a task gets apart."""
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    context: Any = spark.sparkContext
    reader = executor_object(spark, _HERE, "ReadFiles", _settings(spark), root, PIECE)
    shares = max(min(len(names), tasks), 1)
    files = context._jsc.parallelize(dealt(names, shares), shares)
    return RDD(files.mapPartitions(reader), context, NoOpSerializer())


def files_in(frames: Iterable[bytes]) -> Iterator[tuple[str, Iterator[bytes]]]:
    """The name of each file and its bytes in pieces, which are gone when the next one comes."""
    each = iter(frames)
    for name in each:
        pieces = iter(partial(next, each), b"")
        yield name.decode(), pieces
        for _ in pieces:
            pass  # what nobody has asked for


def head_of(name: str, size: int, sha256: bytes) -> bytes:
    """What comes before the bytes of a file that :func:`write_frames` is to write."""
    return f"{sha256.hex()} {size} {name}".encode()


def write_frames(
    spark: SparkSession,
    root: str,
    drafts: str,
    shares: RDD[T],
    frames: Callable[[Iterable[T]], Iterator[bytes]],
) -> None:
    """Write files into a folder, each verified, by tasks that make the frames of their shares.

    The folder ``drafts`` inside it is left behind.
    """
    writer = executor_object(spark, _HERE, "WriteFiles", _settings(spark), root, drafts)
    made: Any = shares.mapPartitions(frames)
    made._bypass_serializer = True  # bytes as they are, as PySpark itself does to save text
    made._jrdd.mapPartitions(writer).collect()


def _settings(spark: SparkSession) -> Any:
    """Spark's settings of Hadoop, in a form that reaches executors as Spark's own do."""
    context: Any = spark.sparkContext
    return context._jvm.org.apache.spark.util.SerializableConfiguration(
        context._jsc.hadoopConfiguration()
    )
