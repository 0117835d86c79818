"""Spark's DDL of a schema, read and written without Spark: its own parser needs a running JVM."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from headwater._author.ddl_tokens import Token, name_as_ddl, text_as_ddl, tokens
from headwater._author.ddl_types import PLAIN, collation, interval, sized, type_as_ddl, type_names

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

__all__ = ["parse", "to_ddl"]


def parse(text: str) -> "StructType":
    """The schema that `text` describes; a ValueError says what is wrong, where, and what is allowed.

    >>> parse("id BIGINT NOT NULL, name STRING COMMENT 'as given'").names
    ['id', 'name']
    """
    try:
        return _Parser(text).schema()
    except RecursionError:
        raise ValueError("the types of this schema are nested too deeply") from None


def to_ddl(schema: "StructType") -> str:
    """The way back: `parse(to_ddl(schema))` is `schema` again, but for what DDL cannot say.

    That is metadata other than comments, and that an array's elements or a map's values are never null.
    """
    return ", ".join(_field_as_ddl(field, " ") for field in schema.fields)


def _field_as_ddl(field: "StructField", colon: str) -> str:
    text = f"{name_as_ddl(field.name)}{colon}{type_as_ddl(field.dataType, _field_as_ddl)}"
    comment = (field.metadata or {}).get("comment")
    text += "" if field.nullable else " NOT NULL"
    return text if comment is None else f"{text} COMMENT {text_as_ddl(comment)}"


class _Parser:
    """Reads the tokens from left to right; each method takes what it is named after."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text, self._fail)
        self._next = 0

    def schema(self) -> "StructType":
        """All of the text: columns, or one `struct<…>`, which is how Spark itself prints a schema."""
        if self._tokens[0].word == "STRUCT" and self._tokens[1].text in ("<", "<>"):
            self._advance()
            whole = self._struct()
        else:
            whole = self._fields(end="")
        if self._token.text:
            self._unexpected("the end, or a ',' and the next column")
        return whole

    def _fields(self, end: str) -> "StructType":
        from pyspark.sql.types import StructType

        fields: list[StructField] = []
        while not fields or self._took(","):
            if self._token.text == end:
                self._unexpected("a column: its name and its type")
            place = self._token
            fields.append(self._field())
            if fields[-1].name.lower() in [field.name.lower() for field in fields[:-1]]:
                self._fail(
                    place, f"the name {fields[-1].name!r} is there twice; names must differ, ignoring case"
                )
        return StructType(fields)

    def _field(self) -> "StructField":
        from pyspark.sql.types import StructField

        name = self._name()
        self._took(":")
        kind, nullable, metadata = self._type(), True, {}
        if self._took("NOT"):
            self._take("NULL")
            nullable = False
        if self._took("COMMENT"):
            metadata = {"comment": self._string()}
        return StructField(name, kind, nullable, metadata)

    def _name(self) -> str:
        if self._token.kind not in ("word", "quoted"):
            self._unexpected("the name of a column (letters, digits and _, or anything in `back quotes`)")
        return self._advance().value

    def _string(self) -> str:
        if self._token.kind != "string":
            self._unexpected("the comment, in quotes")
        return self._advance().value

    def _type(self) -> "DataType":
        place = self._token
        if place.kind != "word":
            self._unexpected(f"a type: {type_names()}")
        word = self._advance().word
        if word in PLAIN:
            return PLAIN[word]()
        readers: dict[str, Callable[[], DataType]] = {
            "ARRAY": self._array,
            "MAP": self._map,
            "STRUCT": self._struct,
            "INTERVAL": lambda: interval(self._units(), lambda why: self._fail(place, why)),
            "STRING": lambda: collation(self._collation(), lambda why: self._fail(place, why)),
        }
        if word in readers:
            return readers[word]()
        kind = sized(word, self._numbers(), lambda why: self._fail(place, why))
        if kind is None:
            self._fail(place, f"unknown type {place.text!r}; a type is one of {type_names()}")
        return kind

    def _array(self) -> "DataType":
        from pyspark.sql.types import ArrayType

        self._take("<")
        element = self._type()
        self._take(">")
        return ArrayType(element)

    def _map(self) -> "DataType":
        from pyspark.sql.types import MapType

        self._take("<")
        key = self._type()
        self._take(",")
        value = self._type()
        self._take(">")
        return MapType(key, value)

    def _struct(self) -> "StructType":
        from pyspark.sql.types import StructType

        if self._took("<>"):
            return StructType([])
        self._take("<")
        fields = StructType([]) if self._token.text == ">" else self._fields(end=">")
        self._take(">")
        return fields

    def _units(self) -> list[str]:
        """`YEAR TO MONTH` → both, `DAY` → one, nothing → none. Other words belong to what follows."""
        if self._token.word not in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"):
            return []
        units = [self._advance().word]
        if self._took("TO"):
            units.append(self._advance().word)
        return units

    def _collation(self) -> str | None:
        return self._name() if self._took("COLLATE") else None

    def _numbers(self) -> list[int]:
        numbers: list[int] = []
        if self._took("("):
            while not numbers or self._took(","):
                if not re.fullmatch("[0-9]{1,9}", self._token.text):
                    self._unexpected("a whole number")
                numbers.append(int(self._advance().text))
            self._take(")")
        return numbers

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _advance(self) -> Token:
        token = self._token
        if token.kind != "end":
            self._next += 1
        return token

    def _took(self, what: str) -> bool:
        found = self._token.kind in ("word", "mark") and self._token.word == what
        if found:
            self._next += 1
        return found

    def _take(self, what: str) -> None:
        if not self._took(what):
            self._unexpected(f"'{what}'")

    def _unexpected(self, wanted: str) -> NoReturn:
        found = repr(self._token.text) if self._token.text else "the end"
        self._fail(self._token, f"found {found} in the schema, expected {wanted}")

    def _fail(self, place: Token, what: str) -> NoReturn:
        before, after = self._text[: place.start], self._text[place.start :]
        line = before.rpartition("\n")[2][-60:]
        shown = line + after.partition("\n")[0][:60]
        raise ValueError(f"{what}\n  {shown}\n  {' ' * len(line)}^")
