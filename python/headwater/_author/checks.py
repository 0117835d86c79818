"""What can be said of a source when its class is made is said then."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater._author.source import Source

__all__ = ["check_class", "check_read"]


def check_class(cls: type[Source]) -> None:
    """TypeError or ValueError, with the name of the source, where its class cannot be one."""
    from headwater._author.source import schema_of_class, signature_of

    cls._check_methods()
    try:
        schema_of_class(cls)
    except (TypeError, ValueError) as error:
        raise type(error)(f"the schema of source '{cls._name}': {error}") from None
    if "__init__" in cls.__dict__ or hasattr(cls, "_written"):
        signature_of(cls)


def check_read(cls: type[Source]) -> None:
    """Of a source with a feed: its `read` takes `since` or nothing."""
    read: Any = getattr(cls, "read", None)
    if not callable(read):
        raise TypeError(f"source '{cls._name}' has no method read(self): the generator that yields its rows")
    if hasattr(cls, "_written"):
        return
    for parameter in list(inspect.signature(read).parameters.values())[1:]:
        if parameter.name != "since" and parameter.default is parameter.empty:
            raise TypeError(
                f"read of source '{cls._name}' has a parameter '{parameter.name}'; it may have `since`, the "
                "cursor to go on after, and no other: options are parameters of __init__"
            )
