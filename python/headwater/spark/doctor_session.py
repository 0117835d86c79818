"""What the doctor runs in a process of its own: a small session. Says how it went in one line of JSON."""

from __future__ import annotations

import json
import os
import sys

from headwater.errors import HeadwaterError
from headwater.spark.session import session

__all__ = ["main"]


def main() -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    if "SPARK_REMOTE" not in os.environ:
        builder = builder.master("local[1]")
    report: dict[str, str | None]
    try:
        spark = session(builder)
        schema = spark.readStream.format("random_alpha").option("len", 1).load().schema.simpleString()
        kind = "Connect" if type(spark).__module__.startswith("pyspark.sql.connect.") else "classic"
        report = {"kind": kind, "spark": spark.version, "schema": schema}
        spark.stop()
    except HeadwaterError as error:
        report = {"error": error.what, "remedy": error.remedy}
    except Exception as error:  # whatever Spark raises becomes one line; the log above it has the rest
        first_line = str(error).strip().partition("\n")[0]
        report = {"error": f"{type(error).__name__}: {first_line}", "remedy": None}
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
