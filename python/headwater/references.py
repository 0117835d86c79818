"""References: strings that name a source, such as `sse`, `feeds:letters` or `folder/feeds.py:letters`."""

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
from headwater.registry import Registered, all_sources, built_in, describe, name_of
from headwater.source import Source

__all__ = ["definition_place", "import_module", "resolve"]


def resolve(reference: str) -> Any:
    """A subclass of Source, or a function that returns a JvmSource."""
    module, colon, name = reference.rpartition(":")
    if not colon:
        sources = _by_name(built_in())
        if reference.lower() not in sources:
            raise HeadwaterError(
                f"there is no built-in source '{reference}'; the built-in sources are: {_names(sources)}",
                "name your own source with its module, as in feeds:letters or feeds.py:letters",
            )
        return sources[reference.lower()]
    sources = _sources_of(import_module(module))
    if name.lower() in sources:
        return sources[name.lower()]
    if not sources:
        raise HeadwaterError(
            f"there is no source in {module}", 'define one with @hw.source(…) or class …(hw.Source, name="…")'
        )
    raise HeadwaterError(
        f"there is no source '{name}' in {module}; its sources are: {_names(sources)}",
        f"write {module}:{next(iter(sources))}, for example",
    )


def definition_place(source: Any) -> str:
    """Where a source is defined: `feeds:letters (/home/me/feeds.py:12)`."""
    function = inspect.unwrap(getattr(source, "_source_function", source))
    origin = describe(source).origin
    with suppress(OSError, TypeError):
        return f"{origin} ({inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]})"
    return origin


def import_module(module: str) -> ModuleType:
    """A module by its dotted name, with the current folder first on the path, or by the path of its file.

    Errors of the module's own code are not caught.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return _import_file(Path(module)) if module.endswith(".py") else _import_name(module)
    except SystemExit as exit_request:
        raise HeadwaterError(
            f"importing {module} ended the program (exit status {exit_request.code})",
            'put the code of the program below `if __name__ == "__main__":`',
        ) from None


def _import_name(module: str) -> ModuleType:
    if not all(part.isidentifier() for part in module.split(".")):
        raise HeadwaterError(
            f"'{module}' is neither a Python module nor a Python file",
            "write a dotted name such as feeds or my.feeds, or the path of a file that ends in .py",
        )
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # another module, which this one imports
        missing = "" if error.name == module else f" (there is no '{error.name}')"
        raise HeadwaterError(
            f"there is no module '{module}'{missing}, neither in {os.getcwd()} nor on Python's path",
            "check its name, install it, change to its folder, or write the path of its .py file",
        ) from None


def _import_file(path: Path) -> ModuleType:
    file = path.resolve()
    if not file.is_file():
        raise HeadwaterError(f"there is no file {file}", "write the path of a Python file, or a module")
    name = file.stem
    if name in sys.modules:
        if getattr(sys.modules[name], "__file__", None) == str(file):
            return sys.modules[name]
        name = str(file.with_suffix(""))  # the name is taken, for example by a module of the standard library
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))  # as for a program: it may import modules beside it
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
    """The sources that a module, or a module below it, defines, and those that it imports."""
    name, prefix = module.__name__, f"{module.__name__}."
    sources: list[Any] = [
        cls for cls in all_sources().values() if cls.__module__ == name or cls.__module__.startswith(prefix)
    ]
    return _by_name([*sources, *(value for value in vars(module).values() if _is_source(value))])


def _is_source(value: object) -> bool:
    if isinstance(value, type):
        return issubclass(value, Source) and hasattr(value, "_name")
    return isinstance(getattr(value, "registered", None), Registered)


def _by_name(sources: list[Any]) -> dict[str, Any]:
    """By name in lower case."""
    return {name_of(source).lower(): source for source in sources}


def _names(sources: dict[str, Any]) -> str:
    return ", ".join(sorted(map(name_of, sources.values())))
