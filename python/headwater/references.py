"""References: strings that name a source wherever a text can.

- a name: that of a built-in source, of one that this process has defined, or of a plugin
- `feeds:letters` or `folder/feeds.py:letters`: a source of a module, or of a file
- a URI, such as `sse+https://example.org/events`: its scheme names the source, which says what the rest means

Each may end in options, as the query of a URI: `feeds:letters?length=8`. A known scheme wins over a module of
the same name. Nothing is guessed.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import SplitResult

from headwater import registry, trust
from headwater.definition import signature_of
from headwater.errors import HeadwaterError
from headwater.options import OptionError, Signature, normalize, parse_query
from headwater.registry import Registered, all_sources, built_in, describe, is_class, name_of
from headwater.source import Source

__all__ = [
    "Imported",
    "Resolved",
    "SparkNeeded",
    "definition_place",
    "expand",
    "import_module",
    "resolve",
    "shown",
]


_GUARD = 'put the code of the program below `if __name__ == "__main__":`'


class SparkNeeded(BaseException):
    """A module uses Spark while it is imported for its sources. No author's `except Exception` catches it."""


@dataclass(frozen=True)
class Imported:
    module: ModuleType
    note: str | None = None
    """Where the import ended, if the module needs Spark."""


@dataclass(frozen=True)
class Resolved:
    """What a reference names."""

    source: Any
    """A subclass of Source, or a function that returns a JvmSource."""
    options: dict[str, str]
    """The options that the reference sets."""

    def configured(self, options: dict[str, str] | None = None) -> Any:
        """The source with the options of the reference and more; OptionError if they are not valid."""
        return self.source(**_signature(self.source).parse(self.with_options(options or {})))

    def with_options(self, options: dict[str, str]) -> dict[str, str]:
        """The options of the reference and more; OptionError if an option is in both."""
        names = {normalize(name): name for name in self.options}
        for name in options:
            if normalize(name) in names:
                raise OptionError(
                    f"option '{names[normalize(name)]}' of source '{name_of(self.source)}' is set twice, "
                    "in the reference or beside it: keep one"
                )
        return {**self.options, **options}


def resolve(reference: str) -> Resolved:
    """The source that a reference names, and its options.

    HeadwaterError if there is none, OptionError if its options cannot be.
    """
    address, question_mark, query = reference.partition("?")
    options = parse_query(query) if question_mark else {}
    scheme, colon, rest = address.partition(":")
    cls = registry.with_scheme(scheme.lower()) if colon else None
    if cls is not None:
        return _resolve_uri(cls, scheme.lower(), rest, options)
    if rest.startswith("//") or (colon and scheme.lower() == "kafka"):
        raise _unknown_scheme(scheme.lower())
    source = _find(address)
    _signature(source).check_public(options)
    return Resolved(source, options)


