"""Take verified checkpoints of a streaming query that knows nothing of Seamark.

The query counts words. One line, ``seamark.protect(...)``, follows its checkpoint directory in the
background and stores what each committed batch needs. You see how far the protection has come
when the query has ended, and the checkpoints that are in the store::

    python examples/protect_query.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import explode, split

import seamark
from seamark.spark.java import use_java

WORDS = ["to be or not to be", "that is the question", "to die to sleep"]


def main(folder: Path) -> None:
    """Run the query over three files, one batch each, and protect it meanwhile."""
    (folder / "in").mkdir(parents=True)
    for number, line in enumerate(WORDS):
        (folder / "in" / f"{number}.txt").write_text(line + "\n")

    use_java()
    builder = SparkSession.builder.master("local[2]").appName("words")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    words = lines.select(explode(split("value", " ")).alias("word"))
    query = (
        words.groupBy("word")
        .count()
        .writeStream.outputMode("complete")
        .format("memory")
        .queryName("counts")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with seamark.protect(query, folder / "store") as protection:
        query.awaitTermination()
    print(protection.status())

    with seamark.open_store(folder / "store") as store:
        newest = store.recover_latest_validated()
        print(f"checkpoints: {store.list_ids()}, newest that is whole: {newest.chosen_id}")
    for row in spark.sql("SELECT * FROM counts ORDER BY count DESC, word LIMIT 2").collect():
        print(f"{row['word']}: {row['count']}")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "words")
