"""The set-up behind make: pinned packages, by uv or pip, and advice when it fails."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import environment
from tools.environment import SetUpError, set_up

ROOT = Path(__file__).resolve().parents[2]
CHECK = str(ROOT / "tools" / "check_python.sh")
FILES = ["demo.txt", "dev.txt", "oldest.txt"]


def pinned(name: str) -> dict[str, str]:
    """The packages of a file of constraints, with their versions."""
    lines = (ROOT / "constraints" / name).read_text().splitlines()
    pins = [line.split()[0].split("==") for line in lines if line[:1].isalnum()]
    return {canonicalize_name(package): version for package, version in pins}


def declared(*extras: str) -> Iterator[Requirement]:
    """What pyproject.toml asks for: the dependencies, some extras and all groups."""
    read = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = list(read["project"]["dependencies"])
    for extra in extras:
        listed += read["project"]["optional-dependencies"][extra]
    for group in read["dependency-groups"].values():
        listed += [item for item in group if isinstance(item, str)]
    yield from map(Requirement, listed)


@pytest.mark.parametrize("name", ["dev.txt", "oldest.txt"])
def test_every_dependency_is_pinned_to_a_version_that_the_project_allows(name: str) -> None:
    pins = pinned(name)
    for each in declared("cli", "spark", "java", "rocksdb", "redis", "metrics"):
        version = pins[canonicalize_name(each.name)]
        assert each.specifier.contains(version), f"{each} and {version}: run 'make constraints'"


def test_the_demo_has_the_versions_that_the_tests_run_with() -> None:
    assert pinned("demo.txt").items() <= pinned("dev.txt").items()


def test_the_oldest_spark_is_the_first_that_is_supported() -> None:
    assert pinned("oldest.txt")["pyspark"].startswith("4.0.")


@pytest.mark.parametrize("name", FILES)
def test_every_pinned_package_has_hashes_and_no_file_names_an_address(name: str) -> None:
    text = (ROOT / "constraints" / name).read_text()
    assert "://" not in text
    for entry in re.split(r"^(?=\w)", text, flags=re.M)[1:]:
        assert "--hash=sha256:" in entry, entry


def test_a_failing_installer_is_reported_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\nexit 2\n")
    uv.chmod(0o755)
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    with pytest.raises(SetUpError, match="uv ended with exit code 2") as caught:
        set_up(tmp_path / ".venv", tmp_path / "none.txt", str(uv))
    assert "package index" in str(caught.value)
    assert "UV=" in str(caught.value)
    assert not (tmp_path / ".venv" / "root").exists()


@pytest.mark.slow
def test_pip_sets_up_where_there_is_no_uv_and_refuses_a_package_without_a_hash(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "small-1.0-py3-none-any.whl"
    wheel.touch()
    listed = tmp_path / "constraints.txt"
    listed.write_text(f"{wheel}\n")
    with pytest.raises(SetUpError, match="pip ended with exit code 1") as caught:
        set_up(tmp_path / ".venv", listed, "")
    assert "PIP_INDEX_URL" in str(caught.value)
    assert "hash" in capfd.readouterr().err.lower()
    assert (tmp_path / ".venv" / "root").read_text().strip() == str(tmp_path)


def test_an_environment_that_was_copied_with_its_folder_is_not_used(tmp_path: Path) -> None:
    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "root").write_text("/somewhere/else\n")
    assert not environment._is_usable(venv, "")
    (venv / "root").write_text(f"{tmp_path}\n")
    assert environment._is_usable(venv, "uv")


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
