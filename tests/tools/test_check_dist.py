"""What ``make dist`` refuses to call a release."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools.check_dist import IN_SDIST, IN_WHEEL, DistError, check_sdist, check_wheel

METADATA = """\
Metadata-Version: 2.4
Name: seamark
Version: 0.1.0
Description-Content-Type: text/markdown

# Seamark
"""
INFO = "seamark-0.1.0.dist-info"
WHOLE = dict.fromkeys(IN_WHEEL, "") | {
    f"{INFO}/METADATA": METADATA,
    f"{INFO}/licenses/LICENSE": "",
}


def wheel(folder: Path, files: dict[str, str]) -> Path:
    path = folder / "seamark-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def sdist(folder: Path, files: list[str]) -> Path:
    path = folder / "seamark-0.1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in files:
            archive.addfile(tarfile.TarInfo(f"seamark-0.1.0/{name}"), io.BytesIO())
    return path


def test_a_whole_wheel_passes_and_has_its_version(tmp_path: Path) -> None:
    assert str(check_wheel(wheel(tmp_path, WHOLE)).version) == "0.1.0"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"seamark/py.typed": None}, "lacks seamark/py.typed"),
        ({"tests/conftest.py": ""}, "outside of the package: tests/conftest.py"),
        ({f"{INFO}/licenses/LICENSE": None}, "no licence"),
        ({f"{INFO}/METADATA": METADATA.replace("# Seamark", "")}, "no description"),
    ],
)
def test_a_wheel_with_a_fault_is_refused_with_the_reason(
    changed: dict[str, str | None], reason: str, tmp_path: Path
) -> None:
    files = {name: text for name, text in (WHOLE | changed).items() if text is not None}
    with pytest.raises(DistError, match=reason):
        check_wheel(wheel(tmp_path, files))


def test_metadata_that_a_package_index_refuses_is_refused_here(tmp_path: Path) -> None:
    files = WHOLE | {f"{INFO}/METADATA": METADATA.replace("0.1.0", "not a version")}
    with pytest.raises(DistError, match="metadata that is not valid"):
        check_wheel(wheel(tmp_path, files))


def test_an_sdist_has_the_tests_and_nothing_that_was_only_made_here(tmp_path: Path) -> None:
    assert check_sdist(sdist(tmp_path, list(IN_SDIST)), tmp_path).name == "seamark-0.1.0"
    without = [name for name in IN_SDIST if not name.startswith("tests/")]
    with pytest.raises(DistError, match="lacks tests/conftest"):
        check_sdist(sdist(tmp_path, without), tmp_path)
    with pytest.raises(DistError, match="does not belong there"):
        check_sdist(sdist(tmp_path, [*IN_SDIST, ".venv/bin/python"]), tmp_path)
