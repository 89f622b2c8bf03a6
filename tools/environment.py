"""Set up a virtual environment with pinned packages and this project in it.

    python3 -m tools.environment .venv constraints/dev.txt --uv "$(command -v uv)"

uv does the work when its path is given, pip otherwise. Every package is installed by version and
hash; the project itself comes last, editable and without dependencies. Needs nothing but Python's
own library.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools.locks import only_one

ROOT = Path(__file__).resolve().parent.parent

ADVICE = """\
error: {venv} could not be set up: {program} ended with exit code {code}; the reason is above.
  If the package index was not reached: check the network, or name a mirror that you can reach
  ({mirror}), then run the same command again.{other}"""
WITHOUT_UV = "\n  Or leave uv out: add UV= to the make command, and pip is used."


class SetUpError(Exception):
    """The environment cannot be set up; the text says why and what to do."""


def set_up(venv: Path, constraints: Path, uv: str) -> None:
    """Make an environment and install what ``constraints`` lists, then the project."""
    if not _is_usable(venv, uv):
        _make(venv, uv)
    installer = _installer(venv, uv)
    _run([*installer, "--require-hashes", "-r", str(constraints)], venv, uv)
    # hatchling is among the pinned packages, so that nothing else is fetched to build with
    _run([*installer, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], venv, uv)


def _is_usable(venv: Path, uv: str) -> bool:
    """Say whether an environment is there, belongs to this folder and has what installs into it.

    One that was copied along with its folder would run the code that it was copied from.
    """
    root = venv / "root"
    if not root.exists() or root.read_text().strip() != str(venv.parent):
        return False
    probe = "pass" if uv else "import pip"
    try:
        command = [str(venv / "bin" / "python"), "-I", "-c", probe]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def _make(venv: Path, uv: str) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    if uv:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], venv, uv)
    else:
        _make_without_uv(venv)
    (venv / "root").write_text(f"{venv.parent}\n")


def _make_without_uv(venv: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "venv", venv],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    if done.returncode != 0:
        shutil.rmtree(venv, ignore_errors=True)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise SetUpError(
            f"error: {sys.executable} -m venv {venv} failed:\n{done.stdout.strip()}\n"
            f"  On Debian and Ubuntu: apt install python{version}-venv. Or install uv."
        )


def _installer(venv: Path, uv: str) -> list[str]:
    python = str(venv / "bin" / "python")
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    if uv:
        return [uv, "pip", "install", "--python", python, *quiet]
    # modules are compiled when they are imported; compiling all takes as long as installing them
    quick = ["--disable-pip-version-check", "--no-input", "--no-compile"]
    return [python, "-I", "-m", "pip", "install", *quick, *quiet]


def _run(command: list[str], venv: Path, uv: str) -> None:
    variables = os.environ | {"PIP_USER": "0"}
    if "PIP_INDEX_URL" in variables:  # uv does not read it
        variables.setdefault("UV_DEFAULT_INDEX", variables["PIP_INDEX_URL"])
    done = subprocess.run(command, check=False, env=variables, cwd=ROOT)
    if done.returncode != 0:
        raise SetUpError(
            ADVICE.format(
                venv=venv.name,
                program="uv" if uv else "pip",
                code=done.returncode,
                mirror="UV_DEFAULT_INDEX" if uv else "PIP_INDEX_URL",
                other=WITHOUT_UV if uv else "",
            )
        )


def main() -> int:
    """Run one set-up and return its exit code."""
    parser = argparse.ArgumentParser(description="Set up a virtual environment.")
    parser.add_argument("venv", type=Path, help="the folder of the environment")
    parser.add_argument("constraints", type=Path, help="file with the pinned packages")
    parser.add_argument("--uv", default="", help="path of uv; pip is used without")
    given = parser.parse_args()
    venv, constraints = ROOT / given.venv, ROOT / given.constraints
    started = time.monotonic()
    version, program = sys.version.split()[0], "uv" if given.uv else "pip"
    print(
        f"Setting up {given.venv} with Python {version} and {program} from {given.constraints} "
        "(once; may download some hundred megabytes)",
        flush=True,
    )
    try:
        with only_one(venv.with_suffix(".lock")):
            set_up(venv, constraints, given.uv)
    except SetUpError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; run the same command to continue.", file=sys.stderr)
        return 130
    print(f"Ready: {given.venv} in {time.monotonic() - started:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
