"""Trust: which code and which files the options of a stream may name.

An option can name a function to call (`decode=package.module:function`) and a file to read
(`token=file:PATH`), so whoever sets options can do as much as whoever writes a source. Two entries of Spark's
configuration narrow this where options come from others: `spark.headwater.trusted.modules` and
`spark.headwater.trusted.folders`. They are read when a session is attached, so no option and no `SET` of a
query changes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FOLDERS", "MODULES", "Trust", "current", "use"]

MODULES = "spark.headwater.trusted.modules"
FOLDERS = "spark.headwater.trusted.folders"


@dataclass(frozen=True)
class Trust:
    """What options may name; None where they may name anything."""

    modules: tuple[str, ...] | None = None
    """Modules, each with the modules below it."""
    folders: tuple[str, ...] | None = None
    """Folders, each with everything below it."""

    @classmethod
    def from_conf(cls, get: Callable[[str], str | None]) -> Trust:
        """Of Spark's configuration. An empty value trusts nothing."""
        return cls(_split(get(MODULES)), _split(get(FOLDERS)))

    def check_module(self, module: str) -> None:
        """Before a module is imported, and for what was found in it. ValueError if it is not trusted."""
        if self.modules is None or any(f"{module}.".startswith(f"{name}.") for name in self.modules):
            return
        raise ValueError(f"module {module!r} is not trusted: {MODULES} is {','.join(self.modules)!r}")

    def check_path(self, path: str) -> None:
        """Before a Python file is executed. ValueError if only trusted modules are: a path is not one."""
        if self.modules is not None:
            raise ValueError(f"file {path!r} is not trusted: {MODULES} is {','.join(self.modules)!r}")

    def check_environment(self) -> None:
        """Before an environment variable is read. ValueError if only files in trusted folders are."""
        if self.folders is not None:
            raise ValueError(
                f"only files in trusted folders are read: {FOLDERS} is {','.join(self.folders)!r}"
            )

    def file(self, path: str) -> Path:
        """The file to open, links resolved. ValueError if it is not in a trusted folder."""
        if self.folders is None:
            return Path(path)
        file = os.path.realpath(path)
        for folder in map(os.path.realpath, self.folders):
            if os.path.commonpath([file, folder]) == folder:
                return Path(file)
        raise ValueError(f"the file is not in a trusted folder: {FOLDERS} is {','.join(self.folders)!r}")


current = Trust()


def use(trust: Trust) -> None:
    """From now on, in this process."""
    global current
    current = trust


def _split(value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(entry.strip() for entry in value.split(",") if entry.strip())
