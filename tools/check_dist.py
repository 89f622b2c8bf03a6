"""Build the wheel and the sdist of a release, and check that they install and are complete.

    python -m tools.check_dist --uv "$(command -v uv)"

The wheel is built twice, from this folder and from the sdist, and must have the same files. It is
installed in an environment of its own, with the extras ``cli`` and ``ui`` and whatever versions of
the dependencies are newest: what a user gets. There ``seamark --help``, ``import seamark`` and the
page must work. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Collection
from pathlib import Path

from packaging.metadata import Metadata

from tools.environment import ROOT

IN_WHEEL = (
    "seamark/__init__.py",
    "seamark/py.typed",
    "seamark/cli/__init__.py",
    "seamark/checkpoint_dir/places/ReadFiles.java",
    "seamark/spark/RewriteValues.java",
    "seamark/spark/plans/PlanReader.java",
    "seamark/ui/static/history.js",
    "seamark/ui/static/page.js",
    "seamark/ui/static/seamark.css",
    "seamark/ui/static/seamark.svg",
    "seamark/ui/templates/base.html",
    "seamark/ui/templates/overview.html",
)
# The sdist is what distributions build and test from, so the tests are in it.
IN_SDIST = (
    "LICENSE",
    "Makefile",
    "README.md",
    "constraints/dev.txt",
    "dashboards/alerts.yml",
    "dashboards/seamark.json",
    "docs/store.md",
    "examples/README.md",
    "mkdocs.yml",
    "src/seamark/__init__.py",
    "tests/conftest.py",
    "tools/environment.py",
)
UNWANTED = (".venv", ".git/", ".ci/", "__pycache__", "demo/", "dist/")
TRY_PAGE = """
import tempfile, urllib.request
from seamark.ui.places import places_at
from seamark.ui.server import PageServer
with PageServer(places_at([tempfile.mkdtemp()], {}), port=0) as server:
    for path in ("", "static/seamark.css", "static/seamark.svg", "static/page.js", "api/places"):
        with urllib.request.urlopen(server.url + path) as answer:
            assert answer.status == 200 and answer.read(), path
print("served")
"""
TRY = "import seamark; print(seamark.__version__); [getattr(seamark, n) for n in ('open_store',)]"


class DistError(Exception):
    """Something is wrong with what was built; the text says what."""


def build(source: Path, target: Path, kind: str) -> Path:
    """Build one distribution from a folder and return its file."""
    target.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "hatchling", "build", "-d", target, "-t", kind], source)
    (made,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def wheel_files(wheel: Path) -> set[str]:
    """Return the names of all files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def check_wheel(wheel: Path) -> Metadata:
    """Check the metadata, as a package index does, and the files; return the metadata."""
    files = wheel_files(wheel)
    _demand(wheel, files, IN_WHEEL)
    if outside := sorted(f for f in files if not f.startswith(("seamark/", "seamark-"))):
        raise DistError(f"{wheel.name} installs files outside of the package: {outside[0]}")
    (name,) = (file for file in files if file.endswith(".dist-info/METADATA"))
    try:
        with zipfile.ZipFile(wheel) as archive:
            metadata = Metadata.from_email(archive.read(name), validate=True)
    except ExceptionGroup as wrong:
        reasons = "; ".join(map(str, wrong.exceptions))
        raise DistError(f"{wheel.name} has metadata that is not valid: {reasons}") from wrong
    written = (metadata.description or "").strip()
    if metadata.description_content_type != "text/markdown" or not written:
        raise DistError(f"{wheel.name} has no description in Markdown")
    if not any(file.endswith("licenses/LICENSE") for file in files):
        raise DistError(f"{wheel.name} has no licence")
    return metadata


def check_sdist(sdist: Path, unpacked: Path) -> Path:
    """Check the files of an sdist and unpack it; return its top folder."""
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        archive.extractall(unpacked, filter="data")
    top = sdist.name.removesuffix(".tar.gz")
    files = {name.removeprefix(f"{top}/") for name in names}
    _demand(sdist, files, IN_SDIST)
    for file in sorted(files):
        if file.startswith(UNWANTED) or "__pycache__" in file:
            raise DistError(f"{sdist.name} has {file}, which does not belong there")
    return unpacked / top


def check_installed(wheel: Path, folder: Path, version: str, uv: str) -> None:
    """Install a wheel in a fresh environment and try it there."""
    if uv:
        _run([uv, "venv", "--quiet", "--python", sys.executable, folder], ROOT)
        installer: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", folder]
    else:
        venv.create(folder, with_pip=True)
        installer = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
    _run([*installer, f"{wheel}[cli,ui]"], ROOT)
    said = _run([folder / "bin" / "python", "-I", "-c", TRY], folder)
    if said.strip() != version:
        raise DistError(f"{wheel.name} has version {version}, the package says {said.strip()}")
    if "Usage: seamark" not in _run([folder / "bin" / "seamark", "--help"], folder):
        raise DistError("seamark --help does not print its usage")
    if "served" not in _run([folder / "bin" / "python", "-I", "-c", TRY_PAGE], folder):
        raise DistError("the page is not served with all that it needs")


def _demand(archive: Path, files: Collection[str], wanted: Collection[str]) -> None:
    if missing := sorted(set(wanted) - set(files)):
        raise DistError(f"{archive.name} lacks {', '.join(missing)}")


def _run(command: list[str | Path], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = " ".join(map(str, command))
        raise DistError(f"{words}\nended with exit code {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def main() -> int:
    """Build, check and report."""
    parser = argparse.ArgumentParser(description="Build and check wheel and sdist.")
    parser.add_argument("--uv", default="", help="path of uv; pip is used without")
    uv = parser.parse_args().uv
    target = ROOT / "dist"
    shutil.rmtree(target, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            wheel, sdist = (build(ROOT, target, kind) for kind in ("wheel", "sdist"))
            metadata = check_wheel(wheel)
            again = build(check_sdist(sdist, Path(scratch)), Path(scratch, "again"), "wheel")
            if differing := wheel_files(wheel) ^ wheel_files(again):
                raise DistError(f"the sdist builds another wheel: {', '.join(sorted(differing))}")
            check_installed(wheel, Path(scratch, "venv"), str(metadata.version), uv)
    except DistError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for made in (wheel, sdist):
        print(f"{made.relative_to(ROOT)}  {made.stat().st_size / 1024:.0f} KiB  checked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
