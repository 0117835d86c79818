"""The command `headwater`, run as users run it. The tests damage its environment, never its code."""

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyspark
from processes import PACKAGE, program

import headwater as hw
from headwater.sources import random_alpha
from headwater.spark.jar import find_java


def headwater(
    *arguments: str, env: dict[str, str], cwd: Path, python: Sequence[str] = (sys.executable,)
) -> subprocess.CompletedProcess[str]:
    command = [*python, "-m", "headwater", *arguments]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)


def failures(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines that failed. Every line is one finding, and nothing else is printed."""
    lines = done.stdout.splitlines()
    assert all(re.match(r"ok   \S|FAIL \S.* → \S", line) for line in lines), done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    failed = [line for line in lines if line.startswith("FAIL")]
    assert done.returncode == (1 if failed else 0)
    return failed


def test_jar_prints_the_path_alone(clean_env: dict[str, str], tmp_path: Path, jar: Path) -> None:
    done = headwater("jar", env=clean_env, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{jar}\n", "")


def test_version_prints_the_version_of_the_package(clean_env: dict[str, str], tmp_path: Path) -> None:
    done = headwater("--version", env=clean_env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"headwater {hw.__version__}\n")


def test_without_a_command_the_usage_is_shown(clean_env: dict[str, str], tmp_path: Path) -> None:
    done = headwater(env=clean_env, cwd=tmp_path)
    assert done.returncode == 2
    assert "usage: headwater" in done.stderr


def test_doctor_finds_nothing_wrong_here(own_spark: dict[str, str], tmp_path: Path, jar: Path) -> None:
    done = headwater("doctor", env=own_spark, cwd=tmp_path)
    assert failures(done) == []
    for message in (
        f"Java {find_java().version} (",
        "jdk.incubator.vector",
        "pyspark 4.",
        "Scala 2.13",
        str(jar),
        "classic",
        "Python 3.",
    ):
        assert message in done.stdout
    assert f"jar {hw.__version__} visible in a classic session" in done.stdout
    assert "random_alpha loads: struct<timestamp:timestamp,value:string>" in done.stdout


def test_doctor_reports_a_java_that_is_too_old(clean_env: dict[str, str], tmp_path: Path) -> None:
    old = program(tmp_path / "bin" / "java", "echo 'openjdk version \"1.8.0_392\"' >&2")
    env = {**clean_env, "JAVA_HOME": "", "PATH": f"{old.parent}{os.pathsep}{clean_env['PATH']}"}
    failed = failures(headwater("doctor", env=env, cwd=tmp_path))
    assert failed[0].startswith(f"FAIL Java 1.8.0_392 ({old}) is too old")
    assert "install a JDK 17" in failed[0]
    assert "jdk.incubator.vector" in failed[1]
    assert "session was not tried" in failed[-1]


def test_doctor_reports_a_java_without_a_needed_module(clean_env: dict[str, str], tmp_path: Path) -> None:
    script = 'case "$1" in -version) echo \'openjdk version "21.0.1"\' >&2;; *) echo java.base@21.0.1;; esac'
    cut = program(tmp_path / "jre" / "bin" / "java", script)
    failed = failures(
        headwater("doctor", env={**clean_env, "JAVA_HOME": str(tmp_path / "jre")}, cwd=tmp_path)
    )
    assert failed[0].startswith(f"FAIL {cut} has no module jdk.incubator.vector")
    assert len(failed) == 2


def test_doctor_reports_that_there_is_no_java(clean_env: dict[str, str], tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    env = {**clean_env, "JAVA_HOME": "", "PATH": str(empty)}
    failed = failures(headwater("doctor", env=env, cwd=tmp_path))
    assert "JAVA_HOME is not set, and there is no java on the PATH" in failed[0]
    assert "install a JDK 17" in failed[0]


def test_doctor_reports_a_wrong_java_home(clean_env: dict[str, str], tmp_path: Path) -> None:
    env = {**clean_env, "JAVA_HOME": str(tmp_path / "nowhere")}
    failed = failures(headwater("doctor", env=env, cwd=tmp_path))
    assert f"JAVA_HOME is {tmp_path / 'nowhere'}" in failed[0]
    assert "set JAVA_HOME" in failed[0]


BARE = (sys.executable, "-S")  # without the installed packages


def test_doctor_reports_a_missing_pyspark(clean_env: dict[str, str], tmp_path: Path) -> None:
    env = {**clean_env, "PYTHONPATH": str(PACKAGE)}
    failed = failures(headwater("doctor", env=env, cwd=tmp_path, python=BARE))
    assert failed[0].startswith("FAIL pyspark cannot be imported: No module named 'pyspark' → pip install")
    assert "see the line on pyspark" in failed[1]
    assert "session was not tried" in failed[2]
    assert len(failed) == 3


def test_doctor_finds_a_pyspark_that_is_only_on_the_path(clean_env: dict[str, str], tmp_path: Path) -> None:
    """As SPARK_HOME/python on the PYTHONPATH does: there is a module, and no installed package."""
    import py4j

    for module in (pyspark, py4j):
        folder = Path(module.__file__).parent
        (tmp_path / folder.name).symlink_to(folder)
    nowhere = str(tmp_path / "nowhere")  # without Java no session is tried, which is not what this is about
    env = {**clean_env, "PYTHONPATH": f"{PACKAGE}{os.pathsep}{tmp_path}", "JAVA_HOME": nowhere}
    done = headwater("doctor", env=env, cwd=tmp_path, python=BARE)
    assert f"ok   pyspark {pyspark.__version__}\n" in done.stdout
    assert "ok   Scala 2.13" in done.stdout


def test_doctor_and_jar_report_a_changed_jar(
    clean_env: dict[str, str], tmp_path: Path, copy_of_package: Path
) -> None:
    jar = copy_of_package / "headwater" / "jars" / f"headwater-{hw.__version__}.jar"
    jar.write_bytes(jar.read_bytes() + b"x")
    env = {**clean_env, "PYTHONPATH": str(copy_of_package)}
    failed = failures(headwater("doctor", env=env, cwd=tmp_path))
    assert f"the jar {jar} is not the one that was built" in failed[0]
    assert "install headwater again" in failed[0]
    done = headwater("jar", env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert str(jar) in done.stderr


def test_doctor_reports_another_python_in_the_workers(clean_env: dict[str, str], tmp_path: Path) -> None:
    other = program(tmp_path / "bin" / "python3", "echo 3.6")
    failed = failures(headwater("doctor", env={**clean_env, "PYSPARK_PYTHON": str(other)}, cwd=tmp_path))
    assert f"3.6 in the workers (PYSPARK_PYTHON, {other})" in failed[0]
    assert f"for instance {sys.executable}" in failed[0]
    on_path = {**clean_env, "PATH": f"{other.parent}{os.pathsep}{clean_env['PATH']}"}
    del on_path["PYSPARK_PYTHON"]
    failed = failures(headwater("doctor", env=on_path, cwd=tmp_path))
    assert "3.6 in the workers (python3 on the PATH)" in failed[0]


def test_doctor_reports_a_spark_built_for_another_scala(clean_env: dict[str, str], tmp_path: Path) -> None:
    spark_home = tmp_path / "spark-3.5"
    (spark_home / "jars").mkdir(parents=True)
    (spark_home / "jars" / "scala-library-2.12.18.jar").touch()
    shutil.copytree(Path(pyspark.__file__).parent / "bin", spark_home / "bin")
    failed = failures(headwater("doctor", env={**clean_env, "SPARK_HOME": str(spark_home)}, cwd=tmp_path))
    assert "is built for Scala 2.12.18" in failed[0]


def test_doctor_reports_remote_and_master_set_together(clean_env: dict[str, str], tmp_path: Path) -> None:
    env = {**clean_env, "SPARK_REMOTE": "sc://127.0.0.1:1", "MASTER": "local"}
    failed = failures(headwater("doctor", env=env, cwd=tmp_path))
    assert "SPARK_REMOTE is sc://127.0.0.1:1 and MASTER is local" in failed[0]


# Sources


FEEDS = """
import headwater as hw

@hw.source("n INT, word STRING")
def letters(length: int = 5, *, token: hw.Secret, since=None):
    '''Letters, one after the other.

    And again.
    '''
    yield hw.At(0, (0, "a" * length))

class Wide(hw.Source, name="wide"):
    def __init__(self, columns: list[str]):
        self.columns = columns

    @property
    def schema(self):
        return ", ".join(f"{name} INT" for name in self.columns)

    def read(self):
        yield tuple(range(len(self.columns)))
"""


def test_list_shows_the_built_in_sources(clean_env: dict[str, str], tmp_path: Path) -> None:
    done = headwater("list", env=clean_env, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    names, rule, *sources = done.stdout.splitlines()
    assert names.split() == ["source", "schema", "description"]
    assert set(rule) == {"-", " "}
    assert [line.split()[0] for line in sources] == [found.name for found in built_in_sources()]
    (line,) = [line for line in sources if line.startswith("random_alpha ")]
    assert re.match(r"random_alpha +timestamp TIMESTAMP, value STRING +Random words", line)


def built_in_sources() -> list[Any]:
    return [found for found in hw.registered() if found.origin.startswith("headwater.sources.")]


def test_list_shows_the_sources_of_modules_too(clean_env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "feeds.py").write_text(FEEDS)
    (tmp_path / "more.py").write_text(
        "import headwater as hw\n@hw.source('n INT')\ndef more():\n    yield 1\n"
    )
    done = headwater("list", "feeds", "more.py", env=clean_env, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    by_name = {line.split()[0]: line.rstrip() for line in done.stdout.splitlines()}
    assert re.search(r"n INT, word STRING +Letters, one after the other\.$", by_name["letters"])
    assert by_name["wide"].endswith("depends on its options")
    assert by_name["more"].endswith("n INT")
    assert "random_alpha" in by_name


def test_list_reports_an_unknown_module(clean_env: dict[str, str], tmp_path: Path) -> None:
    done = headwater("list", "fedes", env=clean_env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        f"headwater: there is no module 'fedes', neither in {tmp_path} nor on Python's"
    )
    assert len(done.stderr.splitlines()) == 1


def test_describe_shows_everything_about_a_source(clean_env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "feeds.py").write_text(FEEDS)
    done = headwater("describe", "feeds:letters", env=clean_env, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "letters\n"
        "\n"
        "Letters, one after the other.\n"
        "\n"
        "And again.\n"
        "\n"
        "schema      n INT, word STRING\n"
        "options     length: an integer, default 5\n"
        "            token: a secret string, required\n"
        "resumable   yes, it resumes after its last cursor\n"
        f"defined in  feeds:letters ({tmp_path}/feeds.py:4)\n"
    )


def test_describe_reports_unknown_sources(clean_env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "feeds.py").write_text(FEEDS)
    done = headwater("describe", "feeds.py:wide", env=clean_env, cwd=tmp_path)
    assert done.stdout.startswith(
        "wide\n\nschema      depends on its options\noptions     columns: a comma-sep"
    )
    assert f"resumable   no\ndefined in  feeds:Wide ({tmp_path}/feeds.py:12)\n" in done.stdout
    for target, message in (
        ("feeds:lettres", "there is no source 'lettres' in feeds; its sources are: letters, wide. Fix: "),
        ("letters", "there is no source 'letters'; the sources are: "),
    ):
        failed = headwater("describe", target, env=clean_env, cwd=tmp_path)
        assert (failed.returncode, failed.stdout) == (1, "")
        assert failed.stderr.startswith(f"headwater: {message}")
        assert len(failed.stderr.splitlines()) == 1


def test_describe_knows_the_built_in_sources(clean_env: dict[str, str], tmp_path: Path) -> None:
    for target in ("random_alpha", "Random_Alpha", "headwater.sources:random_alpha"):
        done = headwater("describe", target, env=clean_env, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        for line in (
            "schema      timestamp TIMESTAMP, value STRING",
            "options     len: an integer, required",
            "            rows_per_second: an integer, default 500",
            "            seed: an integer, default none",
        ):
            assert f"\n{line}\n" in done.stdout
        assert "defined in  headwater.sources.random_alpha:random_alpha (" in done.stdout


def test_the_listed_options_of_a_jvm_source_are_the_parameters_of_its_function() -> None:
    (found,) = [found for found in hw.registered() if found.name == "random_alpha"]
    assert [option.name for option in found.options] == list(inspect.signature(random_alpha).parameters)
    assert found.doc == inspect.getdoc(random_alpha)
    assert found.schema == "timestamp TIMESTAMP, value STRING"
    assert not found.resumable


def test_list_does_not_import_spark(clean_env: dict[str, str], tmp_path: Path) -> None:
    script = (
        "import sys; from headwater.cli.main import main; main(['list']); "
        "print({'pyspark', 'py4j'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=clean_env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "set()"
