"""Install a program by a package of Debian, for the integration tests, if somebody asked for it.

As for the databases: as root, and only in CI (``CI=true``) or with ``SERVERS=install``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from tools import apt
from tools.environment import ROOT
from tools.locks import only_one
from tools.programs import Unavailable
from tools.servers import PACKAGES_LOCK, Program, may_install


def require(program: Program, also: Sequence[str] = ()) -> None:
    """Install a program that is missing, and the packages ``also``, and start no service.

    Raises Unavailable if that is not possible or allowed.
    """
    if program.find() is not None:
        return
    name, package = program.name, program.package
    if not may_install(os.environ):
        raise Unavailable(f"{name} is not installed; SERVERS=install, or CI=true, installs it")
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Unavailable(f"{name} is not installed, and 'apt-get install {package}' needs root")
    log = ROOT / ".venv" / f"{package}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with only_one(PACKAGES_LOCK):
        worked = apt.install([package, *also], log)
    if program.find() is None:
        said = "it is nowhere to be found" if worked else apt.complaints(log)
        raise Unavailable(f"apt-get failed ({said}); see {log}")
