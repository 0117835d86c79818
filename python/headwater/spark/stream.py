"""`stream`: a streaming DataFrame of a source, in one call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from headwater import registry
from headwater.errors import HeadwaterError
from headwater.options import OptionValue, camel, encode
from headwater.registry import JvmSource
from headwater.source import Source
from headwater.spark import attach as crossing
from headwater.spark.attach import attach, is_classic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["stream"]


def stream(
    spark: SparkSession,
    source: Source | JvmSource,
    *,
    durability: str | None = None,
    buffer_bytes: int | str | None = None,
    buffer_rows: int | None = None,
    max_rows_per_trigger: int | None = None,
    max_bytes_per_trigger: int | str | None = None,
    min_rows_per_trigger: int | None = None,
    max_trigger_delay: timedelta | str | None = None,
    available_now_wait: timedelta | str | None = None,
    fail_on_data_loss: bool | None = None,
    log_bytes: int | str | None = None,
    log_compression: str | None = None,
    log_retain_batches: int | None = None,
    log_retain_bytes: int | str | None = None,
    on_error: str | None = None,
    max_restarts: int | None = None,
    on_bad_row: str | None = None,
    concurrency: int | None = None,
    linger: timedelta | str | None = None,
    batch_rows: int | None = None,
    start_cursor: object = None,
    start_from: str | datetime | Mapping[str, int] | Mapping[int, int] | None = None,
    min_partitions: int | None = None,
) -> DataFrame:
    """A streaming DataFrame of `source`. The session is attached first where it is not yet.

    What is left at None keeps the default of the option of that name (`max_rows_per_trigger` is
    `maxRowsPerTrigger`). Sizes are bytes or a string such as "64m", durations a timedelta or a string such as
    "250ms", `start_cursor` is any JSON, `start_from` is "earliest", "latest", a datetime with its zone, or a
    dict of offsets by partition. A wrong value fails here, in a message that names the option, the
    value and what is allowed; with Spark Connect, whose server looks at options when the stream is first
    analysed, at `.schema` or `start()`.

    >>> import headwater as hw
    >>> from headwater.sources import random_alpha
    >>> words = hw.stream(spark, random_alpha(len=5), max_rows_per_trigger=1000)
    >>> print(words.isStreaming, words.columns)
    True ['timestamp', 'value']
    """
    common: dict[str, OptionValue] = {
        "durability": durability,
        "buffer_bytes": buffer_bytes,
        "buffer_rows": buffer_rows,
        "max_rows_per_trigger": max_rows_per_trigger,
        "max_bytes_per_trigger": max_bytes_per_trigger,
        "min_rows_per_trigger": min_rows_per_trigger,
        "max_trigger_delay": max_trigger_delay,
        "available_now_wait": available_now_wait,
        "fail_on_data_loss": fail_on_data_loss,
        "log_bytes": log_bytes,
        "log_compression": log_compression,
        "log_retain_batches": log_retain_batches,
        "log_retain_bytes": log_retain_bytes,
        "on_error": on_error,
        "max_restarts": max_restarts,
        "on_bad_row": on_bad_row,
        "concurrency": concurrency,
        "linger": linger,
        "batch_rows": batch_rows,
        "start_cursor": None if start_cursor is None else json.dumps(start_cursor),
        "start_from": _start_from(start_from),
        "min_partitions": min_partitions,
    }
    set_here = {camel(name): encode(name, value) for name, value in common.items() if value is not None}
    if isinstance(source, JvmSource):
        name, options = source.name, source.options
    elif isinstance(source, Source):
        name, options = "headwater", {"source": _handed_over(attach(spark), source)}
    else:
        raise TypeError(_no_source(source))
    for option, value in common.items():
        if value is not None and camel(option) in options:
            said = f"{option}={value!r} is also set in the source {source!r}"
            raise ValueError(f"{said}: set it in one of the two")
    return attach(spark).readStream.format(name).options(**options, **set_here).load()


def _start_from(given: object) -> str | None:
    """As Spark's options hold it; what it says is checked in the JVM."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, Mapping):
        return json.dumps({str(partition): offset for partition, offset in given.items()})
    if not isinstance(given, datetime):
        raise TypeError(
            f"start_from={given!r} is of type {type(given).__name__}; it must be a str, a datetime or a dict"
        )
    if given.tzinfo is None:
        raise ValueError(f"start_from={given!r} has no zone: give it one, as in datetime.now(timezone.utc)")
    return given.isoformat()


def _handed_over(spark: SparkSession, source: Source) -> str:
    """A source in Python is handed over as the value that it is; Spark gets a name for it."""
    if not hasattr(type(source), "_name"):
        raise TypeError(
            f'{source!r} has no name: write class {type(source).__name__}(hw.Source, name="…", schema=…)'
        )
    if not is_classic(spark):
        raise HeadwaterError(
            f"source '{type(source)._name}' is written in Python and runs in the process that drives Spark, "
            "and this is a Spark Connect session, whose Spark a server drives",
            "use a classic session, as hw.session() makes without SPARK_REMOTE. What works in a Connect "
            "session are the sources that run in the JVM, such as random_alpha",
        )
    crossing.connect()
    return registry.hold(source)


def _no_source(given: object) -> str:
    if isinstance(given, type) and issubclass(given, Source):
        return (
            f"stream() takes a configured source, and {given.__qualname__} is not configured: call it, "
            f"with its options, as in {given.__qualname__}()"
        )
    return (
        f"stream() takes a configured source, not {given!r} of type {type(given).__qualname__}: for instance "
        "random_alpha(len=5), from headwater.sources"
    )
