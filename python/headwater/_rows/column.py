"""Columns of values → Arrow arrays of exactly their type, or a refusal.

`build` and `cast` work on whole columns and say only *that* something does not fit. They take a column if and
only if they take each of its values alone: whoever wants to know which one it is halves the column until one
is left, and asks `explain` about that.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as at

from headwater._rows.bad_rows import Blame, Refused
from headwater._rows.leaves import leaf

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["NULL", "Column", "PlainColumn", "Values", "fits", "misfits", "spread"]

Values = Sequence[object]
NULL = "a null, where the column is NOT NULL"
_MISFITS = (pa.ArrowException, OverflowError, UnicodeError)


class Column(Protocol):
    """What a column of the schema, or of a part of it, can do."""

    nullable: bool

    def build(self, values: Values) -> pa.Array:
        """Of Python values."""

    def cast(self, array: pa.Array) -> pa.Array:
        """Of an Arrow array of this type, or of one that can become it without loss."""

    def explain(self, value: object) -> Blame:
        """Why `build` refuses this value."""


class PlainColumn:
    """A column of values without parts."""

    def __init__(self, kind: "DataType", arrow: pa.DataType, nullable: bool) -> None:
        self.nullable = nullable
        self._name = kind.simpleString().upper()
        self._arrow = arrow
        self._leaf = leaf(kind, arrow)
        self._exact = self._leaf.exact | ({type(None)} if nullable else set())

    def build(self, values: Values) -> pa.Array:
        others = set(map(type, values)) - self._exact
        for kind in others:
            if kind is type(None):
                raise Refused(NULL)
            if not self._leaf.fits(kind):
                raise Refused(f"{kind.__name__} does not fit")
        array = (self._leaf.build_others if others else self._leaf.build)(values, self._arrow)
        if isinstance(array, pa.ChunkedArray):
            raise Refused("the values of these rows are together larger than 2 GB; give fewer rows at a time")
        self._leaf.check(array)
        return array

    def cast(self, array: pa.Array) -> pa.Array:
        if at.is_dictionary(array.type):
            array = array.dictionary_decode()
        if array.null_count and not self.nullable:
            raise Refused(NULL)
        if array.type != self._arrow:
            if at.is_null(array.type):
                return pa.nulls(len(array), self._arrow)
            if not self._leaf.casts(array.type):
                return self.build(array.to_pylist())
            array = self._leaf.cast(array, self._arrow)
        array.validate()  # in full it would read every byte, to find what pyarrow itself never makes
        self._leaf.check(array)
        return array

    def explain(self, value: object) -> Blame:
        reason = "the value does not fit"
        try:
            self.build([value])
        except Refused as refusal:
            reason = str(refusal)
        except _MISFITS:
            pass  # what pyarrow says is about its own types
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        return Blame("", value, f"{reason}; {self._name} takes {self._leaf.takes}")


def fits(action: Callable[[Any], object], values: Any) -> bool:
    """Whether `action` takes the values.

    Any exception is a no, but for one: foreign code may run in it, that of a `tzinfo` or a property.
    """
    try:
        action(values)
    except MemoryError:
        raise
    except Exception:
        return False
    return True


def misfits(action: Callable[[Any], object], values: Any, first: int = 0) -> Iterator[int]:
    """The places of what `action` does not take, by halves: where few are bad, few tries find them."""
    if len(values) == 0 or fits(action, values):
        return
    if len(values) == 1:
        yield first
        return
    half = len(values) // 2
    yield from misfits(action, values[:half], first)
    yield from misfits(action, values[half:], first + half)


def spread(dense: pa.Array, valid: Iterable[bool] | pa.Array) -> pa.Array:
    """The values with nulls between them: `valid` says where a value is."""
    mask = pa.array(valid, pa.bool_())
    places = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return dense.take(pc.if_else(mask, places, None))
