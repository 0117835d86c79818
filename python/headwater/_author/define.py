"""`@source`: a source from a generator function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import new_class
from typing import TYPE_CHECKING, Any, ParamSpec

from headwater._author.source import Source

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["source"]

P = ParamSpec("P")


def source(
    schema: str | StructType | None = None, *, name: str | None = None, identity: Sequence[str] = ()
) -> Callable[[Callable[P, Any]], Callable[P, Source]]:
    """Make a source of a generator function; its name is the format, its parameters are the options.

    >>> import headwater as hw
    >>> @hw.source("n INT, square INT")
    ... def squares(count: int = 3):
    ...     for n in range(count):
    ...         yield n, n * n
    >>> print(squares(count=2), list(squares(count=2)))
    squares(count=2) [(0, 0), (1, 1)]

    What it makes is a subclass of `Source`, so `squares(count=2)` is a configured source. A parameter
    `since` makes it resumable. `identity=("url",)` names options that must stay as they are for as long as a
    checkpoint is used. The schema can be left out where the return annotation names a dataclass or a
    NamedTuple.
    """
    if callable(schema):
        raise TypeError('write @hw.source("column TYPE, …") or @hw.source(), not @hw.source alone')

    def define(function: Callable[P, Any]) -> Callable[P, Source]:
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"@hw.source makes a source of a generator function, not of {function!r}")
        body = {
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
            "_written": staticmethod(function),
        }
        keywords = {
            "name": function.__name__ if name is None else name,
            "schema": schema,
            "identity": identity,
        }
        return new_class(function.__name__, (_FunctionSource,), keywords, lambda made: made.update(body))

    return define


class _FunctionSource(Source):
    """The class form of a function: reading calls it with the options."""

    _written: Callable[..., Any]

    def __init__(self, **options: object) -> None:
        """The options are kept with the value."""

    def read(self, **since: object) -> Any:
        return type(self)._written(**self._bound, **since)
