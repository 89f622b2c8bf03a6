"""Fail points: named, reached once, and as deadly as they say."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seamark.errors import InvalidInputError
from seamark.pipeline.declaration.settings import Step
from seamark.testing.crashes import FailPoint, SimulatedCrash, crash_at


def test_a_point_is_written_as_it_is_read() -> None:
    point = FailPoint.parse("save:after:3")
    assert point == FailPoint(Step.SAVE, "after", 3)
    assert str(point) == "save:after:3"


@pytest.mark.parametrize(
    "text", ["", "save", "save:after", "save:later:3", "rest:after:3", "a:b:c"]
)
def test_a_text_that_is_no_point_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInputError, match="save:after:3"):
        FailPoint.parse(text)


def test_a_crash_happens_at_its_point_once_and_passes_clean_up_by() -> None:
    hook = crash_at("save", "after", 3)
    hook(Step.SAVE, "before", 3)
    hook(Step.SAVE, "after", 2)
    with pytest.raises(SimulatedCrash, match="reached save:after:3"):
        hook(Step.SAVE, "after", 3)
    assert hook.reached
    hook(Step.SAVE, "after", 3)
    assert not issubclass(SimulatedCrash, Exception)


def test_a_kill_leaves_its_marker_and_ends_the_process(tmp_path: Path) -> None:
    program = (
        "import sys; from seamark.pipeline.declaration.settings import Step\n"
        "from seamark.testing.crashes import kill_at\n"
        "hook = kill_at('commit', 'before', 2, sys.argv[1])\n"
        "hook(Step.COMMIT, 'before', 1)\n"
        "try:\n    hook(Step.COMMIT, 'before', 2)\n"
        "finally:\n    open(sys.argv[1], 'a').write('tidied up')\n"
    )
    marker = tmp_path / "marker"
    ended = subprocess.run([sys.executable, "-c", program, marker], check=False, timeout=280)
    assert ended.returncode == -signal.SIGKILL
    assert marker.read_text(encoding="utf-8") == "reached commit:before:2\n"