def expand(source: str, options: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The name of the source that a reference names, and all its options; OptionError if there is none.

    A plain name is returned as it is.
    """
    if not (":" in source or "?" in source or source.endswith(".py")):
        return source, options
    try:
        resolved = resolve(source)
    except HeadwaterError as error:
        raise OptionError(str(error)) from None
    if not is_class(resolved.source):
        name = name_of(resolved.source)
        raise OptionError(
            f"Source '{name}' runs in Spark's JVM: write format(\"{name}\") and set its options"
        )
    return name_of(resolved.source), resolved.with_options(options)


def shown(source: str) -> str:
    """How messages call a source before it is found: without what may be secret in a reference."""
    address = source.partition("?")[0]
    return address.partition("://")[0] if "://" in address else address.partition("@")[0]


def _resolve_uri(cls: type[Source], scheme: str, rest: str, options: dict[str, str]) -> Resolved:
    host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    uri = SplitResult(scheme, host, slash + path, "", "")
    signature = signature_of(cls)
    if uri.password is not None:
        secrets = [option.name for option in signature.options if option.secret]
        remedy = "write where it is in the query, as in " + " or ".join(
            f"?{name}=env:NAME" for name in secrets
        )
        raise OptionError(
            f"a URI of {signature.owner} contains a password, which must not be in a reference, because logs "
            f"would show it: {remedy if secrets else 'the source has no option for it'}"
        )
    try:
        from_uri = cls.uri_options(uri)
    except ValueError as error:
        raise OptionError(f"a URI of {signature.owner} is not valid: {error}") from None
    names = {normalize(option.name) for option in signature.options}
    unknown = [name for name in options if normalize(name) not in names]
    try:
        signature.check_public(options)
    except OptionError as error:
        if not unknown or "url" not in from_uri:
            raise
        raise OptionError(
            f"{error}. The query of a reference sets options; for a URL with a query of its own, write "
            f"{cls._name}?url=…, percent-encoded"
        ) from None
    return Resolved(cls, Resolved(cls, from_uri).with_options(options))


def _signature(source: Any) -> Signature:
    if is_class(source):
        return signature_of(source)
    return Signature.of(source, owner=f"source '{name_of(source)}'")


def _unknown_scheme(scheme: str) -> HeadwaterError:
    if scheme == "kafka":
        return HeadwaterError(
            "Spark's own connector reads Kafka, not a source of headwater",
            'call hw.stream(spark, "kafka://…"), or write format("kafka")',
        )
    schemes = registry.known_schemes()
    similar = [known for known in schemes if known.endswith(f"+{scheme}")]
    similar = similar or get_close_matches(scheme, schemes, 1)
    hint = f" (did you mean {' or '.join(f'{known}:' for known in similar)}?)" if similar else ""
    return HeadwaterError(
        f"no source has the scheme '{scheme}:'{hint}; known are: {', '.join(schemes)}",
        "use one of these, or install the plugin that has the scheme",
    )


def _find(reference: str) -> Any:
    """A subclass of Source, or a function that returns a JvmSource.

    The path of a .py file without a name means the only source that the file defines.
    """
    if reference.endswith(".py"):
        return _only_source(reference)
    module, colon, name = reference.rpartition(":")
    if not colon:
        source = registry.with_name(reference)
        if source is None:
            names = {*map(name_of, [*built_in(), *all_sources().values()]), *registry.plugin_names()}
            raise HeadwaterError(
                f"there is no source '{reference}'; the sources are: {', '.join(sorted(names))}",
                "name your own source with its module, as in feeds:letters or feeds.py:letters",
            )
        return source
    imported = import_module(module)
    sources = _sources_of(imported.module)
    if name.lower() in sources:
        return sources[name.lower()]
    raise _not_found(f"source '{name}'", module, sources, imported)


def _only_source(file: str) -> Any:
    imported = import_module(file)
    sources = _sources_of(imported.module)
    defined = {
        name: source for name, source in sources.items() if source.__module__ == imported.module.__name__
    }
    candidates = defined or sources
    if not candidates:
        raise _not_found("source", file, sources, imported)
    if len(candidates) > 1:
        raise HeadwaterError(
            f"{file} has {len(candidates)} sources: {_names(candidates)}",
            f"name one of them, as in {file}:{sorted(candidates)[0]}",
        )
    return next(iter(candidates.values()))


def _not_found(what: str, module: str, sources: dict[str, Any], imported: Imported) -> HeadwaterError:
    if imported.note is not None:
        return HeadwaterError(f"there is no {what} in what was read of {module}: {imported.note}", _GUARD)
    if not sources:
        return HeadwaterError(
            f"there is no source in {module}", 'define one with @hw.source(…) or class …(hw.Source, name="…")'
        )
    return HeadwaterError(
        f"there is no {what} in {module}; its sources are: {_names(sources)}",
        f"write {module}:{next(iter(sources))}, for example",
    )


def definition_place(source: Any) -> str:
    """Where a source is defined: `feeds:letters (/home/me/feeds.py:12)`."""
    function = inspect.unwrap(getattr(source, "_source_function", source))
    origin = describe(source).origin
    with suppress(OSError, TypeError):
        return f"{origin} ({inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]})"
    return origin


def import_module(module: str) -> Imported:
    """A module by its dotted name, with the current folder first on the path, or by the path of its file.

    A module that raises SparkNeeded is what was read of it until then. Errors of its own code are not caught.
    """
    try:
        trust.current.check_module(module)
        if module.endswith(".py"):
            trust.current.check_path(module)
    except ValueError as error:
        raise HeadwaterError(str(error), "name a module that is trusted") from None
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return Imported(_import_file(Path(module)) if module.endswith(".py") else _import_name(module))
    except SparkNeeded as error:
        return _read_until(module, error)
    except SystemExit as exit_request:
        raise HeadwaterError(
            f"importing {module} ended the program (exit status {exit_request.code})", _GUARD
        ) from None


def _read_until(module: str, error: SparkNeeded) -> Imported:
    """The module as far as it was executed. The import system has dropped it, but its frame has its names."""
    frames = [
        (frame.f_globals, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_name == "<module>"
    ]
    names, line = frames[0]
    file = names.get("__file__", names["__name__"])
    read = ModuleType(names["__name__"])
    vars(read).update(names)
    sys.modules[read.__name__] = read  # annotations that are strings are looked up there
    return Imported(read, f"it was read up to line {line} of {file}, where it uses Spark")


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
    return isinstance(inspect.getattr_static(value, "registered", None), Registered)


def _by_name(sources: list[Any]) -> dict[str, Any]:
    """By name in lower case."""
    return {name_of(source).lower(): source for source in sources}


def _names(sources: dict[str, Any]) -> str:
    return ", ".join(sorted(map(name_of, sources.values())))
