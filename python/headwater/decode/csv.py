"""Decodes CSV records: each is one line, whose fields are the columns, in order."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headwater.decode.json import JsonDecoder
from headwater.decode.json_types import RawNumber
from headwater.decode.records import DecodedPart, Records, not_utf8, to_bytes
from headwater.options import Signature
from headwater.rows.values import InvalidValueError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = ["CsvDecoder"]

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


class CsvDecoder:
    """Splits a line into fields, and reads each as the JSON value that it would be: both accept the same.

    The properties are those of Spark's CSV source with these names, except that a quote within quotes is
    doubled by default, as RFC 4180 has it, and that `header` is about each line.
    """

    def __init__(self, schema: StructType, properties: dict[str, str]) -> None:
        self.schema = schema
        options: Any = Signature.of(_properties, owner="decode='csv'", reserved={}).parse(properties)
        sep, quote, escape = options["sep"], options["quote"], options["escape"]
        for name, value in (("sep", sep), ("quote", quote), ("escape", escape)):
            if len(value) != 1 or value in "\r\n":
                raise ValueError(f"property {name!r} of decode='csv' is {value!r}, it must be one character")
        self._format: dict[str, Any] = {"delimiter": sep, "quotechar": quote, "strict": True}
        self._format |= (
            {"doublequote": True} if escape == quote else {"doublequote": False, "escapechar": escape}
        )
        self._has_header = options["header"]
        self._null_value = options["nullValue"]
        self._columns = {field.name: _to_json(field.dataType, field.name) for field in schema.fields}
        self._rows = JsonDecoder(schema)

    def decode(self, records: Records) -> Iterator[DecodedPart]:
        return self._rows.read(to_bytes(records), self._parse)

    def _parse(self, record: bytes) -> dict[str, Any] | None:
        """The fields by column. None for a blank line and for a header."""
        try:
            line = record.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise InvalidValueError(not_utf8(error)) from None
        if not line.strip():
            return None
        try:
            (fields,) = csv.reader([line], **self._format)
        except csv.Error as error:
            raise InvalidValueError(f"not valid CSV: {error}") from None
        names = list(self._columns)
        if self._has_header and fields == names:
            return None
        if len(fields) != len(names):
            raise InvalidValueError(
                f"the line has {len(fields)} field{'s' if len(fields) != 1 else ''} for {len(names)} columns"
            )
        return {
            name: None if text == self._null_value else self._columns[name](text)
            for name, text in zip(names, fields, strict=True)
        }


def _properties(
    sep: str = ",",
    quote: str = '"',
    escape: str = '"',
    header: bool = False,
    nullValue: str = "",  # noqa: N803
) -> None:
    """The properties and their defaults."""


def _to_json(kind: DataType, name: str) -> Callable[[str], Any]:
    """What makes a field the value that a reader of JSON would have."""
    from pyspark.sql.types import ArrayType, BooleanType, MapType, NumericType, StringType, StructType

    if isinstance(kind, ArrayType | MapType | StructType):
        raise ValueError(
            f"column {name!r} has type {kind.simpleString().upper()}, which CSV cannot represent"
        )
    if isinstance(kind, BooleanType):
        return lambda text: {"true": True, "false": False}.get(text.strip().lower(), text)
    if isinstance(kind, NumericType):
        return _number
    return str if isinstance(kind, StringType) else str.strip


def _number(text: str) -> str:
    number = text.strip()
    return RawNumber(number) if _NUMBER.fullmatch(number) else number
