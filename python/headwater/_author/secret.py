"""`Secret`: an option that is never printed."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import NoReturn, SupportsIndex, final

from headwater._author import reference

__all__ = ["Secret", "masked", "texts_of"]


@final
class Secret:
    """A text that shows itself to no one who does not ask: `reveal()` gives it, nothing else does.

    >>> import headwater as hw
    >>> token = hw.Secret("abc")
    >>> print(token, token.reveal())
    Secret(***) abc

    `env:NAME` and `file:PATH` are references: the text is in that variable of the environment, or in that
    file, and is looked up each time that it is revealed.

    Equal by value, compared in constant time. It can be copied, and not pickled: a pickle ends on a disk or
    on another machine.
    """

    __slots__ = ("_value",)
    _value: str

    def __init__(self, value: str) -> None:
        if not isinstance(value, str):
            raise TypeError(f"a Secret is made of a str, not of a value of type {type(value).__name__}")
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        """The text itself, for the call that needs it; HeadwaterError where a reference leads nowhere."""
        return reference.resolved(self._value) if reference.is_one(self._value) else self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._bytes(), other._bytes())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Secret cannot be changed: make another")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Secret cannot be changed: make another")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        _refuse()

    def __getstate__(self) -> NoReturn:
        _refuse()

    def _bytes(self) -> bytes:
        return self._value.encode("utf-8", "surrogatepass")  # a lone surrogate is a legal str


def _refuse() -> NoReturn:
    raise TypeError(
        "a Secret cannot be pickled: it must not reach a disk or another machine. To do: read it where it is "
        "used, from the environment or a file; or pickle secret.reveal(), if that is what you want"
    )


def texts_of(secret: Secret) -> list[str]:
    """All that must not be told of it: each line too, and of `name: value` the value, as headers have it.

    Of a reference, what it has led to before counts as well.
    """
    value = secret._value
    texts = reference.known(value) if reference.is_one(value) else [value]
    lines = [line for text in texts for line in text.splitlines()]
    values = [line.partition(": ")[2].strip() for line in lines]
    parts = [part for part in dict.fromkeys([*lines, *values]) if len(part) > 3 and part not in texts]
    return [text for text in [*texts, *parts] if text]


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets that it says."""
    for secret in sorted(secrets, key=len, reverse=True):  # one may be the beginning of another
        text = text.replace(secret, "***")
    return text
