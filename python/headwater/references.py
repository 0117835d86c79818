"""References: a source named by a string, as `random_alpha`, `feeds:letters` or `folder/feeds.py:letters`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from headwater.errors import HeadwaterError
from headwater.registry import Registered, all_sources, built_in, described_source, is_class
from headwater.source import Source

__all__ = ["described", "find", "imported", "place", "resumes"]


def find(target: str) -> Any:
    """A subclass of Source, or a function with an attribute `registered`: that makes a source in the JVM."""
    module, colon, name = target.rpartition(":")
    if not colon:
        there = {_name(made): made for made in built_in()}
        if target.lower() not in there:
            raise HeadwaterError(
                f"there is no built-in source '{target}'; built in are: {_listed(there)}",
                "name one of your own with its module, as feeds:letters or feeds.py:letters",
            )
        return there[target.lower()]
    there = _sources_of(imported(module))
    if name.lower() in there:
        return there[name.lower()]
    if not there:
        raise HeadwaterError(
            f"there is no source in {module}", 'define one with @hw.source(…) or class …(hw.Source, name="…")'
        )
    raise HeadwaterError(
        f"there is no source '{name}' in {module}; those there are: {_listed(there)}",
        f"write {module}:{_name(next(iter(there.values())))}, for instance",
    )


def imported(module: str) -> ModuleType:
    """A module by its dotted name, looked for in the current folder first, or by the path of its file.

    What its own code raises comes through.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return _from_file(Path(module)) if module.endswith(".py") else _by_name(module)
    except SystemExit as ending:
        raise HeadwaterError(
            f"importing {module} ended the program (exit status {ending.code})",
            'put what it does when it is run below `if __name__ == "__main__":`',
        ) from None


def described(found: Any) -> Registered:
    """What is listed of what `find` found."""
    listed: Registered = described_source(found) if is_class(found) else found.registered
    return listed


def resumes(listed: Registered) -> str:
    """Whether it does, and how."""
    if listed.partitioned:
        return "yes, each of its partitions goes on at its own offset"
    return "yes, it goes on after its last cursor" if listed.resumable else "no"


def place(found: Any) -> str:
    """Where it is defined: `feeds:letters (/home/me/feeds.py:12)`."""
    written = inspect.unwrap(getattr(found, "_written", found))
    where = described(found).origin
    with suppress(OSError, TypeError):
        return f"{where} ({inspect.getsourcefile(written)}:{inspect.getsourcelines(written)[1]})"
    return where


def _by_name(module: str) -> ModuleType:
    if not all(part.isidentifier() for part in module.split(".")):
        raise HeadwaterError(
            f"'{module}' is neither a module nor a file of Python",
            "give a dotted name such as feeds or my.feeds, or the path of a file that ends in .py",
        )
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # another one, which this one imports
        missing = "" if error.name == module else f" (there is no '{error.name}')"
        raise HeadwaterError(
            f"there is no module '{module}'{missing}, neither in {os.getcwd()} nor on Python's path",
            "check its name, install it, go to its folder, or give the path of its file, which ends in .py",
        ) from None


def _from_file(path: Path) -> ModuleType:
    file = path.resolve()
    if not file.is_file():
        raise HeadwaterError(f"there is no file {file}", "give the path of a file of Python, or a module")
    name = file.stem
    if name in sys.modules:
        if getattr(sys.modules[name], "__file__", None) == str(file):
            return sys.modules[name]
        name = str(file.with_suffix(""))  # the name is taken, by a module of Python's for instance
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))  # as for a program: it may import what lies beside it
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _sources_of(module: ModuleType) -> dict[str, Any]:
    """Those it or a module below it defines, and those it has imported, by their names in lower case."""
    own, below = module.__name__, f"{module.__name__}."
    found = [c for c in all_sources().values() if c.__module__ == own or c.__module__.startswith(below)]
    found += [value for value in vars(module).values() if _is_source(value)]
    return {_name(made): made for made in found}


def _is_source(value: object) -> bool:
    if isinstance(value, type):
        return issubclass(value, Source) and hasattr(value, "_name")
    return isinstance(getattr(value, "registered", None), Registered)


def _name(made: Any) -> str:
    return str(made._name if is_class(made) else made.registered.name).lower()


def _listed(sources: dict[str, Any]) -> str:
    return ", ".join(sorted(described(made).name for made in sources.values()))
