"""Sources as they are listed: name, options, schema, what the author wrote about them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater._author.registry import Registered
from headwater._author.source import is_resumable, signature_of

if TYPE_CHECKING:
    from headwater._author.source import Source

__all__ = ["described", "described_source"]


def described(sources: dict[str, type[Source]]) -> Iterator[Registered]:
    """Those that come with headwater, and those given."""
    from headwater import sources as built_in

    for name in built_in.__all__:
        made = getattr(built_in, name)
        if name not in sources and hasattr(made, "registered"):
            yield made.registered
    for cls in sources.values():
        yield described_source(cls)


def described_source(cls: type[Source]) -> Registered:
    return Registered(
        name=cls.name,
        doc=inspect.getdoc(cls) or "",
        schema=_schema(cls),
        options=signature_of(cls).options,
        resumable=is_resumable(cls),
        origin=f"{cls.__module__}:{cls.__qualname__}",
    )


def _schema(cls: type[Source]) -> str | None:
    from headwater._author.ddl import to_ddl
    from headwater._author.source import schema_of_class

    schema = schema_of_class(cls)
    return None if schema is None else to_ddl(schema)
