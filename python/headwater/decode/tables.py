"""`decoder()` and `Decoder`, with which sources turn records into rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.decode.csv import CsvDecoder
from headwater.decode.json import JsonDecoder
from headwater.decode.metadata import MetadataColumns, python_rows
from headwater.decode.msgpack import MsgpackDecoder
from headwater.decode.records import (
    BinaryDecoder,
    CustomDecoder,
    DecodedPart,
    RecordDecoder,
    Records,
    TextDecoder,
    import_function,
)
from headwater.options import parse_query
from headwater.rows.converter import Converter
from headwater.rows.validated import ValidatedTables
from headwater.schema import arrow_schema, struct_type
from headwater.source import BadRow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Decoder", "decoder"]


def decoder(
    name: str, schema: str | StructType | None = None, *, beside: str | StructType | None = None
) -> Decoder:
    """Creates a decoder: `text`, `binary`, `json`, `csv`, `msgpack`, or a function `package.module:function`.

    All but `text` and `binary`, which have their own, need a schema, as DDL or a StructType. `beside`
    declares metadata columns, which follow the decoded ones; the source passes their values with the records.
    Properties follow the name as a query: `csv?sep=;&nullValue=-`. A source that has an option `decode` takes
    each as an option too: `decode.sep`. Raises ValueError for an unknown name and for an invalid schema.

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


def _record_decoder(decode: str, schema: str | StructType | None) -> RecordDecoder:
    name, _, query = decode.partition("?")
    properties = parse_query(query, f"decode={name!r}")
    if properties and name in ("text", "binary", "json"):
        raise ValueError(f"decode={name!r} has no properties; found: {', '.join(properties)}")
    if name in ("text", "binary"):
        if schema is not None:
            raise ValueError(f"decode={name!r} takes no schema; its only column is 'data'")
        return TextDecoder() if name == "text" else BinaryDecoder()
    if name not in ("json", "csv", "msgpack") and ":" not in name:
        raise ValueError(
            f"decode={name!r} is unknown; it must be text, binary, json, csv, msgpack, or a function as "
            "package.module:function"
        )
    if schema is None:
        raise ValueError(f"decode={name!r} needs a schema, such as 'id LONG, name STRING'")
    columns = _parse_schema(schema, "schema")
    if name == "json":
        return JsonDecoder(columns)
    if name == "csv":
        return CsvDecoder(columns, properties)
    if name == "msgpack":
        return MsgpackDecoder(columns, properties)
    return CustomDecoder(columns, import_function(name, properties))


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

    def table(self, records: Records, **columns: Any) -> pa.Table:
        """The same as one Arrow table, or a ValueError that says why the first bad record is bad.

        For a source that rejects records where they come from, instead of passing on a `hw.BadRow`.
        """
        rows = self.rows(records, **columns)
        if isinstance(rows, pa.Table):
            return rows
        batch, _ = Converter(self.schema).from_rows(rows, 0)
        return self._validated.add(pa.Table.from_batches([batch]))

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
