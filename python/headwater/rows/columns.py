"""Columns of a schema: Python values or Arrow arrays, converted to arrays of exactly the column's type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as at

from headwater.rows.splitter import RowSplitter
from headwater.rows.values import NOT_NULL, InvalidValueError, Values, plain_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["Column", "PlainColumn", "accepts", "column", "insert_nulls", "invalid_positions"]


class Column(Protocol):
    """A column, or a part of a nested one.

    `build` and `cast` raise an exception if any value does not fit, and do not say which one:
    `invalid_positions` finds it, and `explain` describes it.
    """

    nullable: bool

    def build(self, values: Values) -> pa.Array:
        """Converts Python values."""

    def cast(self, array: pa.Array) -> pa.Array:
        """Converts a valid Arrow array of this type, or of one that can be converted without loss."""

    def explain(self, value: object) -> InvalidValueError:
        """Why `build` raises for this value."""


def column(spark: DataType, arrow: pa.DataType, nullable: bool) -> Column:
    """The column of a Spark type and the Arrow type that belongs to it."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(spark, ArrayType):
        return _ArrayColumn(arrow, nullable, column(spark.elementType, arrow.value_type, spark.containsNull))
    if isinstance(spark, MapType):
        keys = column(spark.keyType, arrow.key_type, False)
        items = column(spark.valueType, arrow.item_type, spark.valueContainsNull)
        return _MapColumn(arrow, nullable, keys, items)
    if isinstance(spark, StructType):
        children = {
            field.name: column(field.dataType, arrow[i].type, field.nullable)
            for i, field in enumerate(spark.fields)
        }
        return _StructColumn(arrow, nullable, children)
    return PlainColumn(spark, arrow, nullable)


def accepts(convert: Callable[[Any], object], values: Any) -> bool:
    """Whether `convert` accepts the values.

    It may run foreign code, for instance of a `tzinfo` or a property, so any exception but one means no.
    """
    try:
        convert(values)
    except MemoryError:
        raise
    except Exception:
        return False
    return True


def invalid_positions(convert: Callable[[Any], object], values: Any, first: int = 0) -> Iterator[int]:
    """The positions of the values that `convert` does not accept, by bisection: usually few are invalid."""
    if len(values) == 0 or accepts(convert, values):
        return
    if len(values) == 1:
        yield first
        return
    half = len(values) // 2
    yield from invalid_positions(convert, values[:half], first)
    yield from invalid_positions(convert, values[half:], first + half)


def insert_nulls(dense: pa.Array, is_valid: Iterable[bool] | pa.Array) -> pa.Array:
    """The values of `dense`, in order, where `is_valid` is true, and nulls elsewhere."""
    mask = pa.array(is_valid, pa.bool_())
    positions = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return dense.take(pc.if_else(mask, positions, None))


class PlainColumn:
    """A column of values without parts."""

    def __init__(self, spark: DataType, arrow: pa.DataType, nullable: bool) -> None:
        self.nullable = nullable
        self._name = spark.simpleString().upper()
        self._arrow = arrow
        self._type = plain_type(spark, arrow)
        self._exact_types = self._type.exact_types | ({type(None)} if nullable else set())

    def build(self, values: Values) -> pa.Array:
        other_types = set(map(type, values)) - self._exact_types
        for kind in other_types:
            if kind is type(None):
                raise InvalidValueError(NOT_NULL)
            if not self._type.accepts_type(kind):
                raise InvalidValueError(f"{kind.__name__} does not fit")
        build = self._type.build_subclasses if other_types else self._type.build
        array = build(values, self._arrow)
        if isinstance(array, pa.ChunkedArray):
            raise InvalidValueError(
                "the values of these rows are larger than 2 GB in total; yield fewer rows at a time"
            )
        self._type.check(array)
        return array

    def cast(self, array: pa.Array) -> pa.Array:
        if at.is_dictionary(array.type):
            array = array.dictionary_decode()
        if array.null_count and not self.nullable:
            raise InvalidValueError(NOT_NULL)
        if array.type != self._arrow:
            if at.is_null(array.type):
                return pa.nulls(len(array), self._arrow)
            if not self._type.accepts_arrow(array.type):
                return self.build(array.to_pylist())
            array = self._type.cast(array, self._arrow)
        self._type.check(array)
        return array

    def explain(self, value: object) -> InvalidValueError:
        reason = "the value does not fit"
        try:
            self.build([value])
        except InvalidValueError as error:
            reason = error.reason
        except (pa.ArrowException, OverflowError, UnicodeError):
            pass  # these messages speak of Arrow's types
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        return InvalidValueError(f"{reason}; {self._name} accepts {self._type.accepts}", value)


Parts = Iterable[tuple[str, object, Column]]
"""Path, value and column of each part of a nested value."""


