"""Spark's schemas as Arrow's: the same that Spark's own `ArrowUtils.toArrowSchema` gives for the zone UTC."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructField, StructType

__all__ = ["arrow_schema"]

_INSTEAD = {
    "YearMonthIntervalType": "declare it INT, give months, and use make_ym_interval(0, months) in the query",
    "CalendarIntervalType": "declare it INTERVAL DAY TO SECOND, and give timedeltas",
    "StructType": "give it a field, or leave it out",
    "VariantType": "declare it STRING, give JSON, and use parse_json in the query",
    "GeometryType": "declare it BINARY, give WKB, and use st_geomfromwkb in the query",
    "GeographyType": "declare it BINARY, give WKB, and use st_geogfromwkb in the query",
}


def arrow_schema(schema: "StructType") -> "pa.Schema":
    """The schema in which a source's rows travel; a ValueError names the column that has no way to.

    Metadata stays behind: Spark 4.0 and 4.1 do not carry it in Arrow schemas, later ones do, and no value
    depends on it.
    """
    import pyarrow as pa

    return pa.schema([_field(field, field.name) for field in schema.fields])


def _field(field: "StructField", path: str) -> "pa.Field":
    import pyarrow as pa

    return pa.field(field.name, _type(field.dataType, path), nullable=field.nullable)


def _type(kind: "DataType", path: str) -> "pa.DataType":
    """The names of the children are those that Spark gives them; readers may look for them."""
    import pyarrow as pa
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        element = _type(kind.elementType, f"{path}[]")
        return pa.list_(pa.field("element", element, nullable=kind.containsNull))
    if isinstance(kind, MapType):
        key, value = _type(kind.keyType, f"{path}.key"), _type(kind.valueType, f"{path}.value")
        return pa.map_(key, pa.field("value", value, nullable=kind.valueContainsNull))
    if isinstance(kind, StructType) and kind.fields:
        return pa.struct([_field(field, f"{path}.{field.name}") for field in kind.fields])
    return _leaf(kind, path)


def _leaf(kind: "DataType", path: str) -> "pa.DataType":
    import pyarrow as pa
    from pyspark.sql.types import DecimalType

    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    plain = {
        "BooleanType": pa.bool_(),
        "ByteType": pa.int8(),
        "ShortType": pa.int16(),
        "IntegerType": pa.int32(),
        "LongType": pa.int64(),
        "FloatType": pa.float32(),
        "DoubleType": pa.float64(),
        "StringType": pa.string(),
        "CharType": pa.string(),
        "VarcharType": pa.string(),
        "BinaryType": pa.binary(),
        "DateType": pa.date32(),
        "TimestampType": pa.timestamp("us", tz="UTC"),
        "TimestampNTZType": pa.timestamp("us"),
        "TimeType": pa.time64("ns"),
        "DayTimeIntervalType": pa.duration("us"),
        "NullType": pa.null(),
    }
    name = type(kind).__name__
    if name not in plain:
        remedy = _INSTEAD.get(name, "declare it with another type")
        raise ValueError(
            f"column {path!r} is of type {kind.simpleString().upper()}, which a source cannot give; {remedy}"
        )
    return plain[name]
