"""The public names of a module: what each stands for, what its docstring says, and what that lacks."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

__all__ = ["MODULES", "Name", "gaps", "names_in"]

MODULES = tuple(f"headwater{room}" for room in ("", ".sources", ".decode", ".http", ".testing", ".sim"))


class Name:
    """One of them, as it is called: `hw.source`."""

    def __init__(self, module: ModuleType, name: str) -> None:
        value = getattr(module, name)
        self.module, self.name = module, name
        self.shown = f"hw.{name}" if module.__name__ == "headwater" else name
        self.value = inspect.unwrap(value) if callable(value) else value
        self.is_class = isinstance(self.value, type)
        is_plain = self.is_class or inspect.isfunction(self.value)
        self.has_signature = is_plain and self.value is value  # a fixture is not called as it is written
        self.doc = (inspect.getdoc(self.value) if is_plain else _constant_doc(module, name)) or ""
        self.parts = doctest.DocTestParser().parse(self.doc)
        self.examples = [part for part in self.parts if isinstance(part, doctest.Example)]

    @property
    def signature(self) -> str | None:
        written = self.value.__init__ if self.is_class else self.value
        if not self.has_signature or written is object.__init__:
            return None
        return self.shown + _signature(written, skip=int(self.is_class), is_class=self.is_class)

    def members(self) -> Iterator[tuple[str, str]]:
        """Its fields with a docstring, its properties and its methods. Those of a public base stand there."""
        root = getattr(self.value, "__module__", "").partition(".")[0]
        seen: set[str] = set()
        for cls in self.value.__mro__ if self.is_class else ():
            is_ours = cls.__module__.partition(".")[0] == root
            if cls is self.value or (is_ours and not _is_public(cls, root)):
                fields = _docs_below(ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0])
                for name in [*fields, *vars(cls)]:
                    if not name.startswith("_") and name not in seen:
                        seen.add(name)
                        yield from _member(cls, name, fields.get(name))


def names_in(module: ModuleType) -> list[Name]:
    return [Name(module, name) for name in module.__all__]


def gaps(module: ModuleType) -> Iterator[str]:
    """What the docstrings of a module's public names lack."""
    for found in names_in(module):
        place = f"{module.__name__}.{found.name}"
        if not found.doc:
            yield f"{place} has no docstring"
        elif not found.examples:
            yield f"{place} has no example"
        for example in found.examples:
            if example.want and not _prints(example.source):
                yield f"{place} has an example that shows a value: write print({example.source.strip()})"
        yield from (f"{place}.{member} has no docstring" for member, doc in found.members() if not doc)


def _prints(source: str) -> bool:
    """Whether what it shows was printed. What doctest shows besides would not come on a page."""
    shown = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr)]
    return "print" in [ast.unparse(value.func) for value in shown if isinstance(value, ast.Call)]


def _is_public(cls: type, root: str) -> bool:
    homes = [sys.modules[name] for name in (root, *MODULES) if name in sys.modules]
    return any(cls in [getattr(home, name) for name in home.__all__] for home in homes)


def _member(cls: type, name: str, field: str | None) -> Iterator[tuple[str, str]]:
    member = inspect.getattr_static(cls, name, None)
    if field is not None:
        yield name, field
    elif isinstance(member, property):
        yield name, inspect.getdoc(member) or ""
    elif inspect.isroutine(member):
        skip = int(not isinstance(member, staticmethod))
        function = getattr(member, "__func__", member)
        yield name + _signature(function, skip=skip), inspect.getdoc(getattr(cls, name)) or ""


def _signature(function: Any, *, skip: int, is_class: bool = False) -> str:
    """As `inspect` has it, with short names, and without what is private."""
    found = inspect.signature(function)
    given = [p for p in list(found.parameters.values())[skip:] if not p.name.startswith("_")]
    result = found.empty if is_class else _annotation(found.return_annotation)
    return str(inspect.Signature([_parameter(p) for p in given], return_annotation=result))


def _parameter(given: inspect.Parameter) -> inspect.Parameter:
    default = given.default
    if default is not given.empty:  # of a function, or of what a factory makes, there is nothing to read
        default = _Text("…" if repr(default).startswith("<") else repr(default).removeprefix("datetime."))
    return given.replace(annotation=_annotation(given.annotation), default=default)


def _annotation(given: Any) -> Any:
    text = given if isinstance(given, str) else inspect.formatannotation(given)
    is_shown = given is not inspect.Parameter.empty and not text.startswith("_")
    return _Text(re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text)) if is_shown else inspect.Parameter.empty


class _Text:
    """Shown as it is, without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _constant_doc(module: ModuleType, name: str) -> str | None:
    """The text below the line that defines it, in the module that it comes from."""
    tree = ast.parse(inspect.getsource(module))
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return _constant_doc(importlib.import_module(node.module or ""), name)
    return _docs_below(tree).get(name)


def _docs_below(scope: Any) -> dict[str, str]:
    """Of each name that is assigned in a module or a class, the text that follows."""
    found = {}
    for node, below in itertools.pairwise(scope.body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = below.value if isinstance(below, ast.Expr) else None
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            found[target.id] = inspect.cleandoc(value.value)
    return found
