"""`decoder()` and `Decoder`, with which sources turn records into rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.decode.json import JsonDecoder
from headwater.decode.metadata import MetadataColumns, python_rows
from headwater.decode.records import (
    BinaryDecoder,
    CustomDecoder,
    DecodedPart,
    RecordDecoder,
    Records,
    TextDecoder,
    import_function,
)
from headwater.rows.validated import ValidatedTables
from headwater.schema import arrow_schema, struct_type
from headwater.source import BadRow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Decoder", "decoder"]


def decoder(
    name: str, schema: str | StructType | None = None, *, beside: str | StructType | None = None
) -> Decoder:
    """Creates a decoder: `text`, `binary`, `json`, or a function as `package.module:function`.

    `json` and a function need a schema, as DDL or a StructType; `text` and `binary` have their own. `beside`
    declares metadata columns, which follow the decoded ones; the source passes their values with the records.
    Raises ValueError for an unknown name and for an invalid schema.

    >>> print(decoder("text").schema.simpleString())
    struct<data:string>
    >>> print(decoder("json", "id INT, name STRING").rows([b'{"id": 1, "name": "one"}']).to_pylist())
    [{'id': 1, 'name': 'one'}]
    """
    from pyspark.sql.types import StructType

    record_decoder = _record_decoder(name, schema)
    metadata = _parse_schema(beside, "beside") if beside else StructType([])
    seen: set[str] = set()
    for column in [*record_decoder.schema.names, *metadata.names]:
        if column.lower() in seen:
            raise ValueError(f"duplicate column {column!r}; names must differ, ignoring case")
        seen.add(column.lower())
    return Decoder(record_decoder, metadata)


def _record_decoder(name: str, schema: str | StructType | None) -> RecordDecoder:
    if name in ("text", "binary"):
        if schema is not None:
            raise ValueError(f"decode={name!r} takes no schema; its only column is 'data'")
        return TextDecoder() if name == "text" else BinaryDecoder()
    if name != "json" and ":" not in name:
        raise ValueError(
            f"decode={name!r} is unknown; it must be text, binary, json, or a function as "
            "package.module:function"
        )
    if schema is None:
        raise ValueError(f"decode={name!r} needs a schema, such as 'id LONG, name STRING'")
    columns = _parse_schema(schema, "schema")
    return JsonDecoder(columns) if name == "json" else CustomDecoder(columns, import_function(name))


def _parse_schema(schema: str | StructType, option: str) -> StructType:
    try:
        columns = struct_type(schema)
        arrow_schema(columns)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
    return columns


class Decoder:
    """Decodes records to rows. Create one with `decoder`.

    >>> ids = decoder("json", "id INT", beside="event STRING")
    >>> good, bad = ids.rows([b'{"id": 1}', b'{"id": "x"}'], event="new")
    >>> print(good, bad.reason)
    (1, 'new') field 'id': INT accepts an integer from -2147483648 to 2147483647
    """

    schema: StructType
    """The decoded columns, followed by the metadata columns."""

    def __init__(self, record_decoder: RecordDecoder, metadata: StructType) -> None:
        from pyspark.sql.types import StructType

        self.schema = StructType([*record_decoder.schema.fields, *metadata.fields])
        self._arrow_schema = arrow_schema(self.schema)
        self._decoded_schema = arrow_schema(record_decoder.schema)
        self._record_decoder = record_decoder
        self._metadata = MetadataColumns(metadata)
        self._validated = ValidatedTables(self.schema)

    def rows(self, records: Records, **columns: Any) -> Any:
        """Rows to yield, also in one `hw.At`: an Arrow table, or a list that may contain `hw.BadRow`s.

        `columns` are the values of the metadata columns: a list with one value for each record, or one value
        for all. Records and metadata columns may also be Arrow arrays. Each record is decoded independently
        of the others.
        """
        self._metadata.check(columns, len(records))
        parts = list(self._record_decoder.decode(records))
        batches = [part for part in parts if isinstance(part, pa.RecordBatch)]
        if len(batches) < len(parts):
            return self._to_list(parts, self._metadata.rows(columns, len(records)))
        decoded = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches, self._decoded_schema)
        metadata = self._metadata.arrays(columns, len(records))
        table = pa.table([*decoded.columns, *metadata], schema=self._arrow_schema)
        return self._validated.add(table)  # every column was built to its type

    def _to_list(self, parts: list[DecodedPart], metadata: list[tuple[Any, ...]]) -> list[Any]:
        rows: list[Any] = []
        remaining = iter(metadata)  # one for each record
        for part in parts:
            if isinstance(part, pa.RecordBatch):
                rows += [(*row, *next(remaining)) for row in python_rows(part)]
            elif isinstance(part, BadRow):
                rows.append(BadRow(part.value, part.reason, (*part.row, *next(remaining))))
            else:
                values = next(remaining)
                rows += [(*row, *values) for row in part]
        return rows
