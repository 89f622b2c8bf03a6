"""``seamark ui`` as a process: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.cli.support.stores import Commands, fill


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_the_page_is_served_until_the_process_is_asked_to_end(
    tmp_path: Path, ending: signal.Signals
) -> None:
    fill(tmp_path / "store")
    arguments = ["ui", str(tmp_path / "store"), "--port", "0", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "seamark", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            with urllib.request.urlopen(f"{told['url']}api/places", timeout=60) as answer:
                assert json.load(answer)["places"][0]["newest"]["id"] == 4
            process.send_signal(ending)
            _, errors = process.communicate(timeout=60)
            assert (process.returncode, errors) == (0, "")
        finally:
            process.kill()


def test_a_page_for_other_machines_wants_a_token(seamark: Commands, store: Path) -> None:
    seamark("ui", store, "--host", "0.0.0.0", code=2)
    assert "wants a token" in " ".join(seamark.err.split())
    assert "--token" in seamark.err


def test_a_place_that_is_not_there_is_told_before_anything_is_served(
    seamark: Commands, tmp_path: Path
) -> None:
    seamark("ui", tmp_path / "nowhere", code=4)
    assert "Is the path right?" in seamark.err


def test_without_the_extra_the_command_says_how_to_get_it(
    seamark: Commands, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seamark.cli.ui.find_spec", lambda _: None)
    seamark("ui", store, code=1)
    assert "seamark[cli,ui]" in seamark.err


def test_the_other_commands_load_none_of_what_the_page_needs() -> None:
    code = (
        "import sys; from seamark.cli.app import run; run(['ui', '--help']); "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ}
    )
    loaded = done.stderr.split()
    assert "seamark.cli.ui" in loaded
    assert not {"starlette", "uvicorn", "jinja2", "pyspark"} & {*loaded}
