"""What the methods of a partitioned source may give: names of partitions, and offsets."""

from __future__ import annotations

import operator
from typing import Any

from headwater._rows.bad_rows import shown

__all__ = ["LARGEST_OFFSET", "Name", "checked_names", "checked_offset", "from_text", "kind_of_names"]

Name = int | str

LARGEST_OFFSET = 2**63 - 1
_LARGEST_NUMBER, _LONGEST_NAME = 2**31 - 1, 255
_NAMES = (
    f"names of 1 to {_LONGEST_NAME} characters, or whole numbers from 0 to {_LARGEST_NUMBER}; of one kind, "
    "and none twice"
)


def checked_names(given: Any) -> list[Name]:
    """What `partitions()` gave, as Python's own ints or strs; ValueError where that cannot be.

    >>> checked_names((2, 0, 1))
    [2, 0, 1]
    """
    if not isinstance(given, list | tuple | set | frozenset):
        raise ValueError(
            f"partitions() gave {shown(given)} of type {type(given).__name__}; it must give a list: {_NAMES}"
        )
    names = [_name(name) for name in given]
    if len({type(name) for name in names}) > 1:
        raise ValueError(f"partitions() gave names and numbers, {shown(given)}; it must give {_NAMES}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"partitions() gave {twice!r} more than once; it must give {_NAMES}")
    return names if isinstance(given, list | tuple) else sorted(names)


def checked_offset(given: Any, call: str) -> int:
    """What `call` gave, as an int; ValueError where that is no offset.

    >>> checked_offset(17, "latest('a')")
    17
    """
    offset = _index(given)
    if offset is None or not 0 <= offset <= LARGEST_OFFSET:
        raise ValueError(
            f"{call} gave {shown(given)} of type {type(given).__name__}; an offset is a whole number from 0 "
            f"to {LARGEST_OFFSET}"
        )
    return offset


def kind_of_names(names: list[Name]) -> str | None:
    """`int` or `text`; None of none."""
    return ("int" if isinstance(names[0], int) else "text") if names else None


def from_text(text: str, kind: str) -> Name:
    """The name of a partition, out of how it is written in JSON."""
    return int(text) if kind == "int" else text


def _name(given: Any) -> Name:
    if isinstance(given, str):
        name = str.__str__(given)
        if 1 <= len(name) <= _LONGEST_NAME and not any("\ud800" <= c <= "\udfff" for c in name):
            return name
    number = _index(given)
    if number is None or not 0 <= number <= _LARGEST_NUMBER:
        raise ValueError(
            f"partitions() gave {shown(given)} of type {type(given).__name__}; it must give {_NAMES}"
        )
    return number


def _index(given: Any) -> int | None:
    """As an int, if it is one or one of numpy's; True is none."""
    if isinstance(given, bool):
        return None
    try:
        return operator.index(given)
    except TypeError:
        return None
