"""The first texts in a changelog of RocksDB, unpacked by Spark's own codecs.

Tests: ``tests/native/test_state_elsewhere.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seamark.errors import DamageError
from seamark.spark.failures import is_of_spark, said_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def changelog_head(spark: SparkSession, uri: str, codec: str) -> tuple[str, str]:
    """The version of a changelog, and the text after it; :class:`DamageError` without them."""
    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    try:
        path = jvm.org.apache.hadoop.fs.Path(uri)
        file = path.getFileSystem(session.sessionState().newHadoopConf()).open(path)
        try:
            codecs = jvm.org.apache.spark.io.CompressionCodec
            unpacking = codecs.createCodec(session.sparkContext().conf(), codec)
            stream = jvm.java.io.DataInputStream(unpacking.compressedInputStream(file))
            return str(stream.readUTF()), str(stream.readUTF())
        finally:
            file.close()
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise DamageError(
            "the head of a changelog cannot be read", where=f"{uri}: {said_by(error)}"
        ) from error
