"""Reading the state of a directory of unknown origin neither reads nor writes files of others."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalCopy, LocalDirectory
from seamark.checkpoint_dir.state_references import require_state_inside
from seamark.errors import DamageError
from seamark.native.state_choice import StateRequest, choose
from seamark.native.state_rows import state_frame
from seamark.spark.session import session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE = "spark.sql.streaming.stateStore"
ROCKSDB = {
    f"{STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "RocksDBStateStoreProvider",
    "spark.sql.shuffle.partitions": "1",
}
CHANGELOGS = {
    f"{STATE}.checkpointFormatVersion": "2",
    f"{STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{STATE}.compression.codec": "zstd",
}


def counted(spark: SparkSession, root: Path, settings: dict[str, str]) -> LocalCopy:
    (root / "in").mkdir()
    (root / "in" / "0.json").write_text('{"k":1}')
    rows = spark.readStream.schema("k int").json(str(root / "in"))
    writer = rows.groupBy("k").count().writeStream.format("noop").outputMode("update")
    with session_settings(spark, {**ROCKSDB, **settings}):
        query = writer.trigger(availableNow=True).start(checkpointLocation=str(root / "ck"))
        assert query.awaitTermination(60)
    return LocalCopy(root / "ck")


def with_names(zipped: bytes, **names: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(zipped)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    head, _, body = files["metadata"].partition(b"\n")
    fields = json.loads(body)
    fields["sstFiles"][0] |= names
    files["metadata"] = head + b"\n" + json.dumps(fields).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def rows_in(spark: SparkSession, copy: LocalCopy) -> int:
    files = Tree.of(LocalDirectory(copy.root))
    with state_frame(spark, files, choose(files, StateRequest())) as frame:
        return frame.count()


@pytest.mark.warm
def test_reading_state_writes_no_file_that_a_snapshot_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    copy = counted(spark, tmp_path, {})
    assert rows_in(spark, copy) == 1
    outside = tmp_path / "outside.sst"
    up = "../" * 30
    copy.write(
        "state/0/0/1.zip", with_names(copy.read("state/0/0/1.zip"), localFileName=f"{up}{outside}")
    )
    with pytest.raises(DamageError, match="could lead out of its directory"):
        rows_in(spark, copy)
    assert not outside.exists()


@pytest.mark.warm
def test_a_lineage_in_any_codec_of_spark_is_checked(spark: SparkSession, tmp_path: Path) -> None:
    copy = counted(spark, tmp_path, CHANGELOGS)
    (path,) = [path for path in copy.files_below("state") if path.endswith(".changelog")]
    require_state_inside(copy, spark)
    lineage = '[{"version":1,"checkpointUniqueId":"x/../../../../../other"}]'
    copy.write(path, zstd(spark, "v3", lineage))
    with pytest.raises(DamageError, match="lineage cannot be read"):
        require_state_inside(copy, spark)
    copy.write(path, b"\x28\xb5\x2f\xfd torn")
    with pytest.raises(DamageError, match="head of a changelog"):
        require_state_inside(copy, spark)


def zstd(spark: SparkSession, *texts: str) -> bytes:
    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    codec = jvm.org.apache.spark.io.CompressionCodec.createCodec(
        session.sparkContext().conf(), "zstd"
    )
    out = jvm.java.io.ByteArrayOutputStream()
    stream = jvm.java.io.DataOutputStream(codec.compressedOutputStream(out))
    for text in texts:
        stream.writeUTF(text)
    stream.close()
    return bytes(out.toByteArray())
