"""The jar in this package, and the Java that runs it."""

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

__all__ = ["OLDEST", "Java", "find_java", "usable_java", "verified_jar"]

OLDEST = 17
_INSTALL = f"install a JDK {OLDEST}, on which every Spark 4 runs, and set JAVA_HOME to it"


@dataclass(frozen=True)
class Java:
    """A Java that runs: the program, and its version as it says it."""

    program: str
    version: str

    @property
    def major(self) -> int:
        """17 for "17.0.15", 8 for "1.8.0_392"."""
        numbers = re.findall(r"\d+", self.version)
        return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])

    def modules(self) -> frozenset[str]:
        listed = _run(self.program, "--list-modules")
        return frozenset(re.findall(r"^([\w.]+)(?:@\S+)?$", listed, re.MULTILINE))


def usable_java() -> Java:
    """The Java that Spark's scripts take, once it is known to be new enough for Spark 4."""
    found = find_java()
    if found.major < OLDEST:
        raise HeadwaterError(f"Java {found.version} ({found.program}) is too old for Spark 4", _INSTALL)
    return found


def find_java() -> Java:
    """The Java that Spark's scripts take: JAVA_HOME's where that is set, even wrongly, else the PATH's."""
    home = os.environ.get("JAVA_HOME")
    if home:
        program = str(Path(home) / "bin" / "java")
        if shutil.which(program) is None:
            raise HeadwaterError(
                f"JAVA_HOME is {home}, and there is no program {program}",
                "set JAVA_HOME to the folder of a JDK, or unset it to use the java on the PATH",
            )
    else:
        on_path = shutil.which("java")
        if on_path is None:
            raise HeadwaterError("JAVA_HOME is not set, and there is no java on the PATH", _INSTALL)
        program = on_path
    said = _run(program, "-version")
    match = re.search(r'version "([^"]*\d[^"]*)"', said)
    if match is None:
        raise HeadwaterError(f"{program} -version says nothing of a version: {_first_line(said)!r}", _INSTALL)
    return Java(program, match[1])


def _run(program: str, argument: str) -> str:
    try:
        done = subprocess.run([program, argument], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HeadwaterError(f"{program} cannot be run: {error}", _INSTALL) from error
    return done.stdout + done.stderr


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


_FOLDER = Path(__file__).resolve().parent.parent / "jars"
_REMEDY = "install headwater again, or in a source checkout run `make setup`, which builds the jar"


def verified_jar(folder: Path = _FOLDER) -> Path:
    """The jar's path, once the file was found and matches its SHA-256."""
    jar = folder / f"headwater-{__version__}.jar"
    sha_file = jar.with_name(jar.name + ".sha256")
    if not jar.is_file():
        raise HeadwaterError(f"the jar {jar} is missing", _REMEDY)
    if not sha_file.is_file():
        raise HeadwaterError(f"{sha_file} is missing, so {jar.name} cannot be checked", _REMEDY)
    expected = sha_file.read_text(encoding="ascii", errors="replace").strip().lower()
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    if found != expected:
        raise HeadwaterError(
            f"the jar {jar} is not the one that was built: its SHA-256 is {found}, and {sha_file.name} says "
            f"{expected}",
            _REMEDY,
        )
    return jar
