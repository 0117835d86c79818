"""Imports a module without Spark: while the command looks for sources in it, no session starts.

A program that makes a session when it is imported gets a placeholder, so that the sources it defines below
are found too. Its import ends where it uses the placeholder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, cast

from headwater.references import SparkNeeded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["is_placeholder", "placeholder", "without_spark"]

_is_active = False


class _Placeholder:
    """In place of a session. Using it raises SparkNeeded."""

    def __getattr__(self, name: str) -> NoReturn:
        raise SparkNeeded


_PLACEHOLDER = cast("SparkSession", _Placeholder())


@contextmanager
def without_spark() -> Iterator[None]:
    """In this block `session()`, and the `getOrCreate` of PySpark, return a placeholder."""
    global _is_active
    try:
        from pyspark.sql import SparkSession
    except ImportError:  # so nobody can start it
        yield
        return
    builder: Any = SparkSession.Builder
    original = builder.getOrCreate
    builder.getOrCreate = lambda self: _PLACEHOLDER
    _is_active = True
    try:
        yield
    finally:
        builder.getOrCreate = original
        _is_active = False


def placeholder() -> SparkSession | None:
    """What `session()` returns in place of a session, or None if it may start Spark."""
    return _PLACEHOLDER if _is_active else None


def is_placeholder(spark: SparkSession) -> bool:
    return spark is _PLACEHOLDER
