"""Columns of arrays, maps and structs: made of the columns of their parts, whole columns at a time."""

from collections.abc import Iterable, Mapping
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as at

from headwater._rows.bad_rows import Blame, Refused
from headwater._rows.column import NULL, Column, PlainColumn, Values, fits, spread
from headwater._rows.records import Records

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["column"]

Parts = Iterable[tuple[str, object, Column]]


def column(kind: "DataType", arrow: pa.DataType, nullable: bool) -> Column:
    """The column of a Spark type and of the Arrow type that belongs to it."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return _Arrays(arrow, nullable, column(kind.elementType, arrow.value_type, kind.containsNull))
    if isinstance(kind, MapType):
        keys = column(kind.keyType, arrow.key_type, False)
        return _Maps(arrow, nullable, keys, column(kind.valueType, arrow.item_type, kind.valueContainsNull))
    if isinstance(kind, StructType):
        kinds = [field.dataType for field in kind.fields]
        children = [column(part, arrow[i].type, arrow[i].nullable) for i, part in enumerate(kinds)]
        return _Structs(arrow, nullable, dict(zip(kind.names, children, strict=True)))
    return PlainColumn(kind, arrow, nullable)


class _Nested:
    """What the three share: nulls are set aside, and the others come apart."""

    def __init__(self, arrow: pa.DataType, nullable: bool) -> None:
        self.nullable = nullable
        self._arrow = arrow

    def build(self, values: Values) -> pa.Array:
        if type(None) not in set(map(type, values)):
            return self._build(values)
        if not self.nullable:
            raise Refused(NULL)
        dense = self._build([value for value in values if value is not None])
        return spread(dense, [value is not None for value in values])

    def cast(self, array: pa.Array) -> pa.Array:
        if array.null_count and not self.nullable:
            raise Refused(NULL)
        if array.null_count == len(array):
            return pa.nulls(len(array), self._arrow)
        if not self._casts(array.type):
            raise Refused(f"Arrow's {array.type} does not fit {self._arrow}")
        if array.null_count:
            return spread(self._cast(array.drop_null()), array.is_valid())
        return self._cast(array)

    def explain(self, value: object) -> Blame:
        try:
            if value is None:
                raise Refused(NULL)
            parts = list(self._parts(value))
        except Refused as refusal:
            return Blame("", value, str(refusal))
        for path, part, child in parts:
            if not fits(child.build, [part]):
                inner = child.explain(part)
                return inner._replace(path=path + inner.path)
        return Blame("", value, "the value does not fit")

    def _build(self, values: Values) -> pa.Array:
        raise NotImplementedError

    def _casts(self, source: pa.DataType) -> bool:
        raise NotImplementedError

    def _cast(self, array: pa.Array) -> pa.Array:
        raise NotImplementedError

    def _parts(self, value: object) -> Parts:
        raise NotImplementedError


class _Arrays(_Nested):
    def __init__(self, arrow: pa.DataType, nullable: bool, elements: Column) -> None:
        super().__init__(arrow, nullable)
        self._elements = elements

    def _build(self, values: Values) -> pa.Array:
        lists = _of_kinds(values, (list, tuple), "an ARRAY takes a list or a tuple")
        elements = self._elements.build(list(chain.from_iterable(lists)))
        return pa.ListArray.from_arrays(_offsets(map(len, lists)), elements, type=self._arrow)

    def _casts(self, source: pa.DataType) -> bool:
        kinds = (at.is_list, at.is_large_list, at.is_fixed_size_list, at.is_list_view, at.is_large_list_view)
        return any(is_kind(source) for is_kind in kinds)

    def _cast(self, array: pa.Array) -> pa.Array:
        elements, lengths = self._elements.cast(array.flatten()), pc.list_value_length(array)
        return pa.ListArray.from_arrays(_offsets(lengths.to_pylist()), elements, type=self._arrow)

    def _parts(self, value: object) -> Parts:
        (elements,) = _of_kinds([value], (list, tuple), "an ARRAY takes a list or a tuple")
        return ((f"[{i}]", element, self._elements) for i, element in enumerate(elements))


class _Maps(_Nested):
    def __init__(self, arrow: pa.DataType, nullable: bool, keys: Column, values: Column) -> None:
        super().__init__(arrow, nullable)
        self._keys = keys
        self._values = values

    def _build(self, values: Values) -> pa.Array:
        maps = _of_kinds(values, (dict,), "a MAP takes a dict")
        keys = self._keys.build(list(chain.from_iterable(maps)))
        items = self._values.build(list(chain.from_iterable(map(dict.values, maps))))
        return pa.MapArray.from_arrays(_offsets(map(len, maps)), keys, items, type=self._arrow)

    def _casts(self, source: pa.DataType) -> bool:
        return bool(at.is_map(source))

    def _cast(self, array: pa.Array) -> pa.Array:
        # A slice of a map array still has the keys and items of all of it.
        places = array.offsets.to_pylist()
        keys, items = (part.slice(places[0], places[-1] - places[0]) for part in (array.keys, array.items))
        offsets = pa.array([place - places[0] for place in places], pa.int32())
        return pa.MapArray.from_arrays(
            offsets, self._keys.cast(keys), self._values.cast(items), type=self._arrow
        )

    def _parts(self, value: object) -> Parts:
        (pairs,) = _of_kinds([value], (dict,), "a MAP takes a dict")
        for key, item in pairs.items():
            yield ".key", key, self._keys
            yield f"[{key!r}]", item, self._values


class _Structs(_Nested):
    def __init__(self, arrow: pa.DataType, nullable: bool, children: Mapping[str, Column]) -> None:
        super().__init__(arrow, nullable)
        self._children = children
        self._records = Records(list(children))

    def _build(self, values: Values) -> pa.Array:
        columns = zip(self._children.values(), self._records.split(values), strict=True)
        return self._of_arrays([child.build(part) for child, part in columns])

    def _casts(self, source: pa.DataType) -> bool:
        return bool(at.is_struct(source))

    def _cast(self, array: pa.Array) -> pa.Array:
        names = [field.name for field in array.type]
        found = dict(zip(names, array.flatten(), strict=True))
        self._records.check_keys(names)
        nothing = pa.nulls(len(array))
        return self._of_arrays(
            [child.cast(found.get(name, nothing)) for name, child in self._children.items()]
        )

    def _of_arrays(self, arrays: list[pa.Array]) -> pa.Array:
        return pa.StructArray.from_arrays(arrays, fields=list(self._arrow))

    def _parts(self, value: object) -> Parts:
        columns = zip(self._children.items(), self._records.split([value]), strict=True)
        return [(f".{name}", part[0], child) for (name, child), part in columns]


def _of_kinds(values: Values, kinds: tuple[type, ...], wanted: str) -> "list[Any]":
    """The values, all of these types. A tuple with names is a struct, and no array."""
    for kind in set(map(type, values)):
        if not issubclass(kind, kinds) or hasattr(kind, "_fields"):
            raise Refused(f"{kind.__name__} does not fit; {wanted}")
    return list(values)


def _offsets(lengths: Iterable[int]) -> pa.Array:
    return pa.array(accumulate(lengths, initial=0), pa.int32())
