"""What arrays, maps and structs take of JSON: what their parts take."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater._rows.column import spread
from headwater.decode._shapes import Misfit, Shape, leaf_shape

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["Repeated", "as_object", "shape", "take_field"]


class Repeated(dict[str, Any]):
    """An object of JSON that has some names more than once: which value counts, nobody has said."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.names = {name for name in self if names.count(name) > 1}


def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What Python's json makes of an object."""
    made = dict(pairs)
    return made if len(made) == len(pairs) else Repeated(pairs)


def shape(kind: "DataType", arrow: pa.DataType, nullable: bool, path: str) -> Shape:
    """The shape of a Spark type and of the Arrow type that belongs to it; ValueError where JSON has none."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, ArrayType):
        elements = shape(kind.elementType, arrow.value_type, kind.containsNull, f"{path}[]")
        return _Arrays(arrow, nullable, elements)
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            what = kind.keyType.simpleString().upper()
            raise ValueError(f"column {path!r} is a MAP with keys of type {what}; those of JSON are STRING")
        values = shape(kind.valueType, arrow.item_type, kind.valueContainsNull, f"{path}.value")
        return _Maps(arrow, nullable, leaf_shape(kind.keyType, arrow.key_type, False, path), values)
    if isinstance(kind, StructType):
        parts = {
            field.name: shape(field.dataType, arrow[i].type, field.nullable, f"{path}.{field.name}")
            for i, field in enumerate(kind.fields)
        }
        return _Structs(arrow, nullable, parts)
    return leaf_shape(kind, arrow, nullable, path)


def take_field(name: str, part: Shape, value: dict[str, Any], *, whole: bool = False) -> Any:
    """What that field of an object is as a carrier. One that is not there is a null."""
    try:
        if type(value) is Repeated and name in value.names:
            raise Misfit("it is there more than once")
        return part.take(value.get(name), whole=whole)
    except Misfit as misfit:
        raise misfit.within(f".{name}") from None


def _carrier(field: pa.Field, part: Shape) -> pa.Field:
    """Nulls are looked for later."""
    return field.with_type(part.carrier).with_nullable(True)


class _Nested(Shape):
    """What the three share: nulls are set aside for the second step."""

    def __init__(self, arrow: pa.DataType, carrier: pa.DataType, nullable: bool, *parts: Shape) -> None:
        super().__init__(nullable)
        self.carrier = carrier
        self.is_fast = all(part.is_fast for part in parts)
        self.has_decimal = any(part.has_decimal for part in parts)
        self.is_done = all(part.is_done for part in parts)
        self.is_settled = nullable and carrier == arrow and all(part.is_settled for part in parts)

    def finish(self, array: pa.Array) -> pa.Array:
        if self.is_done:
            return array
        if array.null_count:
            return spread(self._finish(array.drop_null()), array.is_valid())
        return self._finish(array)

    def _finish(self, array: pa.Array) -> pa.Array:
        raise NotImplementedError


class _Arrays(_Nested):
    def __init__(self, arrow: pa.DataType, nullable: bool, elements: Shape) -> None:
        carrier = pa.list_(_carrier(arrow.value_field, elements))
        super().__init__(arrow, carrier, nullable, elements)
        self._elements = elements

    def _take(self, value: Any, whole: bool) -> Any:
        if type(value) is not list:
            raise Misfit("an ARRAY takes an array")
        taken = []
        for i, element in enumerate(value):
            try:
                taken.append(self._elements.take(element, whole=whole))
            except Misfit as misfit:
                raise misfit.within(f"[{i}]") from None
        return taken

    def _finish(self, array: pa.Array) -> pa.Array:
        return pa.ListArray.from_arrays(array.offsets, self._elements.finish(array.values))


class _Maps(_Nested):
    def __init__(self, arrow: pa.DataType, nullable: bool, keys: Shape, values: Shape) -> None:
        super().__init__(arrow, pa.map_(keys.carrier, values.carrier), nullable, keys, values)
        self._keys = keys
        self._values = values
        self.is_fast = False  # pyarrow reads maps as arrays of pairs

    def _take(self, value: Any, whole: bool) -> Any:
        if not isinstance(value, dict):
            raise Misfit("a MAP takes an object")
        if type(value) is Repeated:
            raise Misfit(f"the key {min(value.names)!r} is there more than once")
        taken = []
        for key, item in value.items():
            try:
                taken.append((self._keys.take(key), self._values.take(item, whole=whole)))
            except Misfit as misfit:
                raise misfit.within(f"[{key!r}]") from None
        return dict(taken) if whole else taken

    def _finish(self, array: pa.Array) -> pa.Array:
        return pa.MapArray.from_arrays(array.offsets, array.keys, self._values.finish(array.items))


class _Structs(_Nested):
    def __init__(self, arrow: pa.DataType, nullable: bool, parts: dict[str, Shape]) -> None:
        carrier = pa.struct([_carrier(arrow[i], part) for i, part in enumerate(parts.values())])
        super().__init__(arrow, carrier, nullable, *parts.values())
        self._parts = parts

    def _take(self, value: Any, whole: bool) -> Any:
        if not isinstance(value, dict):
            raise Misfit("a STRUCT takes an object")
        return {name: take_field(name, part, value, whole=whole) for name, part in self._parts.items()}

    def _finish(self, array: pa.Array) -> pa.Array:
        columns = zip(self._parts.values(), array.flatten(), strict=True)
        return pa.StructArray.from_arrays([part.finish(a) for part, a in columns], names=list(self._parts))
