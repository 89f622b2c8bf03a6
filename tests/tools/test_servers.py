"""The set-up of the servers for tests: what it installs, when it only tells, what it leaves."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools import apt, servers
from tools.apt import AptProgress, services_stay_down
from tools.servers import POSTGRES, REDIS, Plan, Program, decide

APT_OUTPUT = """\
Get:1 http://deb.example bookworm InRelease
dlstatus:1:50.0000:Retrieving file 1 of 2
dlstatus:2:100.0000:Retrieving file 2 of 2
<installing>
dlstatus:1:10.5:Retrieving file 1 of 2
pmstatus:dpkg-exec:0.0000:Running dpkg
pmstatus:redis-server:40.0000:Unpacking redis-server (amd64)
pmstatus:libjemalloc2:amd64:30.0:Preparing libjemalloc2 (amd64)
pmstatus:redis-server:100.0000:Installed redis-server (amd64)
"""


def put_programs(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


def refusing(monkeypatch: pytest.MonkeyPatch, lock: Path, *, found: bool) -> list[tuple[str, ...]]:
    """Pretend to be root on a Debian whose apt-get fails; return what it was asked for."""
    asked: list[tuple[str, ...]] = []

    def install(packages: tuple[str, ...], log: Path) -> bool:
        asked.append(packages)
        log.write_text("Reading package lists...\nE: Unable to locate package redis-server\n")
        return False

    missing = [] if found else [REDIS]
    monkeypatch.setattr(apt, "install", install)
    monkeypatch.setattr(servers, "missing_programs", lambda: missing)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(servers, "PACKAGES_LOCK", lock)
    return asked


@pytest.mark.parametrize("is_root", [True, False])
@pytest.mark.parametrize("has_apt", [True, False])
def test_nothing_is_done_when_all_is_there(is_root: bool, has_apt: bool) -> None:
    assert decide([], is_root=is_root, has_apt=has_apt) == Plan()


def test_only_what_is_missing_is_installed_by_root_on_debian() -> None:
    both = decide([REDIS, POSTGRES], is_root=True, has_apt=True)
    assert both == Plan(install=("redis-server", "postgresql"))
    assert decide([POSTGRES], is_root=True, has_apt=True) == Plan(install=("postgresql",))


@pytest.mark.parametrize(
    ("is_root", "has_apt", "advice"),
    [
        (False, True, "'apt-get install redis-server postgresql' as root"),
        (False, False, "package manager"),
        (True, False, "package manager"),
    ],
)
def test_where_nothing_can_be_installed_one_line_says_what_is_skipped_and_how_to_get_it(
    is_root: bool, has_apt: bool, advice: str
) -> None:
    plan = decide([REDIS, POSTGRES], is_root=is_root, has_apt=has_apt)
    assert plan.install == ()
    assert "the tests with Redis and PostgreSQL will be SKIPPED" in plan.tell
    assert advice in plan.tell
    assert "\n" not in plan.tell


def test_a_failing_apt_get_is_told_with_its_reason_and_leaves_no_stamp(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = refusing(monkeypatch, tmp_path, found=False)
    servers.set_up(tmp_path / "servers.stamp")
    assert asked == [("redis-server",)]
    said = capsys.readouterr().err
    assert "SKIPPED: apt-get failed (Unable to locate package redis-server)" in said
    assert str(tmp_path / "servers.log") in said
    assert said.count("\n") == 1
    assert not (tmp_path / "servers.stamp").exists()


def test_with_all_there_apt_get_is_not_called_and_the_stamp_names_the_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_programs(tmp_path / "bin", "redis-server", "postgres", "initdb")
    asked = refusing(monkeypatch, tmp_path, found=True)
    monkeypatch.setattr("shutil.which", lambda name: str(tmp_path / "bin" / name))
    servers.set_up(tmp_path / "servers.stamp")
    assert asked == []
    assert capsys.readouterr().err == ""
    found = (tmp_path / "servers.stamp").read_text().splitlines()
    assert found == [str(tmp_path / "bin" / n) for n in ("redis-server", "postgres", "initdb")]


def test_programs_are_found_on_the_path_and_beside_it_in_the_newest_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = Program("P", "p", ("postgres", "initdb"), f"{tmp_path}/lib/*/bin")
    monkeypatch.setenv("PATH", str(tmp_path / "on-path"))
    assert program.find() is None
    assert program.paths() == []
    put_programs(tmp_path / "lib/9.6/bin", "postgres", "initdb")
    put_programs(tmp_path / "lib/15/bin", "postgres", "initdb")
    put_programs(tmp_path / "lib/17/bin", "postgres")  # half of it is nothing
    assert program.find() == tmp_path / "lib/15/bin"
    put_programs(tmp_path / "on-path", "postgres", "initdb")
    assert program.find() == tmp_path / "on-path"


def test_the_bar_of_apt_get_only_moves_forward_and_ends_full() -> None:
    progress = AptProgress()
    seen = [progress.fraction()]
    for line in APT_OUTPUT.splitlines():
        progress.updating = progress.updating and line != "<installing>"
        progress.line(line)
        seen.append(progress.fraction())
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert seen[-1] == 1
    assert progress.words().endswith("Installed redis-server (amd64)")


def test_services_are_forbidden_while_packages_are_installed_and_not_after(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    with services_stay_down(policy):
        assert subprocess.run([policy, "redis-server", "start"], check=False).returncode == 101
    assert not policy.exists()


def test_the_policy_of_the_machine_stays_as_it_is(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 104\n")
    with services_stay_down(policy):
        assert policy.read_text() == "#!/bin/sh\nexit 104\n"
    assert policy.read_text() == "#!/bin/sh\nexit 104\n"


def test_the_policy_of_a_set_up_that_was_killed_forbids_nothing_and_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy-rc.d"
    with subprocess.Popen(["true"]) as ended:
        pass
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: ended.pid)
        with services_stay_down(policy):
            left_behind = policy.read_text()
    policy.write_text(left_behind)
    policy.chmod(0o755)
    assert subprocess.run([policy, "redis-server", "start"], check=False).returncode == 0
    with services_stay_down(policy):
        assert subprocess.run([policy, "redis-server", "start"], check=False).returncode == 101
    assert not policy.exists()
