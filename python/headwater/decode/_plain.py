"""`text` and `binary`: a record is one value."""

from collections.abc import Iterator

import pyarrow as pa

from headwater._author.schema import arrow_schema, struct_type
from headwater._rows.bad_rows import BadRow
from headwater.decode._values import Given, Piece, one_by_one

__all__ = ["BinaryWay", "TextWay"]


class BinaryWay:
    """Records as they are."""

    def __init__(self) -> None:
        self.schema = struct_type("data BINARY")
        self._arrow = arrow_schema(self.schema)

    def pieces(self, records: Given) -> Iterator[Piece]:
        yield pa.RecordBatch.from_arrays([_column(records).cast(pa.binary())], schema=self._arrow)


class TextWay:
    """Records in UTF-8."""

    def __init__(self) -> None:
        self.schema = struct_type("data STRING")
        self._arrow = arrow_schema(self.schema)

    def pieces(self, records: Given) -> Iterator[Piece]:
        try:
            texts = _column(records).cast(pa.string())
        except pa.ArrowInvalid:
            for record in one_by_one(records):
                yield self._one(record)
        else:
            yield pa.RecordBatch.from_arrays([texts], schema=self._arrow)

    def _one(self, record: bytes) -> Piece:
        try:
            return [(record.decode(),)]
        except UnicodeDecodeError as error:
            why = f"it is not in UTF-8: {error.reason} at byte {error.start}"
            return BadRow(record, why, (None,))


def _column(records: Given) -> pa.Array:
    return records if isinstance(records, pa.Array) else pa.array(records, pa.binary())
