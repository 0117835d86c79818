"""What decoders share: what they make of records, and what rows are in Python."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.types as at

from headwater._rows.bad_rows import BadRow

__all__ = ["Given", "Piece", "Way", "one_by_one", "python_rows", "python_value"]

Given: TypeAlias = Sequence[bytes] | pa.Array
"""Records one by one, or as a column: of binaries, or of strings, which are known to be in UTF-8 then."""

Piece: TypeAlias = pa.RecordBatch | BadRow | list[tuple[Any, ...]]
"""Of several records a row each; of one that is bad; of one that gave so many rows."""


class Way(Protocol):
    """How records become rows."""

    schema: Any

    def pieces(self, records: Given) -> Iterator[Piece]:
        """In the order of the records. What becomes of a record does not depend on those around it."""


def one_by_one(records: Given) -> Sequence[bytes]:
    if not isinstance(records, pa.Array):
        return records
    found: list[bytes] = records.cast(pa.binary()).to_pylist()
    return found


def python_rows(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    columns = [
        [python_value(value) for value in array] if _has_map(array.type) else array.to_pylist()
        for array in batch.columns
    ]
    return list(zip(*columns, strict=True))


def python_value(scalar: Any) -> Any:
    """As a row has it: a map is a dict, also where pyarrow would give pairs."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if at.is_map(kind):
        return {python_value(entry[0]): python_value(entry[1]) for entry in scalar.values}
    if at.is_struct(kind):
        return {kind[i].name: python_value(scalar[i]) for i in range(kind.num_fields)}
    if at.is_list(kind):
        return [python_value(item) for item in scalar.values]
    return scalar.as_py()


def _has_map(kind: pa.DataType) -> bool:
    return bool(at.is_map(kind)) or any(_has_map(kind.field(i).type) for i in range(kind.num_fields))
