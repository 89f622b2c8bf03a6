"""A process that runs an epoch again and never gets beyond a step of that.

``python -m tests.pipeline.support.replaying BASE STEP``: replays epoch 3 of the pipeline in
``BASE``. At the step ``BASE/stopped`` appears, and the process waits to be killed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import seamark
from seamark.pipeline.replay import one_batch, replayer, scratch
from tests.pipeline.support.driver import declare, session

STEPS: dict[str, Any] = {
    "restore_checkpoint": scratch,
    "install_plan": scratch,
    "keep_rows": one_batch,
    "compare_changes": replayer,
    "digest_of": replayer,
}


def main(base: Path, step: str) -> None:
    def wait(*_: Any, **__: Any) -> None:
        (base / "stopped").touch()
        while True:
            time.sleep(1)

    setattr(STEPS[step], step, wait)
    declare(seamark.Pipeline("two-drivers", base / "store"), session(), base).replay(3)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
