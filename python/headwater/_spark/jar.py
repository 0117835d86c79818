"""The jar that travels in this package, and the check that it is the one that was built.

The jar is code that Spark will run, so it is compared with its SHA-256 each time it is handed out: a
half-written install or a changed file shows here, by name, and not as a class that behaves oddly later.
"""

import hashlib
from pathlib import Path

from headwater._errors import HeadwaterError
from headwater._version import __version__

__all__ = ["verified_jar"]

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