class _NestedColumn:
    """A column of arrays, maps or structs. Nulls are set aside, the other values are taken apart."""

    def __init__(self, arrow: pa.DataType, nullable: bool) -> None:
        self.nullable = nullable
        self._arrow = arrow

    def build(self, values: Values) -> pa.Array:
        if type(None) not in set(map(type, values)):
            return self._build(values)
        if not self.nullable:
            raise InvalidValueError(NOT_NULL)
        dense = self._build([value for value in values if value is not None])
        return insert_nulls(dense, [value is not None for value in values])

    def cast(self, array: pa.Array) -> pa.Array:
        if array.null_count and not self.nullable:
            raise InvalidValueError(NOT_NULL)
        if array.null_count == len(array):
            return pa.nulls(len(array), self._arrow)
        if not self._accepts_arrow(array.type):
            raise InvalidValueError(f"Arrow type {array.type} does not fit {self._arrow}")
        if array.null_count:
            return insert_nulls(self._cast(array.drop_null()), array.is_valid())
        return self._cast(array)

    def explain(self, value: object) -> InvalidValueError:
        try:
            if value is None:
                raise InvalidValueError(NOT_NULL)
            parts = list(self._parts(value))
        except InvalidValueError as error:
            return InvalidValueError(error.reason, value)
        for path, part, child in parts:
            if not accepts(child.build, [part]):
                return child.explain(part).within(path)
        return InvalidValueError("the value does not fit", value)

    def _build(self, values: Values) -> pa.Array:
        raise NotImplementedError

    def _accepts_arrow(self, arrow: pa.DataType) -> bool:
        raise NotImplementedError

    def _cast(self, array: pa.Array) -> pa.Array:
        raise NotImplementedError

    def _parts(self, value: object) -> Parts:
        raise NotImplementedError


class _ArrayColumn(_NestedColumn):
    def __init__(self, arrow: pa.DataType, nullable: bool, elements: Column) -> None:
        super().__init__(arrow, nullable)
        self._elements = elements

    def _build(self, values: Values) -> pa.Array:
        lists = _check_types(values, (list, tuple), "an ARRAY accepts a list or a tuple")
        elements = self._elements.build(list(chain.from_iterable(lists)))
        return pa.ListArray.from_arrays(_offsets(map(len, lists)), elements, type=self._arrow)

    def _accepts_arrow(self, arrow: pa.DataType) -> bool:
        kinds = (at.is_list, at.is_large_list, at.is_fixed_size_list, at.is_list_view, at.is_large_list_view)
        return any(is_kind(arrow) for is_kind in kinds)

    def _cast(self, array: pa.Array) -> pa.Array:
        elements, lengths = self._elements.cast(array.flatten()), pc.list_value_length(array)
        return pa.ListArray.from_arrays(_offsets(lengths.to_pylist()), elements, type=self._arrow)

    def _parts(self, value: object) -> Parts:
        (elements,) = _check_types([value], (list, tuple), "an ARRAY accepts a list or a tuple")
        return ((f"[{i}]", element, self._elements) for i, element in enumerate(elements))


class _MapColumn(_NestedColumn):
    def __init__(self, arrow: pa.DataType, nullable: bool, keys: Column, items: Column) -> None:
        super().__init__(arrow, nullable)
        self._keys = keys
        self._items = items

    def _build(self, values: Values) -> pa.Array:
        maps = _check_types(values, (dict,), "a MAP accepts a dict")
        keys = self._keys.build(list(chain.from_iterable(maps)))
        items = self._items.build(list(chain.from_iterable(map(dict.values, maps))))
        return pa.MapArray.from_arrays(_offsets(map(len, maps)), keys, items, type=self._arrow)

    def _accepts_arrow(self, arrow: pa.DataType) -> bool:
        return bool(at.is_map(arrow))

    def _cast(self, array: pa.Array) -> pa.Array:
        # A slice of a map array still has the keys and items of the whole array.
        ends = array.offsets.to_pylist()
        keys, items = (part.slice(ends[0], ends[-1] - ends[0]) for part in (array.keys, array.items))
        offsets = pa.array([end - ends[0] for end in ends], pa.int32())
        return pa.MapArray.from_arrays(
            offsets, self._keys.cast(keys), self._items.cast(items), type=self._arrow
        )

    def _parts(self, value: object) -> Parts:
        (pairs,) = _check_types([value], (dict,), "a MAP accepts a dict")
        for key, item in pairs.items():
            yield ".key", key, self._keys
            yield f"[{key!r}]", item, self._items


class _StructColumn(_NestedColumn):
    def __init__(self, arrow: pa.DataType, nullable: bool, children: Mapping[str, Column]) -> None:
        super().__init__(arrow, nullable)
        self._children = children
        self._splitter = RowSplitter(list(children))

    def _build(self, values: Values) -> pa.Array:
        columns = zip(self._children.values(), self._splitter.split(values), strict=True)
        return self._from_arrays([child.build(part) for child, part in columns])

    def _accepts_arrow(self, arrow: pa.DataType) -> bool:
        return bool(at.is_struct(arrow))

    def _cast(self, array: pa.Array) -> pa.Array:
        names = [field.name for field in array.type]
        self._splitter.check_keys(names)
        arrays = dict(zip(names, array.flatten(), strict=True))
        missing = pa.nulls(len(array))
        return self._from_arrays(
            [child.cast(arrays.get(name, missing)) for name, child in self._children.items()]
        )

    def _from_arrays(self, arrays: list[pa.Array]) -> pa.Array:
        return pa.StructArray.from_arrays(arrays, fields=list(self._arrow))

    def _parts(self, value: object) -> Parts:
        columns = zip(self._children.items(), self._splitter.split([value]), strict=True)
        return [(f".{name}", part[0], child) for (name, child), part in columns]


def _check_types(values: Values, types: tuple[type, ...], accepted: str) -> list[Any]:
    """The values, if all have one of the types. A tuple with field names is a struct, not an array."""
    for kind in set(map(type, values)):
        if not issubclass(kind, types) or hasattr(kind, "_fields"):
            raise InvalidValueError(f"{kind.__name__} does not fit; {accepted}")
    return list(values)


def _offsets(lengths: Iterable[int]) -> pa.Array:
    return pa.array(accumulate(lengths, initial=0), pa.int32())
