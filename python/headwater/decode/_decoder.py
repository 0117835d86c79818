"""What a decoder is, and which there are."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater._author.schema import arrow_schema, struct_type
from headwater._rows.bad_rows import BadRow
from headwater.decode._beside import Beside
from headwater.decode._json import JsonWay
from headwater.decode._own import OwnWay, function_named
from headwater.decode._plain import BinaryWay, TextWay
from headwater.decode._values import Given, Piece, Way, python_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Decoder", "decoder"]


class Decoder:
    """Makes rows of records. `decoder` makes one.

    >>> ids = decoder("json", "id INT", beside="event STRING")
    >>> good, bad = ids.rows([b'{"id": 1}', b'{"id": "x"}'], event="new")
    >>> print(good, bad.reason)
    (1, 'new') field 'id': INT takes a whole number from -2147483648 to 2147483647
    """

    schema: "StructType"
    """Its columns, and after them those beside."""

    def __init__(self, way: Way, beside: "StructType") -> None:
        from pyspark.sql.types import StructType

        self.schema = StructType([*way.schema.fields, *beside.fields])
        self._arrow = arrow_schema(self.schema)
        self._own_arrow = pa.schema(list(self._arrow)[: len(way.schema.fields)])
        self._way = way
        self._beside = Beside(beside)

    def rows(self, records: Given, **columns: Any) -> Any:
        """What may be yielded, also under one `hw.At`: an Arrow table, or a list of rows and of `hw.BadRow`s.

        `columns` are the values of the columns beside: a list with one for each record, or one for all.
        Records, and columns beside, may also be Arrow arrays. What a record becomes does not depend on those
        that it comes with.
        """
        self._beside.check(columns, len(records))
        pieces = list(self._way.pieces(records))
        tables = [piece for piece in pieces if isinstance(piece, pa.RecordBatch)]
        if len(tables) < len(pieces):
            return self._listed(pieces, columns)
        own = tables[0] if len(tables) == 1 else pa.Table.from_batches(tables, self._own_arrow)
        more = self._beside.arrays(columns, len(records))
        return pa.table([*own.columns, *more], schema=self._arrow)

    def _listed(self, pieces: list[Piece], columns: dict[str, Any]) -> list[Any]:
        rows: list[Any] = []
        columns = self._beside.in_python(columns)
        place = 0
        for piece in pieces:
            if isinstance(piece, pa.RecordBatch):
                for row in python_rows(piece):
                    rows.append((*row, *self._beside.values(columns, place)))
                    place += 1
                continue
            more = self._beside.values(columns, place)
            place += 1
            if isinstance(piece, BadRow):
                rows.append(BadRow(piece.value, piece.reason, (*piece.row, *more)))
            else:
                rows += [(*row, *more) for row in piece]
        return rows


def decoder(
    name: str, schema: "str | StructType | None" = None, *, beside: "str | StructType | None" = None
) -> Decoder:
    """The decoder of that name: `text`, `binary`, `json`, or a function as `package.module:function`.

    `json` and a function need a schema, DDL or a StructType; the others have one. `beside` are columns after
    those, whose values the source gives with the records. ValueError where something of it cannot be.

    >>> print(decoder("text").schema.simpleString())
    struct<data:string>
    >>> print(decoder("json", "id INT, name STRING").rows([b'{"id": 1, "name": "one"}']).to_pylist())
    [{'id': 1, 'name': 'one'}]
    """
    from pyspark.sql.types import StructType

    way = _way(name, schema)
    more = _struct_type(beside, "beside") if beside else StructType([])
    seen: set[str] = set()
    for column in [*way.schema.names, *more.names]:
        if column.lower() in seen:
            raise ValueError(f"the column {column!r} is there twice; names must differ, ignoring case")
        seen.add(column.lower())
    return Decoder(way, more)


def _way(name: str, schema: "str | StructType | None") -> Way:
    if name in ("text", "binary"):
        way: Way = TextWay() if name == "text" else BinaryWay()
        if schema is not None:
            raise ValueError(f"decode={name!r} gives the column {way.schema.names[0]!r}, and takes no schema")
        return way
    if name != "json" and ":" not in name:
        raise ValueError(
            f"decode={name!r} is unknown; it must be text, binary, json, or a function of yours as "
            "package.module:function"
        )
    if schema is None:
        raise ValueError(f"decode={name!r} needs a schema, such as 'id LONG, name STRING'")
    columns = _struct_type(schema, "schema")
    return JsonWay(columns) if name == "json" else OwnWay(columns, function_named(name))


def _struct_type(schema: "str | StructType", what: str) -> "StructType":
    try:
        found = struct_type(schema)
        arrow_schema(found)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    return found
