"""How it is said that a row does not fit its schema."""

import reprlib
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["BadRow", "BadRowError", "Blame", "Refused", "shown"]

_LONGEST = 80


@dataclass(frozen=True)
class BadRow:
    """Stands where a row would, for what cannot become one; `onBadRow` says what becomes of it.

    >>> import headwater as hw
    >>> print(hw.BadRow(b"{oops", "it is no JSON"))
    BadRow(value=b'{oops', reason='it is no JSON', row=None)

    `fail` fails the query, with value and reason; `drop` leaves it out; `null` puts `row` in its place, which
    has nulls where there is no value. Without `row` it is left out.
    """

    value: Any
    reason: str
    row: Any = None


class BadRowError(ValueError):
    """A row that does not fit: which one, where in it, what is there, and what is allowed instead."""

    def __init__(self, number: int, field: str | None, value: str, reason: str) -> None:
        place = f"row {number}" if field is None else f"row {number}, field {field!r}"
        super().__init__(f"{place}: {reason} (found: {value})")
        self.number = number
        self.field = field
        self.value = value
        self.reason = reason

    def __reduce__(self) -> tuple[type, tuple[int, str | None, str, str]]:
        """Python would pickle the message alone, and fail to make the error of it again."""
        return type(self), (self.number, self.field, self.value, self.reason)


class Refused(ValueError):  # noqa: N818
    """Some value of a column does not fit; the message says why. Which one it is, is found out afterwards.

    No `Error` in its name: it does not leave headwater, `BadRowError` does.
    """


class Blame(NamedTuple):
    """The value that does not fit, and its place below the value that was asked about: `.name`, `[3]`."""

    path: str
    value: object
    reason: str


def shown(value: object) -> str:
    """The value for a message: short, and whatever its `repr` does."""
    try:
        text = _SHORT.repr(value)
    except Exception:
        text = f"<{type(value).__name__}, whose repr fails>"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _LONGEST
_SHORT.maxtuple = _SHORT.maxlist = _SHORT.maxdict = 8
