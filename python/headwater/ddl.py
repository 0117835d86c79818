"""Parses and prints Spark's DDL for schemas without a JVM, which Spark's own parser needs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

__all__ = ["parse", "to_ddl", "type_to_ddl"]


def parse(text: str) -> StructType:
    """The schema that `text` describes. A ValueError says what is wrong, where, and what is allowed.

    >>> parse("id BIGINT NOT NULL, name STRING COMMENT 'as received'").names
    ['id', 'name']
    """
    try:
        return _Parser(text).schema()
    except RecursionError:
        raise ValueError("the types of this schema are nested too deeply") from None


def to_ddl(schema: StructType) -> str:
    """The inverse of `parse`: `parse(to_ddl(schema)) == schema`, except for what DDL cannot express.

    DDL has no metadata other than comments, and cannot say that array elements or map values are never null.
    """
    return ", ".join(_field_to_ddl(field, " ") for field in schema.fields)


def type_to_ddl(kind: DataType) -> str:
    """Like Spark's `simpleString`, but structs keep NOT NULL, comments and quoted names."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return f"ARRAY<{type_to_ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{type_to_ddl(kind.keyType)}, {type_to_ddl(kind.valueType)}>"
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(_field_to_ddl(field, ': ') for field in kind.fields)}>"
    return kind.simpleString().upper()


def _field_to_ddl(field: StructField, separator: str) -> str:
    text = f"{_quote_name(field.name)}{separator}{type_to_ddl(field.dataType)}"
    comment = (field.metadata or {}).get("comment")
    text += "" if field.nullable else " NOT NULL"
    return text if comment is None else f"{text} COMMENT {_quote_string(comment)}"


def _quote_name(name: str) -> str:
    """In back quotes where the parser needs them."""
    needs_no_quotes = re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)
    return name if needs_no_quotes else "`" + name.replace("`", "``") + "`"


def _quote_string(text: str) -> str:
    r"""Escaped as `\'`, not `''`, which Spark 4.0 cannot parse."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class _Parser:
    """A recursive-descent parser: each method consumes what it is named after."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokenize(text, self._fail)
        self._next = 0

    def schema(self) -> StructType:
        """The whole text: columns, or one `struct<…>`, which is how Spark itself prints a schema."""
        if self._tokens[0].word == "STRUCT" and self._tokens[1].text in ("<", "<>"):
            self._advance()
            schema = self._struct()
        else:
            schema = self._fields(end="")
        if self._token.text:
            self._unexpected("the end, or ',' and the next column")
        return schema

    def _fields(self, end: str) -> StructType:
        from pyspark.sql.types import StructType

        fields: list[StructField] = []
        while not fields or self._accept(","):
            if self._token.text == end:
                self._unexpected("a column: its name and its type")
            token = self._token
            fields.append(self._field())
            if fields[-1].name.lower() in [field.name.lower() for field in fields[:-1]]:
                self._fail(
                    token, f"the name {fields[-1].name!r} appears twice; names must differ, ignoring case"
                )
        return StructType(fields)

    def _field(self) -> StructField:
        from pyspark.sql.types import StructField

        name = self._name()
        self._accept(":")
        kind, nullable, metadata = self._type(), True, {}
        if self._accept("NOT"):
            self._expect("NULL")
            nullable = False
        if self._accept("COMMENT"):
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

    def _type(self) -> DataType:
        token = self._token
        if token.kind != "word":
            self._unexpected(f"a type: {_type_names()}")
        word = self._advance().word
        if word in _SIMPLE_TYPES:
            return _new_type(_SIMPLE_TYPES[word])

        def fail(message: str) -> NoReturn:
            self._fail(token, message)

        parsers: dict[str, Callable[[], DataType]] = {
            "ARRAY": self._array,
            "MAP": self._map,
            "STRUCT": self._struct,
            "INTERVAL": lambda: _interval_type(self._units(), fail),
            "STRING": lambda: _string_type(self._collation(), fail),
        }
        if word in parsers:
            return parsers[word]()
        kind = _parameterized_type(word, self._numbers(), fail)
        if kind is None:
            fail(f"unknown type {token.text!r}; a type is one of {_type_names()}")
        return kind

    def _array(self) -> DataType:
        from pyspark.sql.types import ArrayType

        self._expect("<")
        element = self._type()
        self._expect(">")
        return ArrayType(element)

    def _map(self) -> DataType:
        from pyspark.sql.types import MapType

        self._expect("<")
        key = self._type()
        self._expect(",")
        value = self._type()
        self._expect(">")
        return MapType(key, value)

    def _struct(self) -> StructType:
        from pyspark.sql.types import StructType

        if self._accept("<>"):
            return StructType([])
        self._expect("<")
        fields = StructType([]) if self._token.text == ">" else self._fields(end=">")
        self._expect(">")
        return fields

    def _units(self) -> list[str]:
        """`YEAR TO MONTH` → both, `DAY` → one, nothing → none. Any other word belongs to what follows."""
        if self._token.word not in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"):
            return []
        units = [self._advance().word]
        if self._accept("TO"):
            units.append(self._advance().word)
        return units

    def _collation(self) -> str | None:
        return self._name() if self._accept("COLLATE") else None

    def _numbers(self) -> list[int]:
        numbers: list[int] = []
        if self._accept("("):
            while not numbers or self._accept(","):
                if not re.fullmatch("[0-9]{1,9}", self._token.text):
                    self._unexpected("an integer")
                numbers.append(int(self._advance().text))
            self._expect(")")
        return numbers

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _advance(self) -> _Token:
        token = self._token
        if token.kind != "end":
            self._next += 1
        return token

    def _accept(self, what: str) -> bool:
        """Consume that keyword or mark if it comes next."""
        matches = self._token.kind in ("word", "mark") and self._token.word == what
        if matches:
            self._next += 1
        return matches

    def _expect(self, what: str) -> None:
        if not self._accept(what):
            self._unexpected(f"'{what}'")

    def _unexpected(self, expected: str) -> NoReturn:
        actual = repr(self._token.text) if self._token.text else "the end"
        self._fail(self._token, f"found {actual} in the schema, expected {expected}")

    def _fail(self, token: _Token, message: str) -> NoReturn:
        """ValueError with the line of the schema, and a mark below the token."""
        before, after = self._text[: token.start], self._text[token.start :]
        line_start = before.rpartition("\n")[2][-60:]
        line = line_start + after.partition("\n")[0][:60]
        raise ValueError(f"{message}\n  {line}\n  {' ' * len(line_start)}^")


