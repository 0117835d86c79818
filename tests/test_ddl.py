"""The DDL parser, compared with Spark's own, and with the printer of DDL; neither is public."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from headwater.ddl import parse, to_ddl

TEXTS = [
    "a boolean",
    "a byte, b tinyint, c short, d smallint",
    "a int, b integer, c long, d bigint",
    "a float, b real, c double",
    "a decimal, b dec, c numeric",
    "a decimal(5), b decimal(5,2), c DEC( 38 , 38 ), d numeric(1,0)",
    "a string, b binary",
    "a char(3), b character(5), c varchar(255)",
    "a date, b timestamp, c timestamp_ltz, d timestamp_ntz",
    "a interval year",
    "a interval month",
    "a interval year to month",
    "a interval day",
    "a interval hour",
    "a interval minute",
    "a interval second",
    "a interval day to hour",
    "a interval day to minute",
    "a interval day to second",
    "a INTERVAL hour TO minute",
    "a interval hour to second",
    "a interval minute to second",
    "a variant",
    "a void",
    "a interval",
    "a array<int>",
    "a array<array<string>>",
    "a map<string, int>",
    "a map<string,map<int,array<double>>>",
    "a struct<>",
    "a struct< >",
    "a struct<x: int>",
    "a struct<x int, y: string>",
    "a struct<x: int NOT NULL COMMENT 'inner', y: struct<z: array<date>>>",
    "a array<struct<x:int,y:map<string,struct<z:decimal(3,1)>>>>",
    "a int not null",
    "a int NOT NULL comment 'it is'",
    "a int comment 'x', b string not null",
    "a int COMMENT ''",
    'a int COMMENT "double"',
    r"a int COMMENT 'it\'s'",
    r"a int COMMENT 'line\nnext\ttab \\ back \% \_ \Z \q'",
    r"a int COMMENT 'A \101 \U0001F600 \uD83D\uDE00'",
    r"a int COMMENT r'raw \n'",
    "a: int, b: string",
    "a: int not null comment 'c', b string",
    "a:int",
    "`a b` int, `c``d` string, `é` int",
    "`a.b` struct<`x y`: int>",
    "`select` int, `from` string",
    "timestamp timestamp, date date, interval interval day",
    "array array<int>, map map<int,int>, struct struct<struct: int>",
    "comment string, not int, null int, to int",
    "select int, from string, where long, table int, order int, comment string comment 'c'",
    "A INT, b_1 String, _c BOOLEAN, 1st int, c3po int",
    "  a   int  ,\n\t b\r\n string ",
    "a int -- the first\n, b int /* the second */",
    "struct<a: int, b: string>",
    "struct<a: struct<b: int>>",
    "a string collate UTF8_LCASE, b string collate unicode_ci",
]


def test_each_schema_is_parsed_as_spark_does(spark_session: SparkSession) -> None:
    """The session is there because Spark's parser is in the JVM. All texts at once: it is slow to start."""
    assert {text: parse(text) for text in TEXTS} == {text: T.StructType.fromDDL(text) for text in TEXTS}


def test_comments_are_kept_as_spark_keeps_them(spark_session: SparkSession) -> None:
    """`==` of a StructField does not look at metadata."""
    for text in TEXTS:
        assert parse(text).json() == T.StructType.fromDDL(text).json()


@pytest.mark.skipif(not hasattr(T, "TimeType"), reason="Spark 4.0 has no TIME")
def test_time_is_a_type_if_spark_has_it() -> None:
    assert parse("a TIME, b time(3)") == T.StructType(
        [T.StructField("a", T.TimeType()), T.StructField("b", T.TimeType(3))]
    )


