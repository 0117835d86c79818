"""`JvmSource`: a configured source whose rows are made in the JVM."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ParamSpec

from headwater.notebook import html_table
from headwater.options import OptionValue, Signature, camel, encode
from headwater.registry import Registered

__all__ = ["JvmSource"]

P = ParamSpec("P")


@dataclass(frozen=True, repr=False)
class JvmSource:
    """A configured source of the provider that is registered in the JVM as `name`.

    Options are written in snake_case and reach the provider in camelCase; None leaves an option out. The
    provider checks them when the stream is loaded.

    >>> JvmSource("random_alpha", {"len": 5, "rows_per_second": 100})
    random_alpha(len=5, rows_per_second=100)
    """

    name: str
    settings: Mapping[str, OptionValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = {key: value for key, value in self.settings.items() if value is not None}
        object.__setattr__(self, "settings", _Settings(settings))

    @staticmethod
    def of(schema: str) -> Callable[[Callable[P, JvmSource]], Callable[P, JvmSource]]:
        """Decorates a function that returns a JvmSource, so that `hw.registered()` can list it.

        >>> @JvmSource.of("value STRING")
        ... def words(length: int = 5) -> JvmSource:
        ...     return JvmSource("words", {"length": length})
        >>> words.registered.options[0].text
        'length: an integer, default 5'
        """

        def describe(function: Callable[P, JvmSource]) -> Callable[P, JvmSource]:
            name = function.__name__
            function.registered = Registered(  # type: ignore[attr-defined]
                name=name,
                doc=inspect.getdoc(function) or "",
                schema=schema,
                options=Signature.of(function, owner=f"source '{name}'").options,
                resumable=False,
                origin=f"{function.__module__}:{function.__qualname__}",
            )
            return function

        return describe

    @property
    def options(self) -> dict[str, str]:
        """The options as the provider gets them."""
        return {camel(key): encode(key, value) for key, value in self.settings.items()}

    def _repr_html_(self) -> str:
        return html_table(("option", "value"), self.settings.items(), self.name)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.settings.items())})"


class _Settings(Mapping[str, OptionValue]):
    """An immutable mapping that can be hashed, so that a source can be a key."""

    def __init__(self, values: Mapping[str, OptionValue]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> OptionValue:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))
