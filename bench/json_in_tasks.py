"""Compares headwater's JSON decoder, in one Python thread, with Spark's parser in tasks: results, speed.

Run it with .venv/bin/python bench/json_in_tasks.py; wiki/Decisions.md has what came out.
"""

from __future__ import annotations

import json
import time
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import headwater as hw
from headwater.decode import decoder

# By type, the values of the field `v`, as JSON.
VALUES = {
    "BOOLEAN": ["true", '"true"', "1", "null"],
    "INT": ["1", "-0", "1.0", "1e3", '"5"', "2147483648", "null"],
    "BIGINT": ["9223372036854775807", "9223372036854775808", "1.5", '"7"'],
    "DOUBLE": ["1", "1e400", "NaN", '"NaN"', '"1.5"', "0.1"],
    "DECIMAL(5, 2)": ["1.25", "1.255", "12345", '"1.25"', "1e1"],
    "STRING": ['"a"', "5", "true", '{"a":1}', '"\\ud800"', "[1]"],
    "BINARY": ['"aGk="', '"hi"', '"%%"'],
    "DATE": ['"2024-05-31"', '"2024-5-31"', '"2024-05-31T10:00:00Z"', "5", '"2024-02-30"'],
    "TIMESTAMP": ['"2024-05-31T12:30:00Z"', '"2024-05-31T12:30:00"', '"2024-05-31"', "1717158600", '"x"'],
    "TIMESTAMP_NTZ": ['"2024-05-31T12:30:00"', '"2024-05-31T12:30:00Z"'],
    "ARRAY<INT>": ["[1,2]", '[1,"x"]', "5", "[]"],
    "STRUCT<a: INT>": ['{"a":1}', '{"a":"x"}', "[1]", '{"A":1}'],
    "MAP<STRING, INT>": ['{"a":1}', '{"a":1,"a":2}'],
}
RECORDS = {  # whole records, for `v INT`
    "twice": '{"v":1,"v":2}',
    "upper case": '{"V":1}',
    "two objects": '{"v":1}{"v":2}',
    "array of objects": '[{"v":1},{"v":2}]',
    "trailing comma": '{"v":1,}',
    "single quotes": "{'v':1}",
    "comment": '{"v":1}//x',
    "blank": "",
    "BOM": '\ufeff{"v":1}',
    "leading zero": '{"v":01}',
}


def of_headwater(schema: str, record: str) -> Any:
    rows = decoder("json", schema).rows([record.encode("utf-8", "surrogatepass")])
    row = rows.to_pylist()[0] if hasattr(rows, "to_pylist") else rows[0]
    return "bad" if isinstance(row, hw.BadRow) else _plain(row["v"] if isinstance(row, dict) else row[0])


def of_spark(spark: SparkSession, schema: str, records: list[str]) -> list[Any]:
    frame = spark.createDataFrame([(i, record) for i, record in enumerate(records)], "i INT, r STRING")
    options = {"columnNameOfCorruptRecord": "_c", "mode": "PERMISSIVE"}
    parsed = frame.select("i", sf.from_json("r", f"{schema}, _c STRING", options).alias("p"))
    rows = (
        parsed.select("i", "p.v", sf.expr("p IS NULL OR p._c IS NOT NULL").alias("bad"))
        .orderBy("i")
        .collect()
    )
    return ["bad" if row.bad else _plain(row.v) for row in rows]


def _plain(value: Any) -> Any:
    if hasattr(value, "asDict"):
        return value.asDict()
    if hasattr(value, "tzinfo"):
        return value.replace(tzinfo=None)
    return dict(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value


def results(spark: SparkSession) -> None:
    cases = [(type_, f'{{"v":{value}}}') for type_, values in VALUES.items() for value in values]
    cases += [("INT", record) for record in RECORDS.values()]
    same = 0
    for type_ in dict.fromkeys(type_ for type_, _ in cases):
        records = [record for other, record in cases if other == type_]
        for record, theirs in zip(records, of_spark(spark, f"v {type_}", records), strict=True):
            ours = of_headwater(f"v {type_}", record)
            same += str(ours) == str(theirs)
            if str(ours) != str(theirs):
                print(f"{type_:<18} {record:<32} headwater: {ours!r:<30} Spark: {theirs!r}")
    print(f"{same} of {len(cases)} the same")


def speed(spark: SparkSession, wide: bool) -> None:
    fields = [f"f{i} STRING" for i in range(30 if wide else 2)]
    schema = ", ".join(["id BIGINT", "price DOUBLE", "at TIMESTAMP", *fields])
    text = {f"f{i}": "x" * 20 for i in range(30 if wide else 2)}
    records = [
        json.dumps({"id": n, "price": n / 7, "at": "2024-05-31T12:30:00Z", **text}) for n in range(100_000)
    ]
    data = [record.encode() for record in records]
    once = decoder("json", schema)
    best = 0.0
    for _ in range(3):
        begin = time.perf_counter()
        for start in range(0, len(data), 8192):
            once.rows(data[start : start + 8192])
        best = max(best, len(data) / (time.perf_counter() - begin))
    frame = spark.createDataFrame([(record,) for record in records], "r STRING").repartition(2).cache()
    frame.count()
    parsed = frame.select(sf.from_json("r", schema, {"mode": "FAILFAST"}).alias("p")).select("p.*")
    tasks = 0.0
    for _ in range(3):
        begin = time.perf_counter()
        parsed.write.format("noop").mode("overwrite").save()
        tasks = max(tasks, len(data) / (time.perf_counter() - begin))
    size = len(data[-1])
    print(f"{size} bytes: one Python thread {best:,.0f} records/s, Spark's from_json in 2 tasks {tasks:,.0f}")


if __name__ == "__main__":
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = session.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    results(spark)
    speed(spark, wide=False)
    speed(spark, wide=True)
