"""Values of every Spark type arrive in Spark exactly, from rows and from Arrow.

The private `Converter` makes the Arrow batches, with Spark's type for each column.
"""

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from headwater.ddl import parse
from headwater.rows.converter import Converter
from headwater.testing import END, ListSource, RunningStream

Stream = Callable[..., RunningStream]

UTC = timezone.utc
EARLY, LATE = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)

CASES: list[tuple[str, list[Any]]] = [
    ("BOOLEAN", [True, False]),
    ("BYTE", [-128, 127]),
    ("SHORT", [-32768, 32767]),
    ("INT", [-(2**31), 2**31 - 1]),
    ("LONG", [-(2**63), 2**63 - 1]),
    ("FLOAT", [1.5, float("inf")]),
    ("DOUBLE", [0.1, float("-inf")]),
    ("DECIMAL(18, 2)", [Decimal("-9999999999999999.99"), Decimal("0.00")]),
    ("DECIMAL(38, 10)", [Decimal("1234567890123456789012345678.0123456789"), Decimal("-1.5000000000")]),
    ("STRING", ["", "naïve 漢字 🚰", "x" * 100_000]),
    ("BINARY", [b"", b"\x00\xff"]),
    ("DATE", [date(1, 1, 1), date(9999, 12, 31)]),
    ("INTERVAL DAY TO SECOND", [timedelta(days=-3, microseconds=1), timedelta(hours=25)]),
    ("ARRAY<INT>", [[], [1, None, 3]]),
    ("ARRAY<ARRAY<STRING>>", [[["a"], [], None]]),
    ("MAP<STRING, INT>", [{}, {"a": 1, "b": None}]),
    ("STRUCT<a: INT, b: STRUCT<c: ARRAY<STRING>, d: MAP<STRING, DOUBLE>>>", [(1, (["x"], {"k": 0.5}))]),
    ("STRUCT<a: INT NOT NULL>", [(7,)]),
]


def cast(expression: str) -> Callable[[Any], Any]:
    return lambda frame: frame.selectExpr(expression)


FLAT = [case for case in CASES if "<" not in case[0]]  # the JVM reads these differently


@pytest.mark.parametrize("cases", [CASES, FLAT], ids=["nested", "flat"])
@pytest.mark.parametrize(("kind", "limit"), [("rows", None), ("Arrow", None), ("Arrow", 1)])
def test_every_type_arrives_exactly(
    stream: Stream, kind: str, limit: int | None, cases: list[tuple[str, list[Any]]]
) -> None:
    schema = ", ".join(f"c{place} {ddl}" for place, (ddl, _) in enumerate(cases))
    depth = max(len(values) for _, values in cases)
    rows = [tuple(values[n] if n < len(values) else None for _, values in cases) for n in range(depth)]
    items: list[Any] = [tuple(row) for row in rows]
    if kind == "Arrow":
        items = [Converter(parse(schema)).from_rows(items, 0)[0]]
    query = stream(ListSource([*items, END], schema), max_rows_per_trigger=limit)
    assert [plain(row) for row in query.to_end()] == [plain(row) for row in rows]


def plain(value: Any) -> Any:
    """Rows and namedtuples as tuples."""
    if isinstance(value, Row | tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.mark.parametrize("moment", [EARLY, LATE, datetime(2026, 3, 29, 1, 30, 0, 1, UTC)])
def test_a_timestamp_is_the_same_instant_in_spark(stream: Stream, moment: datetime) -> None:
    micros = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    elsewhere = (
        moment if moment in (EARLY, LATE) else moment.astimezone(timezone(timedelta(hours=5, minutes=45)))
    )
    source = ListSource([(moment,), (elsewhere,), END], "at TIMESTAMP")
    assert stream(source, apply=cast("unix_micros(at)")).to_end() == [(micros,), (micros,)]


def test_a_timestamp_without_time_zone_is_unchanged_in_spark(stream: Stream) -> None:
    source = ListSource(
        [(datetime(1, 1, 1),), (datetime(9999, 12, 31, 23, 59, 59, 999999),), END], "at TIMESTAMP_NTZ"
    )
    rows = stream(source, apply=cast("cast(at as string)")).to_end()
    assert rows == [("0001-01-01 00:00:00",), ("9999-12-31 23:59:59.999999",)]


def test_nan_arrives_as_nan(stream: Stream) -> None:
    rows = stream(ListSource([(float("nan"),), END], "x DOUBLE"), apply=cast("isnan(x)")).to_end()
    assert rows == [(True,)]


def test_timestamps_of_pandas_and_arrow_tables_arrive_exactly(stream: Stream) -> None:
    pandas = pytest.importorskip("pandas")
    times = ["2026-01-02T03:04:05.000006Z"]
    table = pa.table(
        {"at": pa.array([datetime(2026, 1, 2, 3, 4, 5, 6, UTC)], pa.timestamp("ns", "Asia/Tokyo"))}
    )
    frame = pandas.DataFrame({"at": pandas.to_datetime(times, utc=True)})
    source = ListSource([table, frame, END], "at TIMESTAMP")
    rows = stream(
        source, apply=cast("unix_micros(at) - unix_micros(timestamp'2026-01-02 03:04:05Z')")
    ).to_end()
    assert rows == [(6,), (6,)]


def test_a_null_in_a_not_null_column_fails_the_query(spark_session: SparkSession, stream: Stream) -> None:
    query = stream(ListSource([(1, [2]), END], "n LONG NOT NULL, a ARRAY<INT>"))
    assert query.to_end() == [(1, [2])]
    assert "row 0" in stream(ListSource([(None, [2]), END], "n LONG NOT NULL, a ARRAY<INT>")).failure()
