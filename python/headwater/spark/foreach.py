"""`foreach`: a sink that calls a function in this process with each row, within milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.spark import attach as crossing
from headwater.spark.attach import attach, is_classic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["foreach"]


def foreach(frame: DataFrame, function: Callable[[dict[str, Any]], object]) -> DataStreamWriter:
    """A writer of `frame` that calls `function` in this process with each row, as soon as it is there.

    The row is a dict of JSON values, as `to_json` writes them. Rows of one task come in order, one at a time;
    an exception fails the query. PySpark's own `foreach` runs in Spark's workers, which get rows in batches;
    use this one with real-time mode, on one machine. A row may come again after a restart.

    >>> import time
    >>> import headwater as hw
    >>> from headwater.sources import random_alpha
    >>> rows = []
    >>> words = hw.stream(spark, random_alpha(len=5, rows_per_second=100))
    >>> writer = hw.foreach(words.select("value"), rows.append)
    >>> query = writer.trigger(realTime="5 seconds").start()
    >>> while not rows:
    ...     time.sleep(0.01)
    >>> query.stop()
    >>> print(list(rows[0]))
    ['value']
    """
    from pyspark.sql import functions

    spark = frame.sparkSession
    crossing_to = None
    if is_classic(spark):
        attach(spark)
        crossing.connect()
        crossing_to = crossing.current()
    if crossing_to is None or not crossing_to[0].is_local:
        raise HeadwaterError(
            "foreach() calls a function in the process that drives Spark, so its tasks must run there too",
            'use a classic session with master("local[*]"), or writeStream.foreach(…) on a cluster',
        )
    driver, host = crossing_to
    row = functions.to_json(functions.struct("*"), {"ignoreNullFields": "false"})
    writer: Any = frame.select(row.alias("row")).writeStream.outputMode("update")
    writer._jwrite = writer._jwrite.foreach(driver.row_writer(host.add_sink(function)))
    result: DataStreamWriter = writer
    return result
