"""Columns that a source itself adds to those of a decoder: ids, times of arrival, headers."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater._author.schema import arrow_schema
from headwater._rows.column import Column, fits
from headwater._rows.nested import column
from headwater.decode._values import python_value

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Beside"]

_EACH = list | pa.Array  # has a value for each record


class Beside:
    """The columns of one schema. Their values come with the records: a list or an array, or one for all."""

    def __init__(self, schema: "StructType") -> None:
        self.names = list(schema.names)
        arrow = arrow_schema(schema).types
        self._columns = {
            field.name: column(field.dataType, arrow[i], field.nullable)
            for i, field in enumerate(schema.fields)
        }

    def check(self, given: dict[str, Any], records: int) -> None:
        """TypeError or ValueError where that is not what the columns need."""
        if set(given) != set(self.names):
            said = ", ".join(given) or "none"
            raise TypeError(f"the columns beside are {', '.join(self.names) or 'none'}; given are {said}")
        for name, values in given.items():
            if isinstance(values, _EACH) and len(values) != records:
                raise ValueError(f"column {name!r} has {len(values)} values for {records} records")

    def arrays(self, given: dict[str, Any], records: int) -> list[pa.Array]:
        return [_array(name, kind, given[name], records) for name, kind in self._columns.items()]

    def values(self, given: dict[str, Any], place: int) -> tuple[Any, ...]:
        """Those of one record. Not for arrays."""
        found = (given[name] for name in self.names)
        return tuple(values[place] if isinstance(values, list) else values for values in found)

    def in_python(self, given: dict[str, Any]) -> dict[str, Any]:
        """The same with lists for arrays."""
        return {name: _listed(v) if isinstance(v, pa.Array) else v for name, v in given.items()}


def _array(name: str, kind: Column, values: Any, records: int) -> pa.Array:
    if isinstance(values, pa.Array):
        if fits(kind.cast, values):
            return kind.cast(values)
        values = _listed(values)
    several = values if isinstance(values, list) else [values]
    try:
        array = kind.build(several)
    except Exception:
        blame = next(kind.explain(value) for value in several if not fits(kind.build, [value]))
        raise ValueError(f"column {name!r}: {blame.reason} (found: {blame.value!r})") from None
    return array if isinstance(values, list) else pa.repeat(array[0], records)


def _listed(array: pa.Array) -> list[Any]:
    return [python_value(value) for value in array]
