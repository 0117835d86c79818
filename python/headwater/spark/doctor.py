"""`headwater doctor`: checks, one by one, that Java, Spark, Python and the jar fit together.

The last check starts a small session in its own process, which runs this module as a program: so Spark's log
stays out of the report, and a session that hangs can be stopped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from headwater._version import __version__
from headwater.errors import HeadwaterError
from headwater.spark.jar import MIN_JAVA, find_java, usable_java, verified_jar

__all__ = ["run_checks"]

_INSTALL_SPARK = "pip install 'pyspark>=4.0,<4.4'"
_VECTOR = "jdk.incubator.vector"


@dataclass(frozen=True)
class CheckResult:
    """One line of the report. A result with a remedy is a failure."""

    what: str
    remedy: str | None = None

    @property
    def ok(self) -> bool:
        return self.remedy is None

    def __str__(self) -> str:
        return f"ok   {self.what}" if self.remedy is None else f"FAIL {self.what} → {self.remedy}"


def run_checks(
    while_starting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[CheckResult]:
    """All checks, each after those it depends on. The session is tried only if the others succeed.

    `while_starting` returns a context manager that is entered while the session starts.
    """
    all_ok = True
    for check in (
        _check_java,
        _check_java_modules,
        _check_pyspark,
        _check_scala,
        _check_jar,
        _check_mode,
        check_worker_python,
    ):
        result = check()
        all_ok = all_ok and result.ok
        yield result
    if all_ok:
        with while_starting():
            results = list(_check_session())
        yield from results
    else:
        yield CheckResult("a session was not tried", "fix the failures above, then run this again")


def _check_java() -> CheckResult:
    try:
        java = usable_java()
    except HeadwaterError as error:
        return CheckResult(error.what, error.remedy)
    return CheckResult(f"Java {java.version} ({java.program})")


def _check_java_modules() -> CheckResult:
    try:
        java = find_java()
        modules = java.modules()
    except HeadwaterError:
        return CheckResult(f"Java module {_VECTOR} not checked: there is no Java", "see the line on Java")
    if _VECTOR not in modules:
        return CheckResult(
            f"{java.program} has no module {_VECTOR}, which Spark needs at start",
            f"use a full JDK {MIN_JAVA}, not a reduced runtime, and set JAVA_HOME to it",
        )
    return CheckResult(f"Java module {_VECTOR}")


def _check_pyspark() -> CheckResult:
    """By importing it: a pyspark on SPARK_HOME or PYTHONPATH is not an installed package."""
    try:
        from pyspark import __version__ as version
    except ImportError as error:
        return CheckResult(f"pyspark cannot be imported: {error}", _INSTALL_SPARK)
    supported = re.match(r"4\.[0-3](\.|$)", version)
    return CheckResult(
        f"pyspark {version}", None if supported else f"headwater supports 4.0 to 4.3: {_INSTALL_SPARK}"
    )


def _check_scala() -> CheckResult:
    """By Spark's jars: SPARK_HOME may be another Spark than the installed pyspark."""
    try:
        from pyspark.find_spark_home import _find_spark_home
    except ImportError:
        return CheckResult("Spark's Scala not checked: there is no pyspark", "see the line on pyspark")
    try:
        jars = Path(_find_spark_home()) / "jars"
    except SystemExit:  # pyspark exits if it finds no Spark, after it has printed where it looked
        return CheckResult("no Spark was found", f"unset SPARK_HOME, or {_INSTALL_SPARK}")
    versions = sorted(file.stem.removeprefix("scala-library-") for file in jars.glob("scala-library-*.jar"))
    if not versions:
        return CheckResult(f"no scala-library in {jars}", "set SPARK_HOME to a Spark 4 folder, or unset it")
    if not all(version.startswith("2.13.") for version in versions):
        return CheckResult(
            f"Spark in {jars.parent} is built for Scala {', '.join(versions)}, headwater's jar for 2.13",
            "set SPARK_HOME to a Spark 4 folder, or unset it",
        )
    return CheckResult(f"Scala {versions[0]} in Spark, 2.13 in the jar")


