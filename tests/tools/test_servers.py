"""The set-up of the servers for tests: what it installs, when it only tells, what it leaves."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools import apt, servers
from tools.apt import disable, services_at_boot, services_stay_down
from tools.servers import POSTGRES, REDIS, Plan, Program, decide, may_install


def put_programs(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True)
    for name in names:
        put_program(folder / name, "#!/bin/sh\n")


def put_program(path: Path, script: str) -> None:
    path.write_text(script)
    path.chmod(0o755)


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
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("SERVERS", "install")
    return asked


@pytest.mark.parametrize("is_root", [True, False])
@pytest.mark.parametrize("has_apt", [True, False])
def test_nothing_is_done_when_all_is_there(is_root: bool, has_apt: bool) -> None:
    assert decide([], is_root=is_root, has_apt=has_apt, may_install=True) == Plan()


def test_only_what_is_missing_is_installed_by_root_on_debian() -> None:
    both = decide([REDIS, POSTGRES], is_root=True, has_apt=True, may_install=True)
    assert both == Plan(install=("redis-server", "postgresql"))
    one = decide([POSTGRES], is_root=True, has_apt=True, may_install=True)
    assert one == Plan(install=("postgresql",))


@pytest.mark.parametrize(
    ("is_root", "has_apt", "may", "advice"),
    [
        (True, True, False, "make test SERVERS=install"),
        (False, True, True, "'apt-get install redis-server postgresql' as root"),
        (False, True, False, "'apt-get install redis-server postgresql' as root"),
        (False, False, True, "package manager"),
        (True, False, True, "package manager"),
    ],
)
def test_where_nothing_may_be_installed_one_line_says_what_is_skipped_and_what_to_run(
    is_root: bool, has_apt: bool, may: bool, advice: str
) -> None:
    plan = decide([REDIS, POSTGRES], is_root=is_root, has_apt=has_apt, may_install=may)
    assert plan.install == ()
    assert "the tests that need Redis and PostgreSQL are skipped" in plan.tell
    assert advice in plan.tell
    assert "\n" not in plan.tell


def test_packages_of_the_system_are_installed_only_when_somebody_asked_for_it() -> None:
    assert may_install({"CI": "true"})
    assert may_install({"SERVERS": "install"})
    assert not may_install({})
    assert not may_install({"CI": "", "SERVERS": ""})
    assert not may_install({"CI": "false"})


def test_without_being_asked_root_on_debian_installs_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = refusing(monkeypatch, tmp_path, found=False)
    monkeypatch.delenv("SERVERS")
    servers.set_up(tmp_path / "servers.stamp")
    assert asked == []
    assert "make test SERVERS=install" in capsys.readouterr().err


def test_a_failing_apt_get_is_told_with_its_reason_and_leaves_no_stamp(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = refusing(monkeypatch, tmp_path, found=False)
    servers.set_up(tmp_path / "servers.stamp")
    assert asked == [("redis-server",)]
    said = capsys.readouterr().err
    assert "skipped: apt-get failed (Unable to locate package redis-server)" in said
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


def test_services_that_start_at_boot_are_found_for_systemd_and_system_v(tmp_path: Path) -> None:
    for name in (
        "etc/systemd/system/multi-user.target.wants/redis-server.service",
        "etc/systemd/system/timers.target.wants/apt-daily.timer",
        "etc/rc3.d/S01postgresql",
        "etc/rc3.d/K01stopped",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert services_at_boot(tmp_path) == {"redis-server", "postgresql"}


def test_what_the_packages_start_at_boot_is_disabled_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, after = {"ssh", "cron"}, {"ssh", "cron", "redis-server", "postgresql"}
    found = iter([before, after])
    disabled: list[str] = []
    monkeypatch.setattr(apt, "services_at_boot", lambda: next(found))
    monkeypatch.setattr(apt, "disable", disabled.append)
    monkeypatch.setattr(apt, "POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr(apt, "_apt_get", lambda arguments, out: 0)
    assert apt.install(["redis-server"], tmp_path / "apt.log")
    assert disabled == ["postgresql", "redis-server"]


def test_a_service_is_disabled_by_whatever_the_machine_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    for program in ("systemctl", "update-rc.d"):
        put_program(tmp_path / program, f'#!/bin/sh\necho "{program} $*" >>{said}\n')
    monkeypatch.setenv("PATH", f"{tmp_path}")
    disable("redis-server")
    assert said.read_text().splitlines() == [
        "systemctl disable redis-server",
        "update-rc.d redis-server disable",
    ]


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