@pytest.mark.parametrize(
    ("text", "what", "place"),
    [
        ("id INT, name STRNG", "unknown type 'STRNG'; a type is one of BOOLEAN, ", "STRNG"),
        ("a int b int", "found 'b' in the schema, expected the end, or ','", "b int"),
        ("a", "found the end in the schema, expected a type", ""),
        ("", "found the end in the schema, expected a column", ""),
        ("a int,", "found the end in the schema, expected a column", ""),
        ("a int, , b int", "found ',' in the schema, expected the name of a column", ", b int"),
        ("int", "expected a type", ""),
        ("5 int", "found '5' in the schema, expected the name of a column", "5 int"),
        ("a-b int", "'-' is not allowed here; a name with characters other than", "-b int"),
        ("é int", "needs `back quotes`", "é int"),
        ("`` int", "cannot be empty", "`` int"),
        ("`a int", "the quote ` is not closed", "`a int"),
        ("a int comment 'x", "the quote ' is not closed", "'x"),
        ("a int comment x", "expected the comment, in quotes", "x"),
        ("a int not", "expected 'NULL'", ""),
        ("a int null", "found 'null'", "null"),
        ("a int, A int", "the name 'A' appears twice", "A int"),
        ("a struct<x: int, X: int>", "the name 'X' appears twice", "X: int>"),
        ("a array", "expected '<'", ""),
        ("a array<int", "expected '>'", ""),
        ("a array<>", "expected '<'", "<>"),
        ("a map<int>", "expected ','", ">"),
        ("a struct<x int y int>", "expected '>'", "y int>"),
        ("a decimal(39)", "DECIMAL takes a precision of 1 to 38", "decimal(39)"),
        ("a decimal(3, 4)", "a scale of 0 to the precision", "decimal(3, 4)"),
        ("a decimal(0)", "a precision of 1 to 38", "decimal(0)"),
        ("a decimal(1,2,3)", "as in DECIMAL(10, 2)", "decimal(1,2,3)"),
        ("a decimal(x)", "expected an integer", "x)"),
        ("a decimal()", "expected an integer", ")"),
        ("a char", "CHAR takes its length", "char"),
        ("a varchar(1, 2)", "VARCHAR takes its length", "varchar(1, 2)"),
        ("a interval month to year", "INTERVAL MONTH TO YEAR does not exist", "interval month"),
        ("a interval day to month", "write the larger unit first", "interval day"),
        ("a interval day to day", "INTERVAL DAY TO DAY does not exist", "interval day"),
        ("a string collate klingon", "unknown collation 'klingon'; use UTF8_BINARY", "string collate"),
        ("id INT,\n  name STRNG,\n  x INT", "unknown type 'STRNG'", "STRNG,"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(text: str, what: str, place: str) -> None:
    with pytest.raises(ValueError, match=r"\n") as caught:
        parse(text)
    message, line, mark = str(caught.value).rsplit("\n", 2)
    assert what in message
    assert line[len(mark) - 1 :].startswith(place)
    assert mark.strip() == "^"


def test_types_nested_too_deeply_are_an_error_and_not_an_overflow() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse("a " + "array<" * 100_000)


def _names() -> st.SearchStrategy[str]:
    return st.from_regex("[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True) | st.text(
        st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5
    )


def _structs(types: st.SearchStrategy[T.DataType]) -> st.SearchStrategy[T.StructType]:
    metadata = st.just({}) | st.fixed_dictionaries({"comment": st.text(max_size=8)})
    fields = st.builds(T.StructField, _names(), types, st.booleans(), metadata)
    return st.lists(fields, min_size=1, max_size=4, unique_by=lambda field: field.name.lower()).map(
        T.StructType
    )


LEAVES = st.sampled_from(
    [kind for text in TEXTS if "<" not in text for kind in (field.dataType for field in parse(text).fields)]
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.builds(T.ArrayType, inner) | st.builds(T.MapType, inner, inner) | _structs(inner),
    max_leaves=8,
)


@given(_structs(TYPES))
def test_a_printed_schema_is_parsed_back_equal(schema: T.StructType) -> None:
    assert parse(to_ddl(schema)).json() == schema.json()