def _check_jar() -> CheckResult:
    try:
        return CheckResult(f"jar {verified_jar()}, SHA-256 correct")
    except HeadwaterError as error:
        return CheckResult(error.what, error.remedy)


def _check_mode() -> CheckResult:
    remote = os.environ.get("SPARK_REMOTE")
    if remote:
        master = os.environ.get("MASTER")
        if master:
            return CheckResult(
                f"SPARK_REMOTE is {remote} and MASTER is {master}",
                "Spark accepts only one of them: unset the other",
            )
        return CheckResult(f"Spark Connect (SPARK_REMOTE is {remote})")
    if os.environ.get("SPARK_API_MODE", "").lower() == "connect":
        return CheckResult("Spark Connect (SPARK_API_MODE is connect)")
    return CheckResult("classic Spark (SPARK_REMOTE or SPARK_API_MODE=connect would make it Connect)")


def check_worker_python() -> CheckResult:
    """Workers run PYSPARK_PYTHON, else python3 on the PATH. Spark requires the driver's minor version."""
    driver = f"{sys.version_info.major}.{sys.version_info.minor}"
    configured = os.environ.get("PYSPARK_PYTHON")
    where = f"PYSPARK_PYTHON, {configured}" if configured else "python3 on the PATH"
    remedy = f"set PYSPARK_PYTHON to a Python {driver}, for instance {sys.executable}"
    program = shutil.which(configured or "python3")
    if program is None:
        return CheckResult(f"the workers' Python ({where}) does not exist", remedy)
    script = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        completed = subprocess.run(
            [program, "-c", script], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return CheckResult(f"the workers' Python ({where}) cannot be run: {error}", remedy)
    worker = completed.stdout.strip()
    if worker != driver:
        error_line = completed.stderr.strip().partition("\n")[0]
        actual = worker or error_line or f"nothing, exit {completed.returncode}"
        return CheckResult(f"Python {driver} in the driver, {actual} in the workers ({where})", remedy)
    return CheckResult(f"Python {driver} in the driver and in the workers ({where})")


def _check_session(timeout: float = 180) -> Iterator[CheckResult]:
    command = [sys.executable, "-m", "headwater.spark.doctor"]
    remedy = "start Spark yourself to see its log: python -m headwater.spark.doctor"
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        yield CheckResult(f"a session did not start within {timeout:g} s", remedy)
        return
    try:
        report = json.loads(completed.stdout.strip().rpartition("\n")[2])
    except ValueError:
        last = completed.stderr.strip().rpartition("\n")[2]
        yield CheckResult(f"a session could not be started: {last or f'exit {completed.returncode}'}", remedy)
        return
    if "error" in report:
        yield CheckResult(f"a session failed: {report['error']}", report["remedy"] or remedy)
        return
    where = f"a {report['kind']} session of Spark {report['spark']}"
    yield CheckResult(f"jar {__version__} visible in {where}, the version of the Python package")
    yield CheckResult(f"format random_alpha loads: {report['schema']}")


def _try_session() -> dict[str, str | None]:
    """Starts a small session and loads a stream; the report for `_check_session`."""
    from pyspark.sql import SparkSession

    from headwater.spark.session import session

    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    if "SPARK_REMOTE" not in os.environ:
        builder = builder.master("local[1]")
    try:
        spark = session(builder)
        schema = spark.readStream.format("random_alpha").option("len", 1).load().schema.simpleString()
        kind = "Connect" if type(spark).__module__.startswith("pyspark.sql.connect.") else "classic"
        report: dict[str, str | None] = {"kind": kind, "spark": spark.version, "schema": schema}
        spark.stop()
    except HeadwaterError as error:
        return {"error": error.what, "remedy": error.remedy}
    except Exception as error:  # any error of Spark becomes one line; Spark's log has the rest
        first_line = str(error).strip().partition("\n")[0]
        return {"error": f"{type(error).__name__}: {first_line}", "remedy": None}
    return report


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_try_session()) + "\n")
