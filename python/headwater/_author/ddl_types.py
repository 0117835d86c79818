"""The types of Spark's DDL by their names, and the names by the types."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField

__all__ = ["PLAIN", "collation", "interval", "sized", "type_as_ddl", "type_names"]

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


def _known(name: str) -> Callable[[], "DataType"]:
    def make() -> "DataType":
        import pyspark.sql.types

        kind: DataType = getattr(pyspark.sql.types, name)()
        return kind

    return make


PLAIN = {word: _known(name) for word, name in _PLAIN_CLASSES.items()}


def type_names() -> str:
    """All that can be written, for messages."""
    return ", ".join([*PLAIN, *(["TIME(p)"] if _time_class() else []), _OTHERS, _NESTED])


def sized(word: str, numbers: list[int], fail: Fail) -> "DataType | None":
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


def _time_class() -> "Callable[..., DataType] | None":
    """Spark 4.1 brought it."""
    import pyspark.sql.types

    return getattr(pyspark.sql.types, "TimeType", None)


def interval(units: list[str], fail: Fail) -> "DataType":
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


def collation(name: str | None, fail: Fail) -> "DataType":
    """`STRING`, with the collations that need no list of all languages."""
    from pyspark.sql.types import StringType

    if name is None:
        return StringType()
    if not _COLLATION.fullmatch(name.upper()):
        fail(
            f"unknown collation {name!r}; known are UTF8_BINARY, UTF8_LCASE and UNICODE with _CI, _AI, _RTRIM"
        )
    return StringType(name.upper())


def type_as_ddl(kind: "DataType", field_as_ddl: "Callable[[StructField, str], str]") -> str:
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
