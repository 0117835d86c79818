"""`stream`: a streaming DataFrame of a source, in one call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from headwater import registry
from headwater.errors import HeadwaterError, shorten
from headwater.jvm_source import JvmSource
from headwater.options import COMMON, CommonOption, encode
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
    """A streaming DataFrame of `source`. Attaches the session first if needed.

    An argument left at None keeps the default of the option with that name (`max_rows_per_trigger` is
    `maxRowsPerTrigger`). Sizes are bytes or a string such as "64m"; durations are a timedelta or a string
    such as "250ms"; `start_cursor` is any JSON; `start_from` is "earliest", "latest", a datetime with a time
    zone, or a dict of offsets by partition. A wrong value fails in this call, with the option, the value and
    what is allowed. With Spark Connect it fails at `.schema` or `start()`, when the server first analyses
    the stream.

    >>> import headwater as hw
    >>> from headwater.sources import random_alpha
    >>> words = hw.stream(spark, random_alpha(len=5), max_rows_per_trigger=1000)
    >>> print(words.isStreaming, words.columns)
    True ['timestamp', 'value']
    """
    arguments = (  # in the table's order, as the keywords are
        durability,
        buffer_bytes,
        buffer_rows,
        max_rows_per_trigger,
        max_bytes_per_trigger,
        min_rows_per_trigger,
        max_trigger_delay,
        available_now_wait,
        fail_on_data_loss,
        log_bytes,
        log_compression,
        log_retain_batches,
        log_retain_bytes,
        on_error,
        max_restarts,
        on_bad_row,
        concurrency,
        linger,
        batch_rows,
        start_cursor,
        start_from,
        min_partitions,
    )
    values = {
        option: argument for option, argument in zip(COMMON, arguments, strict=True) if argument is not None
    }
    stream_options = {option.name: _encode(option, value) for option, value in values.items()}
    if isinstance(source, JvmSource):
        name, options = source.name, source.options
    elif isinstance(source, Source):
        name, options = "headwater", {"source": _hold(attach(spark), source)}
    else:
        raise TypeError(_not_a_source(source))
    for option, value in values.items():
        if option.name in options:
            raise ValueError(
                f"{option.keyword}={value!r} is also set in the source {source!r}: set it in only one of them"
            )
    return attach(spark).readStream.format(name).options(**options, **stream_options).load()


def _encode(option: CommonOption, value: object) -> str:
    """The value as Spark's options hold it. Most types share one encoding."""
    if option.type == "cursor":
        return json.dumps(value)
    if option.type == "startFrom":
        return _encode_start(value)
    return encode(option.keyword, value)


def _encode_start(value: object) -> str:
    """The JVM checks what a string says."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return json.dumps({str(partition): offset for partition, offset in value.items()})
    if not isinstance(value, datetime):
        raise TypeError(
            f"start_from={value!r} is of type {type(value).__name__}; it must be a str, a datetime or a dict"
        )
    if value.tzinfo is None:
        raise ValueError(f"start_from={value!r} has no time zone: add one, as in datetime.now(timezone.utc)")
    return value.isoformat()


def _hold(spark: SparkSession, source: Source) -> str:
    """Keeps a Python source in this process, and returns the name under which Spark asks for it."""
    if not hasattr(type(source), "_name"):
        raise TypeError(
            f'{source!r} has no name: write class {type(source).__name__}(hw.Source, name="…", schema=…)'
        )
    if not is_classic(spark):
        raise HeadwaterError(
            f"source '{type(source)._name}' is written in Python and runs in the driver process, but this is "
            "a Spark Connect session, whose driver is a server",
            "use a classic session, as hw.session() creates without SPARK_REMOTE. Sources that run in the "
            "JVM, such as random_alpha, also work in a Connect session",
        )
    crossing.connect()
    return registry.hold(source)


def _not_a_source(value: object) -> str:
    if isinstance(value, type) and issubclass(value, Source):
        return (
            f"stream() takes a configured source, and {value.__qualname__} is not configured: call it with "
            f"its options, as in {value.__qualname__}()"
        )
    return (
        f"stream() takes a configured source such as random_alpha(len=5), not {shorten(value)} of type "
        f"{type(value).__qualname__}"
    )
