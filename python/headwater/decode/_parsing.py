"""One record read by Python's json, strictly: numbers keep their digits, and what is no JSON is refused."""

import re
from json import JSONDecodeError, loads
from typing import Any

from headwater.decode._nested import as_object
from headwater.decode._numbers import Number
from headwater.decode._shapes import Misfit

__all__ = ["may_be_deep", "parsed"]

_DEEPEST = 500
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def parsed(record: bytes) -> dict[str, Any]:
    """The object that a record is; Misfit where it is none."""
    if not record:
        raise Misfit("it is blank, and not a JSON object")
    if record.startswith(b"\xef\xbb\xbf"):
        raise Misfit("it begins with a byte order mark, and not with a JSON object")
    if may_be_deep(record) and _depth(record) > _DEEPEST:
        raise Misfit(f"it is nested more than {_DEEPEST} deep")
    try:
        value = loads(
            record.decode(),
            object_pairs_hook=as_object,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_no_json,
        )
    except UnicodeDecodeError as error:
        raise Misfit(f"it is not in UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:  # it was called from deep within other code
        raise Misfit("it is nested too deep") from None
    except JSONDecodeError as error:
        raise Misfit(f"it is no JSON: {error.msg} at character {error.pos}") from None
    if not isinstance(value, dict):
        raise Misfit("it is JSON, and no object")
    return value


def _no_json(name: str) -> None:
    raise Misfit(f"it is no JSON: {name} is no number")


def may_be_deep(record: bytes) -> bool:
    """pyarrow goes to any depth, and Python as deep as its stack allows: here both go to the same."""
    return len(record) > 2 * _DEEPEST and record.count(b"{") + record.count(b"[") > _DEEPEST


def _depth(record: bytes) -> int:
    depth = deepest = 0
    for mark in re.findall(rb"[\[\]{}]", _QUOTED.sub(b"", record)):
        depth += 1 if mark in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest
