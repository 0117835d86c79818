"""Numbers as a record has them, digit by digit, → the values of a column."""

import math
import re
import struct
from decimal import Context, Decimal, Inexact

from headwater._rows.bad_rows import Refused

__all__ = ["Number", "to_decimal", "to_float", "to_int"]

_REAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
_LONGEST = 20  # characters of a whole number of 64 bits, with its sign


class Number(str):
    """A number of a JSON text: not read yet, since only its column knows what it should be."""

    __slots__ = ()


def to_int(text: Number, bits: int) -> int:
    limit = 1 << (bits - 1)
    if not text.lstrip("-").isdigit():
        raise Refused("it is not a whole number")
    if len(text) > _LONGEST or not -limit <= int(text) < limit:
        raise Refused("it is out of range")
    return int(text)


def to_float(text: Number, bits: int) -> float:
    number = float(text)
    try:
        struct.pack("<f" if bits == 32 else "<d", number)  # "f" alone would give an infinity
    except OverflowError:
        raise Refused("it is too large") from None
    if not math.isfinite(number):
        raise Refused("it is too large")
    return number


def to_decimal(text: str, precision: int, scale: int) -> Decimal:
    """Of a number, or of a string that writes one: many put money into strings, to keep it exact."""
    if not _REAL.fullmatch(text):
        raise Refused("it is no number")
    value = Decimal(text)
    if not value:
        return Decimal(0)
    if value.adjusted() >= precision - scale:
        raise Refused("it is out of range")
    exact = Context(prec=2 * precision + 1, Emin=-999999999, Emax=999999999, traps=[])
    rounded = value.quantize(Decimal(1).scaleb(-scale), context=exact)
    if exact.flags[Inexact]:
        raise Refused(f"it has more than {scale} digits after the point")
    return rounded
