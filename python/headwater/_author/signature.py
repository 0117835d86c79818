"""The signature of a source is its list of options: names, types and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, get_type_hints

from headwater._author.kinds import SUPPORTED, UNFIT, Kind, kind_of, shown, write
from headwater._author.options import snake

__all__ = ["RESERVED", "Option", "OptionError", "Signature", "plain"]

_EVERY = """durability bufferBytes bufferRows maxRowsPerTrigger maxBytesPerTrigger minRowsPerTrigger
    maxTriggerDelay availableNowWait failOnDataLoss logBytes logCompression logRetainBatches logRetainBytes
    onError maxRestarts onBadRow concurrency linger batchRows startCursor startFrom minPartitions"""
RESERVED: tuple[str, ...] = (*_EVERY.split(), "source")
"""What no source may call an option of its own; a promise to authors."""


class OptionError(ValueError):
    """An option that the source does not have or lacks, or a value that the option cannot have."""


def plain(name: str) -> str:
    """What is compared of an option's name: `baseUrl` and `base_url` are the same."""
    return name.lower().replace("_", "")


_OWN = {plain(name): name for name in RESERVED}


@dataclass(frozen=True)
class Option:
    """One option of a source: a parameter of its function."""

    name: str
    allowed: str
    required: bool
    default: object
    secret: bool

    @property
    def text(self) -> str:
        """`length: a whole number, default 5`."""
        default = "none" if self.default is None else "not shown"
        if self.default is not None and not self.secret:
            default = repr(self.default) if type(self.default) is str else write(self.default)
        return f"{self.name}: {self.allowed}, {'required' if self.required else f'default {default}'}"


