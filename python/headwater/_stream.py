"""`stream`: a streaming DataFrame of a source, in one call."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from headwater._options import OptionValue, camel, encode
from headwater._session import attach
from headwater._source import JvmSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["stream"]


def stream(
    spark: SparkSession,
    source: JvmSource,
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
) -> DataFrame:
    """A streaming DataFrame of `source`. The session is attached first where it is not yet.

    What is left at None keeps the default of the option of that name (`max_rows_per_trigger` is
    `maxRowsPerTrigger`). Sizes are bytes or a string such as "64m", durations a timedelta or a string such as
    "250ms". A wrong value fails here, in a message that names the option, the value and what is allowed; with
    Spark Connect, whose server looks at options when the stream is first analysed, at `.schema` or `start()`.

    >>> from headwater.sources import random_alpha
    >>> words = stream(spark, random_alpha(len=5), max_rows_per_trigger=1000)
    >>> words.isStreaming, words.columns
    (True, ['timestamp', 'value'])
    """
    if not isinstance(source, JvmSource):
        raise TypeError(
            f"stream() takes a configured source, not {source!r} of type {type(source).__qualname__}: "
            "for instance random_alpha(len=5), from headwater.sources"
        )
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
    }
    options = source.options
    taken = {name.lower() for name in options}
    for name, value in common.items():
        if value is None:
            continue
        if camel(name).lower() in taken:
            raise ValueError(
                f"{name}={value!r} is also set in the source {source!r}: set it in one of the two"
            )
        options[camel(name)] = encode(name, value)
    return attach(spark).readStream.format(source.name).options(**options).load()
