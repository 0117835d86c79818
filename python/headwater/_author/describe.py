"""Sources as they are listed: name, options, schema, what the author wrote about them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

from headwater._author.registry import Registered
from headwater._author.source import is_resumable, signature_of

if TYPE_CHECKING:
    from headwater._author.source import Source

__all__ = ["built_in", "described", "described_source", "is_class"]


def described(sources: dict[str, type[Source]]) -> Iterator[Registered]:
    """Those that come with headwater, and those given."""
    written = dict(sources)
    for made in built_in():
        if is_class(made):
            written[made._name] = made
        else:
            yield made.registered
    for cls in written.values():
        yield described_source(cls)


def built_in() -> list[Any]:
    """What `headwater.sources` offers: subclasses of Source, and functions with an attribute `registered`."""
    from headwater import sources

    return [getattr(sources, name) for name in sources.__all__]


def described_source(cls: type[Source]) -> Registered:
    """One that is written in Python."""
    return Registered(
        name=cls._name,
        doc=_doc(cls),
        schema=_schema(cls),
        options=signature_of(cls).options,
        resumable=is_resumable(cls),
        origin=f"{cls.__module__}:{cls.__qualname__}",
        partitioned=cls._is_partitioned,
    )


def is_class(made: Any) -> TypeGuard[type[Source]]:
    """Whether it is written in Python."""
    return isinstance(made, type)


def _doc(cls: type[Source]) -> str:
    """What the author wrote: not what a class inherits, nor what a dataclass gives itself."""
    text = inspect.cleandoc(cls.__doc__ or "")
    is_own = not (hasattr(cls, "__dataclass_fields__") and text.startswith(f"{cls.__name__}("))
    return text if is_own else ""


def _schema(cls: type[Source]) -> str | None:
    from headwater._author.ddl import to_ddl
    from headwater._author.source import schema_of_class

    schema = schema_of_class(cls)
    return None if schema is None else to_ddl(schema)
