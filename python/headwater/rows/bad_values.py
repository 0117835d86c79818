"""How it is said that a row does not fit its schema."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Blame", "Refused"]


class Refused(ValueError):  # noqa: N818
    """Some value of a column does not fit; the message says why. Which one it is, is found out afterwards.

    No `Error` in its name: it does not leave headwater, `BadRowError` does.
    """


class Blame(NamedTuple):
    """The value that does not fit, and its place below the value that was asked about: `.name`, `[3]`."""

    path: str
    value: object
    reason: str
