"""What there is to know about a directory before a pipeline goes on from it."""

from __future__ import annotations

from pathlib import Path

from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.pipeline.recovery.adoption import begun_batches


def test_a_batch_that_the_adopted_query_has_begun_and_not_finished_is_told(tmp_path: Path) -> None:
    old = LocalCopy(str(tmp_path))
    for path in ("metadata", "offsets/0", "commits/0", "offsets/1", "commits/1"):
        old.write(path, b"v1")
    assert begun_batches(old) == []
    old.write("offsets/2", b"v1")
    [note] = begun_batches(old)
    assert note.startswith("batch 2 was begun and not finished by the adopted query")
