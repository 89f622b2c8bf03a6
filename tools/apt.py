"""Install Debian packages, and start none of the services they bring, now or at the next boot."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

POLICY = Path("/usr/sbin/policy-rc.d")
MARK = "# Written by Seamark's set-up of its tests"

# Options for a machine on which somebody else is installing, or has changed a configuration.
_PATIENT = ["-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Options::=--force-confold"]
# Where a service is linked that starts at boot: by systemd, and by the scripts of System V.
_SYSTEMD = "etc/systemd/system/*.wants/*.service"
_SYSTEM_V = "etc/rc[2-5].d/S[0-9][0-9]*"


def install(packages: Sequence[str], log: Path) -> bool:
    """Install packages as root and say whether it worked. The log has all the output."""
    before = services_at_boot()
    with services_stay_down(POLICY), log.open("wb") as out:
        # what was read before may be enough when this fails
        _apt_get(["update"], out.fileno())
        flags = ["install", "-y", "--no-install-recommends"]
        worked = _apt_get([*flags, *packages], out.fileno()) == 0
    for service in sorted(services_at_boot() - before):
        disable(service)
    return worked


def _apt_get(arguments: Sequence[str], out: int) -> int:
    # RUNLEVEL is for an init that has no policy-rc.d, or one that lets services start
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1", "LC_ALL": "C"}
    return subprocess.run(
        ["apt-get", "-q", *_PATIENT, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        env=os.environ | quiet,
        check=False,
    ).returncode


def services_at_boot(root: Path = Path("/")) -> set[str]:
    """Return the names of all services that start when the machine does."""
    by_systemd = {path.name.removesuffix(".service") for path in root.glob(_SYSTEMD)}
    return by_systemd | {path.name[3:] for path in root.glob(_SYSTEM_V)}


def disable(service: str) -> None:
    """Keep a service from starting at the next boot, by whatever this machine has for that."""
    for command in (["systemctl", "disable", service], ["update-rc.d", service, "disable"]):
        if shutil.which(command[0]) is not None:
            subprocess.run(command, check=False, capture_output=True)


@contextmanager
def services_stay_down(policy: Path) -> Iterator[None]:
    """Forbid packages to start services meanwhile, unless the machine has a policy of its own."""
    with suppress(FileNotFoundError):
        if MARK in policy.read_text(errors="replace"):
            policy.unlink()  # of a set-up that was killed
    script = f"#!/bin/sh\n{MARK}; forbids nothing when that has ended.\n"
    script += f"kill -0 {os.getpid()} 2>/dev/null && exit 101\nexit 0\n"
    try:
        handle = os.open(policy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
    except FileExistsError:
        yield
        return
    try:
        with open(handle, "w") as out:
            out.write(script)
        policy.chmod(0o755)  # whatever the umask
        yield
    finally:
        policy.unlink(missing_ok=True)


def complaints(log: Path) -> str:
    """Return what apt-get gave as the reason, in one line."""
    lines = log.read_text(errors="replace").splitlines()
    said = [line[3:] for line in lines if line.startswith("E: ")]
    return "; ".join(said) or (lines[-1] if lines else "no output")