# Types

_Fail = Callable[[str], NoReturn]

_SIMPLE_TYPES = {
    "BOOLEAN": "BooleanType",
    "TINYINT": "ByteType",
    "BYTE": "ByteType",
    "SMALLINT": "ShortType",
    "SHORT": "ShortType",
    "INT": "IntegerType",
    "INTEGER": "IntegerType",
    "BIGINT": "LongType",
    "LONG": "LongType",
    "FLOAT": "FloatType",
    "REAL": "FloatType",
    "DOUBLE": "DoubleType",
    "BINARY": "BinaryType",
    "DATE": "DateType",
    "TIMESTAMP": "TimestampType",
    "TIMESTAMP_LTZ": "TimestampType",
    "TIMESTAMP_NTZ": "TimestampNTZType",
    "VARIANT": "VariantType",
    "VOID": "NullType",
}
_OTHER_TYPES = "DECIMAL(p, s), STRING, CHAR(n), VARCHAR(n), INTERVAL DAY TO SECOND, INTERVAL YEAR TO MONTH"
_NESTED_TYPES = "ARRAY<type>, MAP<type, type>, STRUCT<name: type, …>"
_YEAR_MONTH, _DAY_TIME = ("YEAR", "MONTH"), ("DAY", "HOUR", "MINUTE", "SECOND")
_COLLATION = re.compile(r"(UTF8_(BINARY|LCASE)|UNICODE(_CI)?(_AI)?)(_RTRIM)?")


def _new_type(class_name: str) -> DataType:
    import pyspark.sql.types

    kind: DataType = getattr(pyspark.sql.types, class_name)()
    return kind


def _type_names() -> str:
    """All types, for messages."""
    return ", ".join([*_SIMPLE_TYPES, *(["TIME(p)"] if _time_class() else []), _OTHER_TYPES, _NESTED_TYPES])


def _parameterized_type(word: str, numbers: list[int], fail: _Fail) -> DataType | None:
    """A type with numbers as parameters; None if there is none of that name."""
    from pyspark.sql.types import CharType, DecimalType, VarcharType

    if word in ("DECIMAL", "DEC", "NUMERIC"):
        precision, scale, *more = [*numbers, *(10, 0)[len(numbers) :]]
        if more or not 1 <= precision <= 38 or scale > precision:
            fail(
                f"{word} takes a precision of 1 to 38 and a scale of 0 to the precision, as in DECIMAL(10, 2)"
            )
        return DecimalType(precision, scale)
    if word in ("CHAR", "CHARACTER", "VARCHAR"):
        if len(numbers) != 1:
            fail(f"{word} takes its length, as in {word}(10)")
        return VarcharType(numbers[0]) if word == "VARCHAR" else CharType(numbers[0])
    time = _time_class()
    if word == "TIME" and time:
        if len(numbers) > 1 or numbers > [6]:
            fail("TIME takes a precision of 0 to 6, as in TIME(6)")
        return time(*numbers)
    return None


