"""What the build says for itself: its Java, its sbt, its targets. Fake programs stand in for wrong ones."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import ROOT, program

from headwater.spark.jar import find_java

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
ZEROS = "0" * 64


def run(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """In the top folder, apart from any make and any CI that this test runs under."""
    outer = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "CI")}
    return subprocess.run(
        command, env={**outer, **env}, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def fake_java(tmp_path: Path) -> Callable[[str], Path]:
    """The home of a Java that says a version, and otherwise what it was called with."""

    def make(said: str) -> Path:
        program(tmp_path / "jdk/bin/java", f'[ "$1" = -version ] && echo \'{said}\' >&2 || echo "$@"')
        return tmp_path / "jdk"

    return make


def test_the_java_that_is_here_is_taken() -> None:
    done = run("project/require-java")
    assert (done.returncode, done.stderr) == (0, "")
    assert shutil.which(done.stdout.strip()) == find_java().program


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_that_is_new_enough_is_taken(fake_java: Callable[[str], Path], version: str) -> None:
    home = fake_java(f'openjdk version "{version}" 2025-01-01')
    done = run("project/require-java", JAVA_HOME=str(home))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{home}/bin/java\n", "")


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "Java 11 found"),
        ('java version "1.8.0_402"', "Java 8 found"),
        ("no such thing", "Java of unknown version found"),
    ],
)
def test_a_java_too_old_is_named_with_the_remedy(
    fake_java: Callable[[str], Path], said: str, found: str
) -> None:
    home = fake_java(said)
    by_home = run("project/require-java", JAVA_HOME=str(home))
    assert (by_home.returncode, by_home.stdout) == (1, "")
    assert f"{found} through JAVA_HOME ({home})" in by_home.stderr
    by_path = run("project/require-java", JAVA_HOME="", PATH=f"{home}/bin:{os.environ['PATH']}")
    assert (by_path.returncode, by_path.stdout) == (1, "")
    assert f"{found} through the PATH" in by_path.stderr
    for done in (by_home, by_path):
        assert "Install a JDK 17" in done.stderr
        assert "set JAVA_HOME" in done.stderr


def test_a_missing_java_is_said_with_the_remedy(tmp_path: Path) -> None:
    shell = shutil.which("sh")
    assert shell
    done = run(shell, "project/require-java", JAVA_HOME="", PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("No Java found through the PATH.")
    assert "Install a JDK 17" in done.stderr


def test_a_wrong_java_home_is_named_with_the_remedy(tmp_path: Path) -> None:
    done = run("project/require-java", JAVA_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"No Java found through JAVA_HOME ({tmp_path})" in done.stderr
    assert "Install a JDK 17" in done.stderr


@pytest.mark.process  # Ivy fetches the launcher
def test_a_launcher_that_is_fetched_with_another_hash_is_removed(tmp_path: Path) -> None:
    version = (ROOT / "project/build.properties").read_text().partition("sbt.version=")[2].split()[0]
    launcher = tmp_path / f"sbt-launch-{version}.jar"
    setup = ["-o", ".venv/.installed"]  # it is there: these tests run in it
    done = run("make", *setup, f"SBT_LAUNCHER={launcher}", f"SBT_SHA256={ZEROS}", str(launcher))
    assert done.returncode != 0
    assert f"{launcher} is not the sbt launcher it should be, with SHA-256 {ZEROS}" in done.stderr
    assert "-retrieve" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_launcher_is_looked_at_each_time_before_it_runs(
    fake_java: Callable[[str], Path], tmp_path: Path
) -> None:
    launcher = tmp_path / "sbt-launch.jar"
    launcher.write_bytes(b"")
    of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    home = str(fake_java('openjdk version "17"'))
    done = run("project/sbt", str(launcher), of_nothing, "jvm/test", "a b", JAVA_HOME=home)
    assert (done.returncode, done.stdout) == (0, f"-Dsbt.supershell=false -jar {launcher} jvm/test a b\n")
    launcher.write_bytes(b"x")
    done = run("project/sbt", str(launcher), of_nothing, "jvm/test", JAVA_HOME=home)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{launcher} is not the sbt launcher it should be" in done.stderr
    assert not launcher.exists()


def test_make_runs_sbt_in_no_other_way() -> None:
    targets = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    done = run("make", "--dry-run", "--always-make", "SBT_LAUNCHER=LAUNCHER", "SBT_SHA256=SHA256", *targets)
    assert done.returncode == 0, done.stderr
    uses = [line for line in done.stdout.splitlines() if re.search(r"LAUNCHER\b.* \w", line)]
    assert len(uses) >= 5
    assert all(line.startswith("project/sbt LAUNCHER SHA256") for line in uses), uses


def test_help_lists_every_target_with_a_description() -> None:
    targets = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    done = run("make", "help")
    assert done.returncode == 0
    assert re.findall(r"^  make (\S+) +\S", done.stdout, re.MULTILINE) == targets
    assert run("make").stdout == done.stdout


@pytest.mark.parametrize(("minor", "ci"), [(10, "false"), (10, "true"), (11, "true")])
def test_a_line_that_the_matrix_leaves_out_is_said_and_fails_ci(tmp_path: Path, minor: int, ci: str) -> None:
    """The Python is asked for its version only; the suite itself is not run."""
    script = f"import sys; sys.version_info = (3, {minor}); exec(sys.argv[1])"
    python = program(tmp_path / "python", f'exec {sys.executable} -c "{script}" "$2"')
    there = [f"--assume-old=.venvs/spark-4.{line}/.installed" for line in range(4)]
    done = run("make", "-o", "setup", *there, "matrix", f"PYTHON={python}", "PY=echo", CI=ci)
    lines = "4.0 4.1 4.2" if minor == 10 else "4.0 4.1 4.2 4.3"
    assert f"\ntests/matrix/run.py {lines}\n" in done.stdout
    assert ("Spark 4.3 was left out" in done.stderr) == (minor == 10)
    assert (done.returncode == 0) == (minor == 11 or ci == "false")
