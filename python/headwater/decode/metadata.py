"""Metadata columns, which stand beside the decoded ones: when a record arrived, its id, its headers, …"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as at

from headwater.rows.columns import Column, accepts, column
from headwater.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["MetadataColumns", "python_rows"]


class MetadataColumns:
    """Columns whose values come with the records: a list or an array, or one value for all records."""

    def __init__(self, schema: StructType) -> None:
        self._columns = {
            field.name: column(field.dataType, arrow, field.nullable)
            for field, arrow in zip(schema.fields, arrow_schema(schema).types, strict=True)
        }

    def check(self, values: dict[str, Any], records: int) -> None:
        """TypeError for missing or unknown columns, ValueError for a wrong number of values."""
        if values.keys() != self._columns.keys():
            raise TypeError(
                f"expected metadata columns: {', '.join(self._columns) or 'none'}; got: "
                f"{', '.join(values) or 'none'}"
            )
        for name, value in values.items():
            if isinstance(value, list | pa.Array) and len(value) != records:
                raise ValueError(f"column {name!r} has {len(value)} values for {records} records")

    def arrays(self, values: dict[str, Any], records: int) -> list[pa.Array]:
        return [_to_array(name, kind, values[name], records) for name, kind in self._columns.items()]

    def rows(self, values: dict[str, Any], records: int) -> list[tuple[Any, ...]]:
        """The values of each record."""
        if not self._columns:
            return [()] * records
        columns = [_to_list(values[name], records) for name in self._columns]
        return list(zip(*columns, strict=True))


def _to_array(name: str, kind: Column, value: Any, records: int) -> pa.Array:
    if isinstance(value, pa.Array):
        if accepts(kind.cast, value):
            return kind.cast(value)
        value = _to_list(value, records)
    values = value if isinstance(value, list) else [value]
    try:
        array = kind.build(values)
    except Exception:
        error = next(kind.explain(value) for value in values if not accepts(kind.build, [value]))
        raise ValueError(f"column {name!r}: {error.reason} (found: {error.value!r})") from None
    return array if isinstance(value, list) else pa.repeat(array[0], records)


def _to_list(value: Any, records: int) -> list[Any]:
    if isinstance(value, pa.Array):
        return [_to_python(scalar) for scalar in value]
    return value if isinstance(value, list) else [value] * records


def python_rows(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """The rows of a batch, as a source may yield them."""
    columns = [
        [_to_python(scalar) for scalar in array] if _has_map(array.type) else array.to_pylist()
        for array in batch.columns
    ]
    return list(zip(*columns, strict=True))


def _to_python(scalar: Any) -> Any:
    """As a row has it: a map is a dict, where pyarrow's `as_py` makes a list of pairs."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if at.is_map(kind):
        return {_to_python(entry[0]): _to_python(entry[1]) for entry in scalar.values}
    if at.is_struct(kind):
        return {kind[i].name: _to_python(scalar[i]) for i in range(kind.num_fields)}
    if at.is_list(kind):
        return [_to_python(item) for item in scalar.values]
    return scalar.as_py()


def _has_map(kind: pa.DataType) -> bool:
    return bool(at.is_map(kind)) or any(_has_map(kind.field(i).type) for i in range(kind.num_fields))
