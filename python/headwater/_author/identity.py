"""The options of a source that must stay as they are for as long as a checkpoint is used."""

from __future__ import annotations

from headwater._author.kinds import write
from headwater._author.source import Source, signature_of

__all__ = ["identity_of"]


def identity_of(source: Source) -> dict[str, str]:
    """By name, as texts; TypeError where one is no option, or a secret."""
    cls = type(source)
    if not cls._identity:
        return {}
    signature = signature_of(cls)
    options = {option.name: option for option in signature.options}
    for name in cls._identity:
        if name not in options:
            raise TypeError(f"{signature.owner} has identity={cls._identity!r}, and no option '{name}'")
        if options[name].secret:
            raise TypeError(
                f"option '{name}' of {signature.owner} is a secret, and `identity` is written to disk"
            )
    bound = source._bound
    return {name: "" if bound[name] is None else write(bound[name]) for name in cls._identity}
