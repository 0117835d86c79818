"""`stream`: a streaming DataFrame of a source, in one call."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from headwater import references, registry
from headwater.errors import HeadwaterError, shorten
from headwater.jvm_source import JvmSource
from headwater.options import COMMON, CommonOption, encode, snake
from headwater.source import Source
from headwater.spark import attach as crossing
from headwater.spark.attach import USE_CLASSIC, attach, is_classic, not_in_connect
from headwater.spark.kafka import is_kafka, kafka_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["stream"]

P = ParamSpec("P")
R = TypeVar("R")


def _suggest_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Adds "did you mean" to the TypeError for an unknown keyword."""
    keywords = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in keywords and name not in ("spark", "source"):
                raise TypeError(_unknown_keyword(name, keywords))
        return function(*args, **kwargs)

    return call


def _unknown_keyword(name: str, keywords: list[str]) -> str:
    matches = get_close_matches(snake(name), keywords, 1)
    hint = f"Did you mean '{matches[0]}'? " if matches else ""
    return (
        f"stream() got an unexpected keyword '{name}'. {hint}Its keywords are: {', '.join(keywords)}. "
        "Options of the source itself are arguments of the source"
    )


@_suggest_keywords
def stream(
    spark: SparkSession,
    source: Source | JvmSource | str,
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
    ack_on: str | None = None,
    start_from: str | datetime | Mapping[str, int] | Mapping[int, int] | None = None,
    min_partitions: int | None = None,
    call_timeout: timedelta | str | None = None,
) -> DataFrame:
    """A streaming DataFrame of `source`. Attaches the session first if needed.

    A string is a reference: the name of a source, `module:name`, `file.py:name`, or a URI such as
    `sse+https://host/path`, each with options as a query: `?decode=json`. `kafka://broker/topics` is Spark's
    own connector, with the options of that.

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
        ack_on,
        start_from,
        min_partitions,
        call_timeout,
    )
    values = {
        option: argument for option, argument in zip(COMMON, arguments, strict=True) if argument is not None
    }
    stream_options = {option.name: _encode(option, value) for option, value in values.items()}
    if isinstance(source, str) and is_kafka(source):
        if values:
            raise ValueError(
                f"{next(iter(values)).keyword} is an option of headwater's sources, and Spark's own "
                "connector reads Kafka: set an option of that in the reference, as in "
                "?maxOffsetsPerTrigger=1000"
            )
        return kafka_stream(spark, source)
    if isinstance(source, str):
        source = references.resolve(source).configured()
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
        raise HeadwaterError(not_in_connect(type(source)._name), USE_CLASSIC)
    crossing.connect()
    return registry.hold(source)


def _not_a_source(value: object) -> str:
    if isinstance(value, type) and issubclass(value, Source):
        return (
            f"stream() takes a configured source, and {value.__qualname__} is not configured: call it with "
            f"its options, as in {value.__qualname__}()"
        )
    return (
        f"stream() takes a configured source such as random_alpha(len=5), or a reference, not "
        f"{shorten(value)} of type {type(value).__qualname__}"
    )
