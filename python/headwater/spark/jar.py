"""The jar in this package, and the Java that Spark runs on."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headwater._version import __version__
from headwater.errors import HeadwaterError

__all__ = ["MIN_JAVA", "find_java", "spark_home", "usable_java", "verified_jar"]

_FOLDER = Path(__file__).resolve().parent.parent / "jars"
_REINSTALL = "install headwater again, or in a source checkout run `make setup`, which builds the jar"


def verified_jar(folder: Path = _FOLDER) -> Path:
    """The path of the jar, after a check of its SHA-256."""
    jar = folder / f"headwater-{__version__}.jar"
    sha_file = jar.with_name(jar.name + ".sha256")
    if not jar.is_file():
        raise HeadwaterError(f"the jar {jar} is missing", _REINSTALL)
    if not sha_file.is_file():
        raise HeadwaterError(f"{sha_file} is missing, so {jar.name} cannot be checked", _REINSTALL)
    expected = sha_file.read_text(encoding="ascii", errors="replace").strip().lower()
    actual = hashlib.sha256(jar.read_bytes()).hexdigest()
    if actual != expected:
        raise HeadwaterError(
            f"the jar {jar} is not the one that was built: its SHA-256 is {actual}, but {sha_file.name} has "
            f"{expected}",
            _REINSTALL,
        )
    return jar


MIN_JAVA = 17
_INSTALL = f"install a JDK {MIN_JAVA}, which every Spark 4 supports, and set JAVA_HOME to it"


@dataclass(frozen=True)
class Java:
    """A Java program that runs, and the version it reports."""

    program: str
    version: str

    @property
    def major(self) -> int:
        """17 for "17.0.15", 8 for "1.8.0_392"."""
        numbers = re.findall(r"\d+", self.version)
        return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])

    def modules(self) -> frozenset[str]:
        output = _run(self.program, "--list-modules")
        return frozenset(re.findall(r"^([\w.]+)(?:@\S+)?$", output, re.MULTILINE))


def usable_java() -> Java:
    """The Java that Spark's scripts use; HeadwaterError if it is too old for Spark 4."""
    java = find_java()
    if java.major < MIN_JAVA:
        raise HeadwaterError(f"Java {java.version} ({java.program}) is too old for Spark 4", _INSTALL)
    return java


def find_java() -> Java:
    """The Java that Spark's scripts use: JAVA_HOME's if that is set, even wrongly, else the PATH's."""
    home = os.environ.get("JAVA_HOME")
    if home:
        program = str(Path(home) / "bin" / "java")
        if shutil.which(program) is None:
            raise HeadwaterError(
                f"JAVA_HOME is {home}, but there is no program {program}",
                "set JAVA_HOME to the folder of a JDK, or unset it to use the java on the PATH",
            )
    else:
        on_path = shutil.which("java")
        if on_path is None:
            raise HeadwaterError("JAVA_HOME is not set, and there is no java on the PATH", _INSTALL)
        program = on_path
    output = _run(program, "-version")
    match = re.search(r'version "([^"]*\d[^"]*)"', output)
    if match is None:
        first_line = output.strip().partition("\n")[0]
        raise HeadwaterError(f"{program} -version prints no version: {first_line!r}", _INSTALL)
    return Java(program, match[1])


def _run(program: str, argument: str) -> str:
    try:
        completed = subprocess.run(
            [program, argument], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HeadwaterError(f"{program} cannot be run: {error}", _INSTALL) from error
    return completed.stdout + completed.stderr


def spark_home() -> Path:
    """The Spark that pyspark starts."""
    remedy = "pip install 'pyspark>=4.0,<4.4'"
    try:
        from pyspark.find_spark_home import _find_spark_home
    except ImportError as error:
        raise HeadwaterError(f"pyspark cannot be imported: {error}", remedy) from error
    try:
        return Path(_find_spark_home())
    except SystemExit:  # how pyspark says that there is no Spark; it has printed where it looked
        raise HeadwaterError("no Spark was found", f"unset SPARK_HOME, or {remedy}") from None