def _time_class() -> Callable[..., DataType] | None:
    """None before Spark 4.1."""
    import pyspark.sql.types

    return getattr(pyspark.sql.types, "TimeType", None)


def _interval_type(units: list[str], fail: _Fail) -> DataType:
    """`INTERVAL` with one unit, or from one unit to a smaller one of the same family."""
    from pyspark.sql.types import CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType

    for family, kind in ((_YEAR_MONTH, YearMonthIntervalType), (_DAY_TIME, DayTimeIntervalType)):
        if units and set(units) <= set(family):
            first, last = family.index(units[0]), family.index(units[-1])
            if first < last or len(units) == 1:
                return kind(first, last)
    if units:
        families = "YEAR and MONTH, or DAY, HOUR, MINUTE and SECOND"
        fail(f"INTERVAL {' TO '.join(units)} does not exist; write the larger unit first, of {families}")
    return CalendarIntervalType()


def _string_type(name: str | None, fail: _Fail) -> DataType:
    """`STRING`, perhaps with a collation that is not specific to a language."""
    from pyspark.sql.types import StringType

    if name is None:
        return StringType()
    if not _COLLATION.fullmatch(name.upper()):
        fail(f"unknown collation {name!r}; use UTF8_BINARY, UTF8_LCASE, or UNICODE with _CI, _AI and _RTRIM")
    return StringType(name.upper())


# Tokens

# Spark's white space differs from that of Python's `\s`.
_SPACE = r"[ \t\n\f\r\x0b\xa0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000]+"
_PATTERN = re.compile(
    rf"""(?P<skipped>{_SPACE}|--[^\r\n]*|/\*.*?\*/)
       | (?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
       | (?P<quoted>`(?:[^`]|``)*`)
       | (?P<word>[A-Za-z0-9_]+)
       | (?P<mark><>|[<>(),:])""",
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"[0-9]+(E[0-9]+)?(L|S|Y|F|D|BD)?", re.IGNORECASE)
_ESCAPE = r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))"
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


@dataclass(frozen=True)
class _Token:
    """`kind` is word, quoted, string, number, mark or end."""

    kind: str
    text: str
    start: int

    @property
    def word(self) -> str:
        """In upper case, to compare keywords."""
        return self.text.upper() if self.kind in ("word", "mark") else ""

    @property
    def value(self) -> str:
        """The value of a name or a string, without its quotes."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return _unquoted(self.text) if self.kind == "string" else self.text


def _tokenize(text: str, fail: Callable[[_Token, str], NoReturn]) -> list[_Token]:
    """All tokens, then `end` twice, so that the parser can always look at the next one."""
    tokens, start = [], 0
    while start < len(text):
        match = _PATTERN.match(text, start)
        if match is None:
            fail(_Token("mark", text[start], start), _unknown_character(text[start]))
        kind = "number" if match.lastgroup == "word" and _NUMBER.fullmatch(match[0]) else str(match.lastgroup)
        if kind == "quoted" and match[0] == "``":
            fail(_Token("mark", match[0], start), "a name in back quotes cannot be empty")
        if kind != "skipped":
            tokens.append(_Token(kind, match[0], start))
        start = match.end()
    end = _Token("end", "", len(text))
    return [*tokens, end, end]


def _unquoted(literal: str) -> str:
    if literal[0] in "rR":
        return literal[2:-1]
    quote = literal[0]
    text = re.sub(f"{_ESCAPE}|{quote}{quote}", _character, literal[1:-1], flags=re.DOTALL)
    # Two \u escapes may be the halves of one character.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _character(match: re.Match[str]) -> str:
    short, long, octal, other = match.groups()
    if short or long:
        return chr(int(short or long, 16))
    if octal:
        return chr(int(octal, 8))
    return _ESCAPED.get(other, other) if other else match[0][0]


def _unknown_character(character: str) -> str:
    if character in "'\"`":
        return f"the quote {character} is not closed"
    return (
        f"{character!r} is not allowed here; a name with characters other than letters, digits and _ needs "
        "`back quotes`"
    )