@dataclass(frozen=True, eq=False)
class Signature:
    """The options of one source. `owner` is what messages call it: `source 'letters'`."""

    owner: str
    options: tuple[Option, ...]
    _kinds: Mapping[str, Kind] = field(repr=False)
    _call: inspect.Signature = field(repr=False)

    @classmethod
    def of(cls, function: Callable[..., object], *, owner: str, skip: Collection[str] = ()) -> Signature:
        """The parameters of `function` but for those in `skip`, which are no options.

        TypeError or ValueError where one cannot be an option, with where it stands and what to do.
        """
        inner = inspect.unwrap(function)
        code = getattr(inner, "__code__", None)
        place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
        found = {} if function is object.__init__ else inspect.signature(function).parameters
        parameters = [parameter for name, parameter in found.items() if name not in skip]
        options, kinds, names = [], {}, dict(_OWN)
        for parameter in parameters:
            where = f"parameter '{parameter.name}' of {owner}{place}"
            _check_name(parameter, names, where)
            kind = _kind(parameter, getattr(inner, "__globals__", {}), where)
            kinds[parameter.name] = kind
            options.append(_option(parameter, kind, where))
        call = inspect.Signature([parameter.replace(annotation=parameter.empty) for parameter in parameters])
        return cls(owner, tuple(options), kinds, call)

    def parse(self, written: Mapping[str, str]) -> dict[str, object]:
        """Keyword arguments out of the option texts that Spark holds; OptionError where they do not fit."""
        known = {plain(name): name for name in self._kinds}
        spelt: dict[str, str] = {}
        for spelling in written:
            name = known.get(plain(spelling))
            if name is None:
                raise OptionError(f"{self.owner} has no option '{spelling}'. {self._instead(spelling)}")
            if name in spelt:
                raise OptionError(f"{self.owner} got '{spelt[name]}' and '{spelling}', one option: keep one")
            spelt[name] = spelling
        missing = [option.text for option in self.options if option.required and option.name not in spelt]
        if missing:
            raise OptionError(f"{self.owner} needs the option {'; '.join(missing)}")
        return self._complete({name: written[spelling] for name, spelling in spelt.items()}, texts=True)

    def check(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """All arguments of a call in Python, by name, with the defaults of those that were not given.

        TypeError as Python itself has it for a call that does not fit; TypeError or OptionError for a value.
        """
        for name in kwargs:
            if name not in self._kinds:
                raise TypeError(f"{self.owner} got an unexpected argument '{name}'. {self._instead(name)}")
        try:
            bound = self._call.bind(*args, **kwargs)
        except TypeError as error:
            listed = "; ".join(option.text for option in self.options)
            raise TypeError(f"{self.owner}: {error}. Its options are: {listed or 'none'}") from None
        return self._complete(bound.arguments, texts=False)

    def show(self, bound: Mapping[str, object]) -> str:
        """The arguments for a repr: what is required or not the default, without secrets."""
        return ", ".join(
            f"{o.name}={'***' if o.secret and bound[o.name] is not None else repr(bound[o.name])}"
            for o in self.options
            if o.name in bound and (o.required or bound[o.name] != o.default)
        )

    def _complete(self, given: Mapping[str, Any], *, texts: bool) -> dict[str, object]:
        """Values and defaults in the order of the signature; `take` makes a new list of a list each time."""
        return {
            name: _value(kind, given[name], f"option '{name}' of {self.owner}", texts=texts)
            if name in given
            else kind.take(option.default)
            for option, (name, kind) in zip(self.options, self._kinds.items(), strict=True)
        }

    def _instead(self, name: str) -> str:
        """What there is instead of an unknown option. Its value is not said: a misspelt secret is one too."""
        if plain(name) in _OWN:
            own = _OWN[plain(name)]
            return f"{own} is headwater's own: hw.stream(…, {snake(own)}=…) takes it, no source does"
        names = {plain(own): own for own in self._kinds} | _OWN
        near = [f"Did you mean '{names[found]}'? " for found in get_close_matches(plain(name), names, 1)]
        listed = "; ".join(option.text for option in self.options)
        every = ", ".join(_EVERY.split())
        return f"{''.join(near)}Its options are: {listed or 'none'}. Those of every source: {every}"


def _check_name(parameter: inspect.Parameter, names: dict[str, str], where: str) -> None:
    """`names` are those taken, by their plain form; the parameter's is added."""
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        what = f"{where} is {parameter.kind.description}, but an option has a name of its own"
        raise TypeError(f"{what}. To do: make it a plain parameter, or one for each option; no *, ** or /")
    taken = names.setdefault(plain(parameter.name), parameter.name)
    if taken in RESERVED:
        raise ValueError(f"{where} has the name of headwater's own option {taken}: rename it")
    if taken != parameter.name:
        raise ValueError(f"{where} is the option '{taken}' too, as case and _ do not count: rename one")


def _kind(parameter: inspect.Parameter, scope: dict[str, Any], where: str) -> Kind:
    """Of the annotation; without one of the default; without both a text."""
    written, default = parameter.annotation, parameter.default
    if written is parameter.empty:
        try:
            return kind_of(type(default))
        except TypeError:
            return kind_of(str | None if default is None else str)

    def bare() -> None: ...

    bare.__annotations__ = {"option": written}  # alone, without its default: None would make it Optional
    try:
        hint = get_type_hints(bare, scope)["option"]
    except Exception as error:
        what = f"{where} has the annotation {written!r}, which cannot be read ({error})"
        raise TypeError(f"{what}. To do: define or import its names at the top of the module") from error
    try:
        return kind_of(hint)
    except TypeError as error:
        what = written if isinstance(written, str) else inspect.formatannotation(written)
        why = f" ({error})" if str(error) else ""
        raise TypeError(
            f"{where} is of type {what}, as no option can be{why}. To do: use {SUPPORTED}"
        ) from None


def _option(parameter: inspect.Parameter, kind: Kind, where: str) -> Option:
    required, default = parameter.default is parameter.empty, None
    if not required:
        remedy = ". To do: annotate the parameter with what fits it, or change it"
        default = _value(kind, parameter.default, f"the default of {where}", texts=False, remedy=remedy)
    return Option(parameter.name, kind.allowed, required, default, kind.secret)


def _value(kind: Kind, given: Any, what: str, *, texts: bool, remedy: str = "") -> object:
    try:
        return kind.read(given) if texts else kind.take(given)
    except UNFIT as error:
        value = "***" if kind.secret else shown(given)
        of_type, python = ("", "") if texts else (f" of type {type(given).__name__}", f", as {kind.python}")
        why = f" ({error})" if str(error) and not kind.secret else ""
        raised = TypeError if isinstance(error, TypeError) and not texts else OptionError
        raise raised(f"{what} is {value}{of_type}, it must be {kind.allowed}{python}{why}{remedy}") from None
