"""`text` and `binary`: a record is one value."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from headwater._author.schema import arrow_schema, struct_type
from headwater._rows.bad_rows import BadRow
from headwater.decode._values import Piece

__all__ = ["BinaryWay", "TextWay"]


class BinaryWay:
    """Records as they are."""

    def __init__(self) -> None:
        self.schema = struct_type("data BINARY")
        self._arrow = arrow_schema(self.schema)

    def pieces(self, records: Sequence[bytes]) -> Iterator[Piece]:
        yield pa.RecordBatch.from_arrays([pa.array(records, pa.binary())], schema=self._arrow)


class TextWay:
    """Records in UTF-8."""

    def __init__(self) -> None:
        self.schema = struct_type("data STRING")
        self._arrow = arrow_schema(self.schema)

    def pieces(self, records: Sequence[bytes]) -> Iterator[Piece]:
        try:
            texts = pa.array(records, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            for record in records:
                yield self._one(record)
        else:
            yield pa.RecordBatch.from_arrays([texts], schema=self._arrow)

    def _one(self, record: bytes) -> Piece:
        try:
            return [(record.decode(),)]
        except UnicodeDecodeError as error:
            why = f"it is not in UTF-8: {error.reason} at byte {error.start}"
            return BadRow(record, why, (None,))
