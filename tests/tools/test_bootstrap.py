"""The set-up behind make: the bar moves forward, and a failure shows its reason."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from tools import bootstrap, progress_bar
from tools.pip_progress import PipProgress, package_of

ROOT = Path(__file__).resolve().parents[2]
CHECK = str(ROOT / "tools" / "check_python.sh")

# pip 23 downloads while it resolves; pip 25 resolves from metadata and downloads then
WHILE_RESOLVING = """\
Collecting a
  Downloading a-1.0-py3-none-any.whl (1.5 MB)
Collecting b>=2 (from a)
  Using cached b-2.1-cp311-abi3-manylinux_2_28_x86_64.whl (20 kB)
Installing collected packages: b, a
"""
AFTER_RESOLVING = """\
Collecting a
  Downloading a-1.0-py3-none-any.whl.metadata (2 kB)
Collecting b>=2 (from a)
  Downloading b-2.1-cp311-abi3-manylinux_2_28_x86_64.whl.metadata (2 kB)
Downloading a-1.0-py3-none-any.whl (1.5 MB)
Using cached b-2.1-cp311-abi3-manylinux_2_28_x86_64.whl (20 kB)
Installing collected packages: b, a
"""


def pretend_installed(site_packages: Path, name: str) -> None:
    folder = site_packages / name
    folder.mkdir()
    (folder / "INSTALLER").write_text("pip\n")


@pytest.mark.parametrize("output", [WHILE_RESOLVING, AFTER_RESOLVING])
@pytest.mark.parametrize("expect", [1, 2, 50])
def test_the_bar_only_moves_forward_and_ends_full_however_wrong_the_guess(
    output: str, expect: int, tmp_path: Path
) -> None:
    progress = PipProgress(expect, tmp_path)
    seen = [progress.fraction()]
    for line in output.splitlines():
        progress.line(line)
        seen.append(progress.fraction())
    assert "installed 0/2" in progress.words(tmp_path)
    for name in ("b-2.1.dist-info", "A-1.0.dist-info"):
        pretend_installed(tmp_path, name)
        seen.append(progress.fraction())
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert seen[-1] == 1
    assert progress.summary() == "2 packages installed"


def test_a_large_download_shows_how_much_is_there(tmp_path: Path) -> None:
    progress = PipProgress(5, tmp_path)
    progress.line("Collecting pyspark<5,>=4.0")
    progress.line("  Downloading pyspark-4.3.0.tar.gz (455.9 MB)")
    (tmp_path / "pip-unpack-x").mkdir()
    (tmp_path / "pip-unpack-x" / "pyspark-4.3.0.tar.gz").write_bytes(bytes(2_500_000))
    assert progress.words(tmp_path).endswith("pyspark 2.5 of 455.9 MB")


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    progress = PipProgress(1, tmp_path)
    progress.read(io.StringIO("Collec"))
    assert progress.fraction() == 0
    progress.read(io.StringIO("ting a\n"))
    assert progress.fraction() > 0


def test_packages_are_recognised_by_their_files() -> None:
    assert package_of("google_crc32c-1.9.0-cp311-cp311-linux.whl") == "google-crc32c"
    assert package_of("https://x.example/a/Jinja2-3.1.6.tar.gz") == "jinja2"


def test_off_a_terminal_there_is_no_bar_but_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.StringIO()
    with progress_bar.ProgressBar(out) as bar:
        for _ in range(100):
            bar.show(0.5, "found 3")
        assert out.getvalue() == ""
        monkeypatch.setattr(progress_bar, "PLAIN_EVERY_SECONDS", 0.0)
        bar.show(0.5, "found 3")
    assert out.getvalue() == "   50 %  found 3\n"


def test_a_failing_install_shows_the_end_of_the_log_and_where_it_is(tmp_path: Path) -> None:
    log = tmp_path / "pip.log"
    missing = str(tmp_path / "no-such-folder")
    with pytest.raises(bootstrap.SetUpError) as caught:
        bootstrap.install(Path(sys.executable), [missing], log, PipProgress(1, tmp_path))
    assert "no-such-folder" in str(caught.value).split("All of it:")[0]
    assert str(log) in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["pip.log"]


def test_groups_are_read_with_the_groups_they_include() -> None:
    found = bootstrap.group_requirements(ROOT / "pyproject.toml", "dev")
    assert any(item.startswith("mypy") for item in found)
    assert any(item.startswith("hypothesis") for item in found)


def test_an_old_or_missing_python_is_refused_with_advice(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.8.18" || exit 1\n')
    old.chmod(0o755)
    for python, said in ((str(old), "is Python 3.8.18"), (str(tmp_path / "none"), "does not run")):
        done = subprocess.run(
            ["sh", CHECK, python],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert said in done.stderr
        assert "PYTHON=" in done.stderr
    assert subprocess.run(["sh", CHECK, sys.executable], check=False).returncode == 0
