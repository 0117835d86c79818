"""Spark's DDL for schemas, parsed and written without a JVM, which Spark's own parser needs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

__all__ = [
    "PLAIN",
    "Token",
    "collation",
    "interval",
    "name_as_ddl",
    "parse",
    "sized",
    "text_as_ddl",
    "to_ddl",
    "tokens",
    "type_as_ddl",
    "type_names",
]

# Spark's white space is not Python's: `\s` has characters that Spark does not skip, and the other way round.
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
class Token:
    """A piece of the text; `kind` is word, quoted, string, number, mark or end."""

    kind: str
    text: str
    start: int

    @property
    def word(self) -> str:
        """For keywords, which are the same in any case."""
        return self.text.upper() if self.kind in ("word", "mark") else ""

    @property
    def value(self) -> str:
        """What a name or a string stands for, without its quotes."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return _unquoted(self.text) if self.kind == "string" else self.text


def tokens(text: str, fail: Callable[[Token, str], NoReturn]) -> list[Token]:
    """The pieces of `text`, an `end` after them, so that there is always a next one to look at."""
    found, start = [], 0
    while start < len(text):
        match = _PATTERN.match(text, start)
        if match is None:
            fail(Token("mark", text[start], start), _strange(text[start]))
        kind = "number" if match.lastgroup == "word" and _NUMBER.fullmatch(match[0]) else str(match.lastgroup)
        if kind == "quoted" and match[0] == "``":
            fail(Token("mark", match[0], start), "a name in back quotes must not be empty")
        if kind != "skipped":
            found.append(Token(kind, match[0], start))
        start = match.end()
    end = Token("end", "", len(text))
    return [*found, end, end]


def name_as_ddl(name: str) -> str:
    """The name as it is where that can be read back, else in back quotes."""
    plain = re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)
    return name if plain else "`" + name.replace("`", "``") + "`"


def text_as_ddl(text: str) -> str:
    r"""With `\'`, not `''`: Spark 4.0 does not know the latter."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


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


def _strange(character: str) -> str:
    if character in "'\"`":
        return f"the quote {character} is not closed"
    hint = "; a name with other characters than letters, digits and _ goes in `back quotes`"
    return f"{character!r} has no meaning in a schema{hint}"


Fail = Callable[[str], NoReturn]

_PLAIN_CLASSES = {
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
_OTHERS = "DECIMAL(p, s), STRING, CHAR(n), VARCHAR(n), INTERVAL DAY TO SECOND, INTERVAL YEAR TO MONTH"
_NESTED = "ARRAY<type>, MAP<type, type>, STRUCT<name: type, …>"
_YEAR_MONTH, _DAY_TIME = ("YEAR", "MONTH"), ("DAY", "HOUR", "MINUTE", "SECOND")
_COLLATION = re.compile(r"(UTF8_(BINARY|LCASE)|UNICODE(_CI)?(_AI)?)(_RTRIM)?")


def _known(name: str) -> Callable[[], DataType]:
    def make() -> DataType:
        import pyspark.sql.types

        kind: DataType = getattr(pyspark.sql.types, name)()
        return kind

    return make


PLAIN = {word: _known(name) for word, name in _PLAIN_CLASSES.items()}


def type_names() -> str:
    """All that can be written, for messages."""
    return ", ".join([*PLAIN, *(["TIME(p)"] if _time_class() else []), _OTHERS, _NESTED])


def sized(word: str, numbers: list[int], fail: Fail) -> DataType | None:
    """A type that takes numbers, or None if there is none of that name."""
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
    """Spark 4.1 brought it."""
    import pyspark.sql.types

    return getattr(pyspark.sql.types, "TimeType", None)


def interval(units: list[str], fail: Fail) -> DataType:
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


def collation(name: str | None, fail: Fail) -> DataType:
    """`STRING`, with the collations that need no list of all languages."""
    from pyspark.sql.types import StringType

    if name is None:
        return StringType()
    if not _COLLATION.fullmatch(name.upper()):
        fail(
            f"unknown collation {name!r}; known are UTF8_BINARY, UTF8_LCASE and UNICODE with _CI, _AI, _RTRIM"
        )
    return StringType(name.upper())


def type_as_ddl(kind: DataType, field_as_ddl: Callable[[StructField, str], str]) -> str:
    """As Spark's `simpleString` but for structs: those keep NOT NULL, comments and any name."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return f"ARRAY<{type_as_ddl(kind.elementType, field_as_ddl)}>"
    if isinstance(kind, MapType):
        key, value = (type_as_ddl(part, field_as_ddl) for part in (kind.keyType, kind.valueType))
        return f"MAP<{key}, {value}>"
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(field_as_ddl(field, ': ') for field in kind.fields)}>"
    return kind.simpleString().upper()


def parse(text: str) -> StructType:
    """The schema that `text` describes; a ValueError says what is wrong, where, and what is allowed.

    >>> parse("id BIGINT NOT NULL, name STRING COMMENT 'as given'").names
    ['id', 'name']
    """
    try:
        return _Parser(text).schema()
    except RecursionError:
        raise ValueError("the types of this schema are nested too deeply") from None


def to_ddl(schema: StructType) -> str:
    """The way back: `parse(to_ddl(schema))` is `schema` again, but for what DDL cannot say.

    That is metadata other than comments, and that an array's elements or a map's values are never null.
    """
    return ", ".join(_field_as_ddl(field, " ") for field in schema.fields)


def _field_as_ddl(field: StructField, colon: str) -> str:
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

    def schema(self) -> StructType:
        """All of the text: columns, or one `struct<…>`, which is how Spark itself prints a schema."""
        if self._tokens[0].word == "STRUCT" and self._tokens[1].text in ("<", "<>"):
            self._advance()
            whole = self._struct()
        else:
            whole = self._fields(end="")
        if self._token.text:
            self._unexpected("the end, or a ',' and the next column")
        return whole

    def _fields(self, end: str) -> StructType:
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

    def _field(self) -> StructField:
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

    def _type(self) -> DataType:
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

    def _array(self) -> DataType:
        from pyspark.sql.types import ArrayType

        self._take("<")
        element = self._type()
        self._take(">")
        return ArrayType(element)

    def _map(self) -> DataType:
        from pyspark.sql.types import MapType

        self._take("<")
        key = self._type()
        self._take(",")
        value = self._type()
        self._take(">")
        return MapType(key, value)

    def _struct(self) -> StructType:
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
