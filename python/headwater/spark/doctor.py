"""`headwater doctor`: what has to fit together, looked at one by one, each with what to do about it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headwater._version import __version__
from headwater.errors import HeadwaterError
from headwater.spark.jar import OLDEST, find_java, usable_java, verified_jar

__all__ = ["Finding", "examine"]

_SPARK = "pip install 'pyspark>=4.0,<4.4'"
_VECTOR = "jdk.incubator.vector"


@dataclass(frozen=True)
class Finding:
    """One line of the report; a finding with a remedy is a failure."""

    what: str
    remedy: str | None = None

    @property
    def ok(self) -> bool:
        return self.remedy is None

    def __str__(self) -> str:
        return f"ok   {self.what}" if self.remedy is None else f"FAIL {self.what} → {self.remedy}"


def examine() -> Iterator[Finding]:
    """All checks, in the order in which one builds on another; a session only when the rest is well."""
    all_ok = True
    for check in (java, java_modules, pyspark, scala, jar, mode, pythons):
        finding = check()
        all_ok = all_ok and finding.ok
        yield finding
    if all_ok:
        yield from session()
    else:
        yield Finding("a session was not tried", "put right what failed above, then run this again")


def java() -> Finding:
    try:
        found = usable_java()
    except HeadwaterError as error:
        return Finding(error.what, error.remedy)
    return Finding(f"Java {found.version} ({found.program})")


def java_modules() -> Finding:
    try:
        found = find_java()
        modules = found.modules()
    except HeadwaterError:
        return Finding(f"Java module {_VECTOR} not looked for: there is no Java", "see the line on Java")
    if _VECTOR not in modules:
        return Finding(
            f"{found.program} has no module {_VECTOR}, which Spark asks for at start",
            f"use a full JDK {OLDEST}, not a cut-down runtime, and set JAVA_HOME to it",
        )
    return Finding(f"Java module {_VECTOR}")


def pyspark() -> Finding:
    """Imported, not looked up: a pyspark that SPARK_HOME or PYTHONPATH brings is not among the packages."""
    try:
        from pyspark import __version__ as version
    except ImportError as error:
        return Finding(f"pyspark cannot be imported: {error}", _SPARK)
    supported = re.match(r"4\.[0-3](\.|$)", version)
    return Finding(f"pyspark {version}", None if supported else f"headwater runs on 4.0 to 4.3: {_SPARK}")


def scala() -> Finding:
    """Spark's Scala, by its jars: SPARK_HOME may be another Spark than the installed pyspark."""
    try:
        from pyspark.find_spark_home import _find_spark_home
    except ImportError:
        return Finding("Spark's Scala not looked for: there is no pyspark", "see the line on pyspark")
    try:
        jars = Path(_find_spark_home()) / "jars"
    except SystemExit:  # how pyspark says that there is no Spark; it has printed where it looked
        return Finding("no Spark was found", f"unset SPARK_HOME, or {_SPARK}")
    versions = sorted(file.stem.removeprefix("scala-library-") for file in jars.glob("scala-library-*.jar"))
    if not versions:
        return Finding(f"no scala-library in {jars}", "set SPARK_HOME to a Spark 4 folder, or unset it")
    if not all(version.startswith("2.13.") for version in versions):
        return Finding(
            f"Spark in {jars.parent} is built for Scala {', '.join(versions)}, headwater's jar for 2.13",
            "set SPARK_HOME to a Spark 4 folder, or unset it",
        )
    return Finding(f"Scala {versions[0]} in Spark, 2.13 in the jar")


def jar() -> Finding:
    try:
        return Finding(f"jar {verified_jar()}, SHA-256 good")
    except HeadwaterError as error:
        return Finding(error.what, error.remedy)


def mode() -> Finding:
    remote = os.environ.get("SPARK_REMOTE")
    if remote:
        master = os.environ.get("MASTER")
        if master:
            return Finding(
                f"SPARK_REMOTE is {remote} and MASTER is {master}", "Spark takes one of them: unset the other"
            )
        return Finding(f"Spark Connect (SPARK_REMOTE is {remote})")
    if os.environ.get("SPARK_API_MODE", "").lower() == "connect":
        return Finding("Spark Connect (SPARK_API_MODE is connect)")
    return Finding("classic Spark (SPARK_REMOTE and SPARK_API_MODE=connect would make it Connect)")


def pythons() -> Finding:
    """Workers run PYSPARK_PYTHON, else the PATH's python3; Spark refuses one of another minor version."""
    driver = f"{sys.version_info.major}.{sys.version_info.minor}"
    asked = os.environ.get("PYSPARK_PYTHON")
    name = asked or "python3"
    where = f"PYSPARK_PYTHON, {asked}" if asked else "python3 on the PATH"
    remedy = f"set PYSPARK_PYTHON to a Python {driver}, for instance {sys.executable}"
    program = shutil.which(name)
    if program is None:
        return Finding(f"the workers' Python ({where}) is not there", remedy)
    script = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [program, "-c", script], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(f"the workers' Python ({where}) cannot be run: {error}", remedy)
    worker = done.stdout.strip()
    if worker != driver:
        said = worker or done.stderr.strip().partition("\n")[0] or f"nothing, exit {done.returncode}"
        return Finding(f"Python {driver} in the driver, {said} in the workers ({where})", remedy)
    return Finding(f"Python {driver} in the driver and in the workers ({where})")


def session(timeout: float = 180) -> Iterator[Finding]:
    """Start a small session in a process of its own: Spark's log stays out of the report, and a hang ends."""
    command = [sys.executable, "-m", "headwater.spark.doctor_session"]
    remedy = "start Spark by hand to see its log: python -m headwater.spark.doctor_session"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        yield Finding(f"a session did not start within {timeout:g} s", remedy)
        return
    try:
        report = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError:
        last = done.stderr.strip().rpartition("\n")[2]
        yield Finding(f"a session could not be started: {last or f'exit {done.returncode}'}", remedy)
        return
    if "error" in report:
        yield Finding(f"a session was started without success: {report['error']}", report["remedy"] or remedy)
        return
    where = f"a {report['kind']} session of Spark {report['spark']}"
    yield Finding(f"jar {__version__} visible in {where}, the version of the Python package")
    yield Finding(f"format random_alpha loads: {report['schema']}")
