"""The folder that the demo works in: what lies where, and whether it may be cleared.

Tests: ``tests/cli/test_demo.py``.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from seamark.errors import RefusedError

CHECKPOINTS: Final = "checkpoints"
BARS: Final = "bars"
LARGE: Final = "large"
LATEST: Final = "latest"
SINKS: Final = (BARS, LARGE, LATEST)
SPARK: Final = "spark"
LOG: Final = f"{SPARK}/spark.log"
MARKER: Final = "about-this-folder.txt"

_ABOUT: Final = """\
Made by 'seamark demo'. The next demo removes it; so may you.

checkpoints/          the store: a checkpoint for every epoch
checkpoints/working/  the files of Spark's own checkpoint
bars/ large/          files: what two of the sinks show
latest/               RocksDB: the view that the third one keeps
spark/                Spark's log and temporary files
"""


def make_room(folder: Path) -> None:
    """Leave the folder with nothing but the marker; removes an earlier demo, and only that."""
    names = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    own = {CHECKPOINTS, *SINKS, SPARK, MARKER}
    strangers = sorted(names - own) or (sorted(names) if names and MARKER not in names else [])
    if strangers:
        raise RefusedError(
            f"{folder} holds something else than an earlier demo",
            where=f"There is {strangers[0]!r} in it.",
            hint="Nothing was removed. Choose another folder with --dir.",
        )
    for name in names - {MARKER}:
        shutil.rmtree(folder / name)
    (folder / SPARK).mkdir(parents=True)
    (folder / MARKER).write_text(_ABOUT)
