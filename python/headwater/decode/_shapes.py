"""What each type of a schema takes of JSON.

A value comes to its column in two steps: as its carrier, the Arrow type in which pyarrow reads it exactly;
from there, a whole column at a time, as the column's own type. The carrier is read by pyarrow, or by Python's
json and `take`; the second step is the same for both.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as at

from headwater._rows.bad_rows import Refused
from headwater._rows.column import PlainColumn
from headwater.decode import _numbers, _texts
from headwater.decode._numbers import Number

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["NULL", "LeafShape", "Misfit", "Shape", "leaf_shape"]

NULL = "null, where the field is NOT NULL"


class Misfit(Exception):  # noqa: N818
    """A value that does not fit: where it is in the record, and why. It does not leave this package."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def within(self, path: str) -> "Misfit":
        return Misfit(self.reason, path + self.path)


class Shape:
    """One type, and whether a null may be there."""

    carrier: pa.DataType
    is_fast = True
    """Whether pyarrow can read the carrier."""
    has_decimal = False
    """Whether there is a DECIMAL in it: pyarrow cannot be trusted with exponents in those."""
    is_done = False
    """Whether there is no second step of its own."""
    is_settled = False
    """Whether the carrier is the column, to the letter: nothing is left to do or to check."""

    def __init__(self, nullable: bool) -> None:
        self.nullable = nullable

    def take(self, value: Any, *, whole: bool = False) -> Any:
        """A value that Python's json gave, as the carrier has it; Misfit where it does not fit.

        With `whole` it is what a row has, and what only the second step sees is looked at, too.
        """
        if value is not None:
            return self._take(value, whole)
        if not self.nullable:
            raise Misfit(NULL)
        return None

    def finish(self, array: pa.Array) -> pa.Array:
        """The second step, but for nulls and ranges, which `_rows` checks.

        It takes a column if and only if it takes each value of it alone.
        """
        raise NotImplementedError

    def _take(self, value: Any, whole: bool) -> Any:
        raise NotImplementedError


class LeafShape(Shape):
    """A type without parts. `read` may raise Refused, and what raises in `step` is not said to anyone."""

    def __init__(
        self,
        column: tuple["DataType", pa.DataType, bool],
        takes: str,
        carrier: pa.DataType,
        read: Callable[[Any], Any],
        step: Callable[[pa.Array], pa.Array] | None = None,
    ) -> None:
        kind, arrow, nullable = column
        super().__init__(nullable)
        self.carrier = carrier
        self._takes = f"{kind.simpleString().upper()} takes {takes}"
        self._column = PlainColumn(kind, arrow, True)
        self._read = read
        self._step = step
        self.has_decimal = at.is_decimal(arrow)
        self.is_done = step is None
        self.is_settled = self.is_done and nullable and carrier == arrow

    def finish(self, array: pa.Array) -> pa.Array:
        return array if self._step is None else self._step(array)

    def _take(self, value: Any, whole: bool) -> Any:
        try:
            taken = self._read(value)
            if whole and not self.is_done:
                return self._column.cast(self.finish(pa.array([taken], self.carrier)))[0].as_py()
        except MemoryError:
            raise
        except Exception as error:
            why = f"{error}; " if type(error) is Refused and str(error) not in self._takes else ""
            raise Misfit(f"{why}{self._takes}") from None
        return taken


def leaf_shape(kind: "DataType", arrow: pa.DataType, nullable: bool, path: str) -> Shape:
    """The shape of a type without parts; ValueError for one that JSON cannot carry."""
    column = kind, arrow, nullable
    if at.is_boolean(arrow):
        return LeafShape(column, "true or false", arrow, _only(bool))
    if at.is_integer(arrow):
        limit = 1 << (arrow.bit_width - 1)
        takes = f"a whole number from {-limit} to {limit - 1}"
        return LeafShape(column, takes, arrow, lambda v: _numbers.to_int(_only(Number)(v), arrow.bit_width))
    if at.is_floating(arrow):
        bits = arrow.bit_width
        return LeafShape(
            column, "a number", pa.float64(), lambda v: _numbers.to_float(_only(Number)(v), bits)
        )
    if at.is_decimal(arrow):
        return _decimal(column, arrow)
    if at.is_string(arrow):
        return LeafShape(column, "a string of whole characters", arrow, _text)
    what = next((what for is_kind, what in _IN_TEXTS if is_kind(arrow)), None)
    if what is not None:
        return LeafShape(column, what, pa.string(), _text, lambda a: _texts.read_texts(what, a, arrow))
    name = kind.simpleString().upper()
    raise ValueError(f"column {path!r} is of type {name}, for which JSON has nothing; declare another type")


def _decimal(column: tuple["DataType", pa.DataType, bool], arrow: pa.DataType) -> Shape:
    before, after = arrow.precision - arrow.scale, arrow.scale
    takes = f"a number, also in a string, with up to {before} digits before the point and {after} after it"

    def read(value: Any) -> Any:
        text = value if type(value) is Number else _only(str)(value)
        return _numbers.to_decimal(text, arrow.precision, arrow.scale)

    # pyarrow counts the digits of a number, and not those that its column's scale adds: it needs the room.
    return LeafShape(column, takes, pa.decimal256(76, arrow.scale), read)


def _only(wanted: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not wanted:
            raise TypeError
        return value

    return read


def _text(value: Any) -> str:
    _only(str)(value).encode()  # a str may have lone surrogates
    return str(value)


_IN_TEXTS: list[tuple[Callable[[pa.DataType], bool], str]] = [
    (at.is_binary, _texts.BYTES),
    (at.is_date, _texts.DAY),
    (at.is_time, _texts.TIME),
    (lambda arrow: at.is_timestamp(arrow) and arrow.tz is None, _texts.LOCAL),
    (at.is_timestamp, _texts.INSTANT),
]
